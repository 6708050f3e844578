//! The contents of a table or a TLB: translations of pages, and huge ones. Each holds its frames, unless it
//! is asleep: a table that no core walks may have stale entries.

use std::collections::HashMap;

use vm::{Access, FrameNum, HUGE_PAGES, PageNum, PageRange, Prot};

use crate::FrameStore;

/// The translation of a page in a table or TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The frame of the page.
    pub frame: FrameNum,
    /// The rights of the translation.
    pub prot: Prot,
}

impl Translation {
    /// Decodes the entry `word` of a leaf. Returns none if it is no entry.
    pub(crate) fn decode(word: u64) -> Option<Self> {
        let frame = FrameNum::new(word >> 12 & ((1 << FrameNum::BITS) - 1));
        (word & 1 != 0).then(|| Self { frame, prot: Prot::from_bits(word >> 1) })
    }
}

/// An entry: of one page, or of a huge page, whose frames follow the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) pages: PageRange,
    pub(crate) first: Translation,
}

/// Entries of a TLB of each size: direct-mapped, so that evictions happen.
const TLB: u64 = 32;

#[derive(Default)]
pub(crate) struct Cache {
    small: HashMap<u64, Found>,
    /// By the number of the huge page.
    huge: HashMap<u64, Found>,
    asleep: bool,
}

impl Found {
    pub(crate) fn at(self, page: PageNum) -> Translation {
        let offset = page.get() - self.pages.start().get();
        Translation { frame: FrameNum::new(self.first.frame.get() + offset), ..self.first }
    }

    fn is_huge(self) -> bool {
        self.pages.pages() > 1
    }

    fn key(self) -> u64 {
        self.pages.start().get() / self.pages.pages()
    }

    fn hold(self, frames: &FrameStore) {
        self.pages.iter().for_each(|page| frames.hold(self.at(page).frame));
    }

    fn let_go(self, frames: &FrameStore) {
        self.pages.iter().for_each(|page| frames.let_go(self.at(page).frame));
    }
}

impl Cache {
    /// Returns the entry that allows `access` to `page`.
    pub(crate) fn get(&self, page: PageNum, access: Access) -> Option<Found> {
        let found = self.small.get(&page.get()).or_else(|| self.huge.get(&(page.get() / HUGE_PAGES)));
        found.copied().filter(|found| found.first.prot.allows(access))
    }

    /// Adds an entry in place of those of the same pages, as a table does, which has either size at a place.
    pub(crate) fn put(&mut self, frames: &FrameStore, new: Found) {
        self.clear(frames, new.pages);
        if !self.asleep {
            new.hold(frames);
        }
        (if new.is_huge() { &mut self.huge } else { &mut self.small }).insert(new.key(), new);
    }

    /// Returns whether `new` is a huge page's, and one of its pages has an entry of its own.
    pub(crate) fn would_lose_small(&self, new: Found) -> bool {
        new.is_huge() && new.pages.iter().any(|page| self.small.contains_key(&page.get()))
    }

    /// Makes room in a TLB.
    pub(crate) fn evict_for(&mut self, frames: &FrameStore, new: Found) {
        let map = if new.is_huge() { &mut self.huge } else { &mut self.small };
        retain(map, Some(frames), |old| old.key() % TLB != new.key() % TLB);
    }

    /// Removes the entries that translate some of `pages`.
    pub(crate) fn clear(&mut self, frames: &FrameStore, pages: PageRange) {
        let held = self.held(frames);
        retain(&mut self.huge, held, |old| old.pages.common(pages).is_empty());
        match pages.pages() {
            1 => {
                let old = self.small.remove(&pages.start().get());
                old.zip(held).into_iter().for_each(|(old, frames)| old.let_go(frames));
            }
            _ => retain(&mut self.small, held, |old| !pages.contains(old.pages.start())),
        }
    }

    /// Removes all entries.
    pub(crate) fn empty(&mut self, frames: &FrameStore) {
        let held = self.held(frames);
        retain(&mut self.huge, held, |_| false);
        retain(&mut self.small, held, |_| false);
    }

    /// Records that no core walks it any more.
    pub(crate) fn sleep(&mut self, frames: &FrameStore) {
        self.entries().for_each(|old| old.let_go(frames));
        self.asleep = true;
    }

    /// Records that a core walks it again.
    pub(crate) fn wake(&mut self, frames: &FrameStore) {
        self.entries().for_each(|old| old.hold(frames));
        self.asleep = false;
    }

    /// Returns the translation that a walk finds for each page.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PageNum, Translation)> {
        let all = self.entries().filter(|_| !self.asleep);
        all.flat_map(|found| found.pages.iter().map(|page| (page, found.at(page))))
    }

    fn entries(&self) -> impl Iterator<Item = &Found> {
        self.small.values().chain(self.huge.values())
    }

    /// Returns the store in which its entries hold their frames, unless it is asleep.
    fn held<'f>(&self, frames: &'f FrameStore) -> Option<&'f FrameStore> {
        (!self.asleep).then_some(frames)
    }
}

fn retain(map: &mut HashMap<u64, Found>, frames: Option<&FrameStore>, stays: impl Fn(&Found) -> bool) {
    map.retain(|_, old| {
        let stays = stays(old);
        if !stays && let Some(frames) = frames {
            old.let_go(frames);
        }
        stays
    });
}
