//! How a file's pages get their frames, and give them up.

use abi::Errno;
use percore::{Pinned, pin};
use vm::{BackingNum, Copies, FrameNum, PageRange};

use super::{Kind, PAGE, PageCache};
use crate::counters::{self, Counter};
use crate::fs::budget;
use crate::fs::bytes::prefix;
use crate::fs::image::tail;
use crate::mm::space::SpaceHandle;
use crate::mm::{contents, descriptors, epoch, frames, page_tree};
use crate::sched;

/// Words of the tree that are looked at between two pauses.
const PIECE: u64 = 2048;

impl PageCache {
    /// The frame of `page`, made if there is none.
    #[inline]
    pub(super) fn get_or_make(&self, pin: &Pinned, page: u64) -> Result<FrameNum, Errno> {
        match self.pages.get(pin, page) {
            Some(frame) => Ok(frame),
            None => self.make(pin, page),
        }
    }

    /// Gives `page` a frame; another core may be faster.
    #[cold]
    fn make(&self, pin: &Pinned, page: u64) -> Result<FrameNum, Errno> {
        let new = self.new_frame(pin, page)?;
        let put = self.pages.put(pin, page, new).map_err(|_| Errno::ENOMEM);
        if put != Ok(new) {
            // Nobody has seen it: it needs no epochs.
            descriptors::free_of_file(pin, new);
            self.uncharge(pin);
        }
        put
    }

    fn new_frame(&self, pin: &Pinned, page: u64) -> Result<FrameNum, Errno> {
        if matches!(self.kind, Kind::Image(_)) && frames::is_low() {
            // The fault will look for memory; others, who would not, find the reserve.
            return Err(Errno::ENOMEM);
        }
        self.charge(pin)?;
        let Some(frame) = frames::alloc_zeroed(pin) else {
            self.uncharge(pin);
            return Err(Errno::ENOMEM);
        };
        if let Kind::Image(image) = self.kind {
            let bytes = tail(image, page * PAGE as u64);
            contents::write(frame, 0, prefix(bytes, PAGE as u64));
        }
        match descriptors::share_of_file(pin, frame) {
            Ok(()) => Ok(frame),
            Err(error) => {
                frames::free(pin, frame);
                self.uncharge(pin);
                Err(error)
            }
        }
    }

    /// Takes the pages from `first` up to `end` out of the tree, and says how many.
    pub(super) fn drop_pages(&self, first: u64, end: u64) -> u64 {
        let (pin, mut dropped) = (pin(), 0);
        self.pages.take(first..end, |frame| {
            descriptors::leave(&pin, frame);
            self.uncharge(&pin);
            dropped += 1;
        });
        dropped
    }

    /// Takes the pages from `first` up to `end` out of the tree, and then their translations back, in pieces. The caller is
    /// a [`removal`](Self::removal), and holds no lock.
    pub(super) fn remove(&self, first: u64, end: u64, copies: Copies) {
        let mut from = first;
        while from < end {
            let to = self.pages.extent(from..end, PIECE);
            self.drop_pages(from, to);
            from = to;
            sched::pause();
        }
        self.mappings.for_each(|mapping| {
            let shown = mapping.shown_at(first, end);
            if let Some(space) = mapping.space().filter(|_| !shown.is_empty()) {
                take_back(&space, shown, mapping.number(), copies);
            }
            sched::pause();
        });
    }

    fn charge(&self, pin: &Pinned) -> Result<(), Errno> {
        match self.kind {
            Kind::File => budget::take(pin)?,
            Kind::Image(_) => counters::add(pin, Counter::CleanPages, 1),
            Kind::Anonymous => {}
        }
        counters::add(pin, Counter::FilePages, 1);
        Ok(())
    }

    fn uncharge(&self, pin: &Pinned) {
        match self.kind {
            Kind::File => budget::give(pin),
            Kind::Image(_) => counters::add(pin, Counter::CleanPages, -1),
            Kind::Anonymous => {}
        }
        counters::add(pin, Counter::FilePages, -1);
    }
}

/// Takes the translations of `shown` back, also for a task that is killed: what a cut has begun it ends.
fn take_back(space: &SpaceHandle, shown: PageRange, backing: BackingNum, copies: Copies) {
    let mut rest = shown;
    while !rest.is_empty() {
        let piece = space.piece(&pin(), rest);
        space.zap(&pin(), piece, backing, copies);
        rest = PageRange::between(piece.end(), rest.end());
        sched::pause();
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        // The last one to close a file may be a core that leaves the epochs.
        epoch::domain().while_online(&pin(), || self.drop_pages(0, page_tree::END));
    }
}
