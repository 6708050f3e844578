//! How a file's pages get their frames, and give them up.

use abi::Errno;
use percore::{Pinned, pin};
use vm::FrameNum;

use super::{Kind, PAGE, PageCache};
use crate::counters::{self, Counter};
use crate::fs::budget;
use crate::fs::bytes::prefix;
use crate::fs::image::tail;
use crate::mm::{contents, descriptors, epoch, frames, page_tree};

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

impl Drop for PageCache {
    fn drop(&mut self) {
        // The last one to close a file may be a core that leaves the epochs.
        epoch::domain().while_online(&pin(), || self.drop_pages(0, page_tree::END));
    }
}
