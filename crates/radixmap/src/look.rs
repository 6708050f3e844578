//! A look along many keys that locks nothing: what each slot said when the walk came by.
//!
//! 1. A main word is read in one piece. A second word belongs to the main word beside it as long as that has not
//!    changed: the main word is read again after the second, and both anew if somebody has come between. So what
//!    is shown was in the map at one moment, with one exception: if the same main word came back meanwhile, the
//!    second word may be one that the slot had in between. Both were there after the look began.
//! 2. A locked slot says what its holder wrote last. If that has a second word, the holder is waited for.
//! 3. A node that was folded under the walk is left, and its parent's slot is read again from the key that was
//!    next.

use core::array;
use core::ops::{ControlFlow, Range};

use sync::atomic::{AtomicU64, Ordering};

use crate::lock::Here;
use crate::node::{GROUP, NodeRef, Step};
use crate::slot::{Slot, Word};

/// Why a walk below a node ended early.
pub(crate) enum Stop<B> {
    /// The node was folded when this key was next.
    Gone(u64),
    /// The visitor broke off.
    Broke(B),
}

/// Shows each used slot below `node` that `keys` touches to `visit`, from the left: its keys in the range,
/// its main word and its second word. Neighbours in a leaf whose second words are the same, and main words in
/// the bits of `mask`, come as one that says what the first says.
pub(crate) fn look<'p, B>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
    mask: u64,
    visit: &mut impl FnMut(Range<u64>, u64, u64) -> ControlFlow<B>,
) -> ControlFlow<Stop<B>> {
    let mut left = keys;
    while let Some(part) = node.first_used_part(left.clone()) {
        left.start = match node.step(here, part.slot) {
            Step::Child(child) => match look_into(here, child, part.keys.clone(), mask, visit) {
                ControlFlow::Break(Stop::Gone(key)) => key,
                ControlFlow::Break(broke) => return ControlFlow::Break(broke),
                ControlFlow::Continue(()) => part.keys.end,
            },
            Step::Slot(word) if word.is_gone() => return ControlFlow::Break(Stop::Gone(part.keys.start)),
            Step::Slot(word) if !word.is_used() => part.keys.end,
            Step::Slot(word) => match Seconds::of(node).settled(part.index(), part.slot, word) {
                Some(second) => {
                    visit(part.keys.clone(), word.main(), second).map_break(Stop::Broke)?;
                    part.keys.end
                }
                None => part.keys.start,
            },
        };
    }
    ControlFlow::Continue(())
}

fn look_into<'p, B>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
    mask: u64,
    visit: &mut impl FnMut(Range<u64>, u64, u64) -> ControlFlow<B>,
) -> ControlFlow<Stop<B>> {
    if node.level() > 0 { look(here, node, keys, mask, visit) } else { look_at_leaf(node, keys, mask, visit) }
}

/// The same for a leaf, whose slots have no children.
fn look_at_leaf<B>(
    leaf: NodeRef<'_>,
    keys: Range<u64>,
    mask: u64,
    visit: &mut impl FnMut(Range<u64>, u64, u64) -> ControlFlow<B>,
) -> ControlFlow<Stop<B>> {
    let slots = leaf.slots();
    let left = leaf.indices(&keys);
    let base = keys.start - left.start as u64;
    let key = |index: usize| base + index as u64;
    let seconds = Seconds::of(leaf);
    let mut at = left.start;
    while let Some(start) = leaf.first_used(at..left.end) {
        let word = slots[start].seen();
        if word.is_gone() {
            return ControlFlow::Break(Stop::Gone(key(start)));
        }
        at = if word.is_used() { start } else { start + 1 };
        if word.is_used()
            && let Some(second) = seconds.settled(start, &slots[start], word)
        {
            let bits = word.telling(mask);
            at = Like { slots, seconds: &seconds, word, bits, second }.end(start + 1..left.end);
            visit(key(start)..key(at), word.main(), second).map_break(Stop::Broke)?;
        }
    }
    ControlFlow::Continue(())
}

/// What the first of a run of slots in a leaf said.
struct Like<'a, 'p> {
    slots: &'p [Slot],
    seconds: &'a Seconds<'p>,
    /// It is not locked if it is wide.
    word: Word,
    /// The bits that tell others apart from it.
    bits: u64,
    second: u64,
}

impl Like<'_, '_> {
    /// The first of `slots` that is not like it, or their end: whole groups are looked at together.
    #[inline(always)]
    fn end(&self, slots: Range<usize>) -> usize {
        let mut at = slots.start;
        while at < slots.end && self.are_like(at, array::from_ref(&self.slots[at])) {
            at += 1;
            while let Some(group) = self.slots[at..slots.end].first_chunk::<GROUP>()
                && self.are_like(at, group)
            {
                at += GROUP;
            }
        }
        at
    }

    /// Whether `slots`, the first of which is slot `at`, are like it. A wide one that somebody holds is not.
    #[inline(always)]
    fn are_like<const N: usize>(&self, at: usize, slots: &[Slot; N]) -> bool {
        let words = slots.each_ref().map(Slot::held);
        let differing = |bits, word: &Word| bits | word.differing(self.word, self.bits);
        words.iter().fold(0, differing) == 0 && (!self.word.is_wide() || self.have_second(at, slots, &words))
    }

    /// Whether `slots`, which said `words` and were not locked, have its second word beside them.
    #[inline(always)]
    fn have_second<const N: usize>(&self, at: usize, slots: &[Slot; N], words: &[Word; N]) -> bool {
        if self.seconds.node.still_has_one(self.second) {
            return true;
        }
        let seconds = (at..).zip(words).all(|(index, &word)| self.seconds.get(index, word) == self.second);
        seconds && slots.iter().zip(words).all(|(slot, &word)| slot.still_says(word))
    }
}

/// The second words of a node.
struct Seconds<'p> {
    node: NodeRef<'p>,
    /// All of them, if each slot has one of its own: then it stays so.
    each: &'p [AtomicU64],
}

impl<'p> Seconds<'p> {
    fn of(node: NodeRef<'p>) -> Self {
        Self { node, each: node.seconds() }
    }

    /// The one that belongs to `word`, which slot `index` said; none if the slot is to be read again.
    #[inline(always)]
    fn settled(&self, index: usize, slot: &Slot, word: Word) -> Option<u64> {
        if !word.is_wide() {
            return Some(0);
        }
        if word.is_locked() {
            percore::relax();
            return None;
        }
        let second = self.get(index, word);
        slot.still_says(word).then_some(second)
    }

    /// Relaxed: `still_says` tells whether it was changed.
    #[inline(always)]
    fn get(&self, index: usize, word: Word) -> u64 {
        match self.each.get(index) {
            Some(second) => second.load(Ordering::Relaxed),
            None => self.node.second(index, word),
        }
    }
}
