//! A tree of words from the number of a page in its file to the frame that holds the page, read without a
//! lock.
//!
//! ```text
//!  roots[0] ─▶ leaf: 512 words                        pages 0 to 511
//!  roots[1] ─▶ node: 512 words ─▶ leaves              pages 512 to 2^18 - 1 (its first leaf stays empty)
//!  roots[2] ─▶ ...                                    up to 2^27, and roots[3] up to 2^36
//! ```
//!
//! In a node the words of neighbouring digits are 8 words apart, so that a call that makes a page shares no
//! cache line with a call that reads the next one. The words of 64 neighbours fill 8 lines in either order.
//!
//! A word is 0, or [`PRESENT`] and the number of a frame: the page's, or the next node's. So a small file is
//! one node, and no root ever moves. The tree is not a radix map: pages are looked up far more often than
//! inserted, by cores that share nothing else, and a lookup must write nothing, not even a lock.
//!
//! 1. The words of nodes change once, from 0, and nodes stay until the tree goes. A page's word changes by
//!    compare-and-swap or swap, so each inserted page is removed once, by one caller.
//! 2. The tree holds one reference to each of its pages' frames. A caller that removes a page drops that
//!    reference *after* the removal, or passes it on.
//! 3. A caller that finds a page is pinned, and may use the frame, or take a reference, as long as it stays
//!    pinned: its core does not flush meanwhile, so no count that became zero after the lookup counts as a
//!    true zero before the caller has unpinned. (The page's word is to the frame what a weak word is to a
//!    radix node. As the word is cleared *before* the tree's reference goes, the mark `DYING` is
//!    unnecessary.)
//!
//! Orderings: a word is set with Release and read with Acquire, so a core that finds a node sees its zeroes,
//! and a core that finds a page sees its first contents and its count.

use core::ops::{ControlFlow, Range};
use core::sync::atomic::{AtomicU64, Ordering};

use percore::Pinned;
use vm::{FrameNum, OutOfMemory};

use super::FRAME;
use super::frames;
use crate::arch::phys_to_virt;

const PRESENT: u64 = 1 << 63;
const DIGIT: u32 = 9;
const SLOTS: usize = 1 << DIGIT;
const HEIGHTS: usize = 4;
/// One past the last page of a file.
pub const END: u64 = 1 << (DIGIT * HEIGHTS as u32);

/// The pages of one file: see the module.
pub struct PageTree {
    roots: [AtomicU64; HEIGHTS],
}

type Node = [AtomicU64; SLOTS];
/// Takes a page's number and its word.
type Visit<'v, B> = &'v mut dyn FnMut(u64, &AtomicU64) -> ControlFlow<B>;

impl PageTree {
    /// Returns a tree without pages.
    pub const fn new() -> Self {
        Self { roots: [const { AtomicU64::new(0) }; HEIGHTS] }
    }

    /// Returns the frame of `page`, which the caller may use as long as it is pinned.
    #[inline]
    pub fn get(&self, _pin: &Pinned, page: u64) -> Option<FrameNum> {
        let top = height(page);
        let mut word = self.roots.get(top)?;
        for level in (0..=top).rev() {
            word = below(word)?.get(place(digit(page, level)))?;
        }
        frame(word.load(Ordering::Acquire))
    }

    /// Inserts `new` for `page`, unless the page has a frame. Returns the frame that the page has now.
    ///
    /// # Errors
    /// Fails without memory for a node, or if no file has such a page.
    pub fn put(&self, pin: &Pinned, page: u64, new: FrameNum) -> Result<FrameNum, OutOfMemory> {
        let top = height(page);
        let mut word = self.roots.get(top).ok_or(OutOfMemory)?;
        for level in (0..=top).rev() {
            word = below_or_new(pin, word)?.get(place(digit(page, level))).ok_or(OutOfMemory)?;
        }
        Ok(set(word, new).err().unwrap_or(new))
    }

    /// Removes the pages of `range`. `visit` gets each with the reference that the tree held.
    pub fn take(&self, range: Range<u64>, mut visit: impl FnMut(FrameNum)) {
        let _all = self.for_each(range, &mut |_, word| {
            if word.load(Ordering::Relaxed) != 0 {
                // AcqRel: the core that removes a page sees what was put in there, and the other way round.
                frame(word.swap(0, Ordering::AcqRel)).into_iter().for_each(&mut visit);
            }
            ControlFlow::<()>::Continue(())
        });
    }

    /// Removes `page` if `frame` is still its frame, and returns whether it did. The caller gets the
    /// reference that the tree held.
    pub fn take_one(&self, page: u64, frame: FrameNum) -> bool {
        let (seen, mut is_taken) = (PRESENT | frame.get(), false);
        let _all = self.for_each(page..page + 1, &mut |_, word| {
            // AcqRel: as in `take`.
            is_taken = word.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            ControlFlow::<()>::Continue(())
        });
        is_taken
    }

    /// Returns the first page of `range` that has a frame.
    pub fn first(&self, range: Range<u64>) -> Option<u64> {
        let found = self.for_each(range, &mut |page, word| match word.load(Ordering::Relaxed) {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(page),
        });
        found.break_value()
    }

    /// Returns the end of the first `words` words of `range` that a walk reads, at most the end of `range`.
    pub fn extent(&self, range: Range<u64>, words: u64) -> u64 {
        let (end, mut left) = (range.end, words);
        let found = self.for_each(range, &mut |page, _| {
            left -= 1;
            if left == 0 { ControlFlow::Break(page + 1) } else { ControlFlow::Continue(()) }
        });
        found.break_value().unwrap_or(end)
    }

    /// Returns the number of pages that have a frame.
    pub fn count(&self) -> u64 {
        let mut count = 0;
        let _all = self.for_each(0..END, &mut |_, word| {
            count += u64::from(word.load(Ordering::Relaxed) != 0);
            ControlFlow::<()>::Continue(())
        });
        count
    }

    fn for_each<B>(&self, range: Range<u64>, visit: Visit<'_, B>) -> ControlFlow<B> {
        self.roots.iter().enumerate().try_for_each(|(level, root)| walk(root, level, 0, &range, visit))
    }
}

impl PageTree {
    /// Returns whether the tree has at most one node.
    pub fn is_small(&self) -> bool {
        self.roots.iter().skip(1).all(|root| root.load(Ordering::Relaxed) == 0)
    }

    /// Removes pages, as [`take`](Self::take) does, and frees their nodes, at most `most` nodes that have
    /// pages. Returns whether that was all.
    pub fn dismantle(&mut self, pin: &Pinned, most: usize, mut visit: impl FnMut(FrameNum)) -> bool {
        let (mut left, mut roots) = (most, self.roots.iter().enumerate());
        roots.all(|(level, root)| free(pin, root, level, &mut left, &mut visit))
    }
}

impl Drop for PageTree {
    /// Frees the nodes. The pages were removed before, and no core reads the tree any more.
    fn drop(&mut self) {
        self.dismantle(&percore::pin(), usize::MAX, |_| {});
    }
}

/// Returns the level of the root above `page`. There is such a root if the page is below [`END`].
fn height(page: u64) -> usize {
    (page.max(1).ilog2() / DIGIT) as usize
}

fn digit(page: u64, level: usize) -> usize {
    (page >> (DIGIT * level as u32)) as usize % SLOTS
}

/// Returns the index of a digit's word: its two lower digits of three bits change places.
fn place(digit: usize) -> usize {
    digit & !0o77 | digit >> 3 & 7 | (digit & 7) << 3
}

fn frame(word: u64) -> Option<FrameNum> {
    (word != 0).then(|| FrameNum::new(word & !PRESENT))
}

/// Sets a word that is 0, or returns the frame that it has.
fn set(word: &AtomicU64, new: FrameNum) -> Result<(), FrameNum> {
    // Release and Acquire: see the module.
    let set = word.compare_exchange(0, PRESENT | new.get(), Ordering::Release, Ordering::Acquire);
    set.map(drop).map_err(|there| FrameNum::new(there & !PRESENT))
}

/// Returns the node that a root or a node's word leads to.
fn below(word: &AtomicU64) -> Option<&Node> {
    let at = phys_to_virt::<Node>(frame(word.load(Ordering::Acquire))?.get() * FRAME);
    // SAFETY: callers pass words above the leaves' own, which lead to nodes that live as long as the tree of
    // the word.
    Some(unsafe { &*at })
}

fn below_or_new<'t>(pin: &Pinned, word: &'t AtomicU64) -> Result<&'t Node, OutOfMemory> {
    if word.load(Ordering::Relaxed) == 0 {
        let new = frames::alloc_node(pin).ok_or(OutOfMemory)?;
        if set(word, FrameNum::new(new)).is_err() {
            frames::free_raw(pin, new);
        }
    }
    below(word).ok_or(OutOfMemory)
}

/// Visits the words of the pages of `range` that lie below a node of `level`, whose first page is `first`.
fn walk<B>(
    word: &AtomicU64,
    level: usize,
    first: u64,
    range: &Range<u64>,
    visit: Visit<'_, B>,
) -> ControlFlow<B> {
    let Some(node) = below(word) else { return ControlFlow::Continue(()) };
    let span = 1 << (DIGIT * level as u32);
    let from = range.start.saturating_sub(first) / span;
    let to = range.end.saturating_sub(first).div_ceil(span);
    (from..to.min(SLOTS as u64)).try_for_each(|index| {
        let Some(word) = node.get(place(index as usize)) else { return ControlFlow::Continue(()) };
        let page = first + index * span;
        if level == 0 { visit(page, word) } else { walk(word, level - 1, page, range, visit) }
    })
}

/// Frees the node that `word` leads to after the nodes below it, until `left` is 0. Returns whether it was
/// freed. Relaxed: no core reads the tree any more.
fn free(
    pin: &Pinned,
    word: &AtomicU64,
    level: usize,
    left: &mut usize,
    visit: &mut dyn FnMut(FrameNum),
) -> bool {
    let Some(node) = below(word) else { return true };
    if level > 0 {
        if !node.iter().all(|word| free(pin, word, level - 1, left, visit)) {
            return false;
        }
    } else if *left == 0 {
        return false;
    } else {
        *left -= 1;
        node.iter().filter_map(|word| frame(word.load(Ordering::Relaxed))).for_each(visit);
    }
    frames::free_raw(pin, word.swap(0, Ordering::Relaxed) & !PRESENT);
    true
}
