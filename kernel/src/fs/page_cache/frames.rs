//! Frames of a file's pages: how they are made and freed.

use alloc::boxed::Box;
use core::mem::{self, MaybeUninit};

use abi::Errno;
use percore::{Pinned, pin};
use vm::{BackingNum, Copies, FrameNum, PageRange};

use super::{FREED_AT_ONCE, Kind, PAGE, PageCache, pages};
use crate::bytes::prefix;
use crate::bytes::tail;
use crate::counters::{self, Counter};
use crate::fs::budget;
use crate::fs::host::Place;
use crate::mm::fallible;
use crate::mm::page_tree::PageTree;
use crate::mm::remains::{self, Remains};
use crate::mm::space::SpaceHandle;
use crate::mm::{epoch, frame_io, frames, page_refs, read_refs};
use crate::sched;

/// The most nodes of the tree that one piece of freeing it empties.
const NODES: usize = 4;
/// The words of the tree that are looked at between two pauses.
pub(super) const PIECE: u64 = 2048;
/// The most pages that one request to the host reads.
const AHEAD: u64 = 16;

impl PageCache {
    /// Returns the frame of `page`, made if there is none.
    #[inline]
    pub(super) fn get_or_make(&self, pin: &Pinned, page: u64) -> Result<FrameNum, Errno> {
        match self.pages.get(pin, page) {
            Some(frame) => Ok(frame),
            None => self.make(pin, page),
        }
    }

    /// Makes the frame of `page`, and returns it or the one that another core made first.
    #[cold]
    fn make(&self, pin: &Pinned, page: u64) -> Result<FrameNum, Errno> {
        match &self.kind {
            Kind::Host(place) => self.fetch(pin, page, place),
            _ => self.put_new(pin, page, self.new_frame(pin, page)?),
        }
    }

    /// Reads `page` from the host, and the pages after it that are missing, and returns the frame of the
    /// first.
    fn fetch(&self, pin: &Pinned, page: u64, place: &Place) -> Result<FrameNum, Errno> {
        let (end, mut first) = (pages(self.len()), None);
        let wanted = (page..end.min(page + AHEAD)).take_while(|&page| self.pages.get(pin, page).is_none());
        let most = wanted.count().max(1) as u64;
        let read = place.read_pages(page, most, |page, bytes| {
            // The host's file may be longer by now.
            let bytes = prefix(bytes, self.len().saturating_sub(page * PAGE as u64));
            let frame = self.put_new(pin, page, self.frame_with(pin, bytes)?)?;
            first.get_or_insert(frame);
            Ok(())
        });
        match (first, read) {
            // The further pages were not asked for, so that one of them could not be made is no error.
            (Some(frame), _) => Ok(frame),
            (None, Err(error)) => Err(error),
            // The file is shorter by now.
            (None, Ok(())) => self.put_new(pin, page, self.frame_with(pin, &[])?),
        }
    }

    /// Puts a new frame into the tree, and returns it or the one that another core put there first.
    fn put_new(&self, pin: &Pinned, page: u64, new: FrameNum) -> Result<FrameNum, Errno> {
        let put = self.pages.put(pin, page, new).map_err(|_| Errno::ENOMEM);
        if put != Ok(new) {
            // No other core has seen it, so it needs no epochs.
            page_refs::free_of_file(pin, new);
            self.kind.uncharge(pin);
        }
        put
    }

    fn new_frame(&self, pin: &Pinned, page: u64) -> Result<FrameNum, Errno> {
        match &self.kind {
            Kind::Image(image) => self.frame_with(pin, prefix(tail(image, page * PAGE as u64), PAGE as u64)),
            Kind::Over(over) if over.covers(page) => {
                let from = over.under.get_or_make(pin, page)?;
                self.new_frame_by(pin, || frames::alloc_copy(pin, from))
            }
            _ => self.frame_with(pin, &[]),
        }
    }

    /// Makes a frame that begins with `bytes`. Zeroes follow.
    fn frame_with(&self, pin: &Pinned, bytes: &[u8]) -> Result<FrameNum, Errno> {
        self.new_frame_by(pin, || {
            let frame = frames::alloc_zeroed(pin)?;
            if !bytes.is_empty() {
                frame_io::write(frame, 0, bytes);
            }
            Some(frame)
        })
    }

    fn new_frame_by(&self, pin: &Pinned, make: impl FnOnce() -> Option<FrameNum>) -> Result<FrameNum, Errno> {
        if self.kind.is_clean() && frames::is_low() {
            // A fault reclaims memory and tries again. The reserve is for allocations that cannot.
            return Err(Errno::ENOMEM);
        }
        self.kind.charge(pin)?;
        let Some(frame) = make() else {
            self.kind.uncharge(pin);
            return Err(Errno::ENOMEM);
        };
        match page_refs::share_of_file(pin, frame) {
            Ok(()) => Ok(frame),
            Err(error) => {
                frames::free(pin, frame);
                self.kind.uncharge(pin);
                Err(error)
            }
        }
    }

    /// Removes the pages from `first` up to `end` from the tree, and returns how many.
    pub(super) fn drop_pages(&self, first: u64, end: u64) -> u64 {
        let (pin, mut dropped) = (pin(), 0);
        self.pages.take(first..end, |frame| {
            self.drop_frame(&pin, frame);
            dropped += 1;
        });
        dropped
    }

    /// Drops the file's reference to the frame of a page that is out of its tree.
    fn drop_frame(&self, pin: &Pinned, frame: FrameNum) {
        page_refs::leave(pin, frame);
        self.kind.uncharge(pin);
    }

    /// Does the same as [`drop_pages`](Self::drop_pages), for pages that can be made again. With
    /// `read_refs=lodic-paper` those stay that are being read.
    pub(super) fn drop_unread(&self, first: u64, end: u64) -> u64 {
        if !read_refs::is_asked_first() {
            return self.drop_pages(first, end);
        }
        let (mut dropped, mut rest) = (0, first..end);
        while let Some(page) = self.pages.first(rest) {
            dropped += self.drop_if_unread(page);
            rest = page + 1..end;
        }
        dropped
    }

    fn drop_if_unread(&self, page: u64) -> u64 {
        let pin = pin();
        let Some(frame) = self.pages.get(&pin, page) else { return 0 };
        let question = read_refs::ask_now(&pin, frame, |looked_at| self.is_counted(page, frame, looked_at));
        let is_dropped = question.is_some_and(|_until_it_is_gone| self.pages.take_one(page, frame));
        if is_dropped {
            self.drop_frame(&pin, frame);
        }
        is_dropped.into()
    }

    /// Returns whether a process counts a read of `page` in its page table. A mapping that is made meanwhile
    /// has no count when the question begins, and the count of one that goes has moved to the word.
    fn is_counted(&self, page: u64, frame: FrameNum, looked_at: &mut usize) -> bool {
        let counted = self.mappings.find(|mapping| {
            let shown = mapping.shown_at(page, page + 1);
            let space = mapping.space().filter(|_| !shown.is_empty())?;
            *looked_at += 1;
            space.counts_read(shown.start(), frame).then_some(())
        });
        counted.is_some()
    }

    /// Does the same as [`drop_pages`](Self::drop_pages) in pieces, between which other tasks run. The caller
    /// holds no lock.
    pub(super) fn drop_in_pieces(&self, first: u64, end: u64) {
        self.in_pieces(first, end, PIECE, |from, to| self.drop_pages(from, to));
    }

    /// Does the same as [`drop_unread`](Self::drop_unread), and then invalidates the translations of all
    /// these pages, in pieces. The caller holds no lock.
    pub(super) fn remove_unread(&self, first: u64, end: u64) {
        // Each question visits all mappings.
        let words = if read_refs::is_asked_first() { 1 } else { PIECE };
        self.in_pieces(first, end, words, |from, to| self.drop_unread(from, to));
        self.invalidate_in_pieces(first, end, Copies::Keep);
    }

    fn in_pieces(&self, first: u64, end: u64, words: u64, drop: impl Fn(u64, u64) -> u64) {
        let mut from = first;
        while from < end {
            let to = self.pages.extent(from..end, words);
            drop(from, to);
            from = to;
            sched::pause();
        }
    }

    /// Removes the pages from `first` up to `end` from the tree, and then invalidates their translations, in
    /// pieces. The caller has begun a [`removal`](Self::removal), unless the pages can be made again, and
    /// holds no lock.
    pub(super) fn remove(&self, first: u64, end: u64, copies: Copies) {
        self.drop_in_pieces(first, end);
        self.invalidate_in_pieces(first, end, copies);
    }

    fn invalidate_in_pieces(&self, first: u64, end: u64, copies: Copies) {
        self.mappings.for_each(|mapping| {
            let shown = mapping.shown_at(first, end);
            if let Some(space) = mapping.space().filter(|_| !shown.is_empty()) {
                invalidate(&space, shown, mapping.number(), copies);
            }
            sched::pause();
        });
    }
}

impl Kind {
    /// Returns whether pages can be made again at any time.
    pub(super) fn is_clean(&self) -> bool {
        matches!(self, Kind::Image(_) | Kind::Host(_))
    }

    /// Returns whether pages count against the budget of all files.
    pub(super) fn is_in_budget(&self) -> bool {
        matches!(self, Kind::File | Kind::Over(_))
    }

    fn charge(&self, pin: &Pinned) -> Result<(), Errno> {
        match self {
            Kind::File | Kind::Over(_) => budget::take(pin)?,
            Kind::Image(_) | Kind::Host(_) => counters::add(pin, Counter::CleanPages, 1),
            Kind::Anonymous => {}
        }
        counters::add(pin, Counter::FilePages, 1);
        Ok(())
    }

    fn uncharge(&self, pin: &Pinned) {
        match self {
            Kind::File | Kind::Over(_) => budget::give(pin),
            Kind::Image(_) | Kind::Host(_) => counters::add(pin, Counter::CleanPages, -1),
            Kind::Anonymous => {}
        }
        counters::add(pin, Counter::FilePages, -1);
    }
}

/// Invalidates the translations of `shown`, in pieces. Also a killed task finishes this, because a truncation
/// that has begun must end.
fn invalidate(space: &SpaceHandle, shown: PageRange, backing: BackingNum, copies: Copies) {
    let mut rest = shown;
    while !rest.is_empty() {
        let piece = space.piece(&pin(), rest);
        space.zap(&pin(), piece, backing, copies);
        rest = PageRange::between(piece.end(), rest.end());
        sched::pause();
    }
}

impl Drop for PageCache {
    /// Frees many pages in pieces, later. The task that closes a file last may run on a core that is
    /// leaving the epochs, so this brings it online.
    fn drop(&mut self) {
        let is_in_budget = self.kind.is_in_budget();
        let pages = mem::replace(&mut self.pages, PageTree::new());
        let kind = mem::replace(&mut self.kind, Kind::Anonymous);
        let is_small = pages.is_small() && *self.len.get_mut() <= FREED_AT_ONCE;
        let place = if is_small { None } else { fallible::boxed(MaybeUninit::uninit()).ok() };
        let mut dead = DeadPages { pages, kind, next: None };
        match place {
            Some(place) => remains::leave(place, dead),
            None => epoch::domain().while_online(&pin(), || while dead.free_piece(&pin()) {}),
        }
        // Last: a task that needs room looks for files without a name first, and then for pages to free.
        if is_in_budget {
            self.count_end();
        }
    }
}

/// The pages of a file that is closed and has no name.
struct DeadPages {
    pages: PageTree,
    kind: Kind,
    next: Option<Box<dyn Remains>>,
}

impl Remains for DeadPages {
    fn free_piece(&mut self, pin: &Pinned) -> bool {
        let kind = &self.kind;
        let all = self.pages.dismantle(pin, NODES, |frame| {
            page_refs::leave(pin, frame);
            kind.uncharge(pin);
        });
        !all
    }

    fn next(&mut self) -> &mut Option<Box<dyn Remains>> {
        &mut self.next
    }
}
