//! A region of the address space, as the tree has it: its first page is its key.
//!
//! ```text
//!             open                      close                    bury                remove
//!   gone  ────────────▶  open  ──────────────────▶  closed  ─────────────▶  gone  ─ ─ ─ ─ ─ ▶  not in the tree
//!   end = start         mapping, end      (no fault may use it)   end = start    if there is memory
//! ```
//!
//! 1. Only the holder of the space's lock changes a region, or the tree. Faults read both whenever they like.
//! 2. Open regions with different mappings never overlap. Two of one mapping do for a moment, while one is
//!    split or two are joined: a page has one mapping at any time.
//! 3. A region that is in the tree and gone maps nothing. Taking it out may need memory. If there is none it
//!    stays, and goes when something is removed there, or is opened again.
//!
//! Orderings: [`Vma::mapping_at`] reads without the space's lock. Its Acquires are partners of two Releases:
//! the end is stored before the mapping that opens a region, and a mapping before the end that makes a region
//! grow. All else is ordered by the space's lock, or by the slot's, see `fault.rs`.

use sync::atomic::{AtomicU64, Ordering};
use vm::design::Page;
use vm::{Mapping, PageNum, PageRange, Region};

use super::locking::VmaLock;

/// No fault may use the region.
const CLOSED: u64 = 1 << 63;

#[derive(Debug)]
pub(super) struct Vma {
    end: AtomicU64,
    /// The mapping, and CLOSED.
    word: AtomicU64,
    pub(super) lock: VmaLock,
}

impl Vma {
    /// Returns a region at `start` that is gone.
    pub(super) fn gone(start: PageNum) -> Self {
        Self { end: AtomicU64::new(start.get()), word: AtomicU64::new(CLOSED), lock: VmaLock::default() }
    }

    #[inline]
    pub(super) fn open(&self, end: PageNum, mapping: Mapping) {
        self.end.store(end.get(), Ordering::Release);
        self.word.store(mapping.bits(), Ordering::Release);
    }

    #[inline]
    pub(super) fn set_end(&self, end: PageNum) {
        self.end.store(end.get(), Ordering::Release);
    }

    /// Relaxed: a fault that finds it closed uses nothing that was stored before.
    pub(super) fn close(&self) {
        self.word.store(self.word.load(Ordering::Relaxed) | CLOSED, Ordering::Relaxed);
    }

    /// Returns whether the region is gone. Relaxed: a fault that reads true looks for another region, and
    /// reads the mapping of that.
    #[inline]
    pub(super) fn is_gone(&self, start: PageNum) -> bool {
        self.end.load(Ordering::Relaxed) == start.get()
    }

    /// Returns the region, which begins at `start`, or none if it is gone. Relaxed: the caller holds the
    /// space's lock, or is alone.
    #[inline]
    pub(super) fn region(&self, start: PageNum) -> Option<Region> {
        let pages = PageRange::between(start, PageNum::new(self.end.load(Ordering::Relaxed)));
        let mapping = Mapping::from_bits(self.word.load(Ordering::Relaxed) & !CLOSED);
        (!pages.is_empty()).then(|| Region::new(pages, Page::new(mapping)))
    }

    /// Returns the mapping of page `at`, if the region, which begins there or before, is open and has the
    /// page. The mapping may change at once, unless the page's slot is locked.
    ///
    /// The mapping is read before the end and after it. If it is the same, the region had the page with this
    /// mapping when the end was read. If it was another one in between, it has become the same again: while
    /// the slot is locked, this too is the page's mapping, because an operation that changes it waits for the
    /// slot (`fault.rs`).
    #[inline]
    pub(super) fn mapping_at(&self, at: PageNum) -> Option<Mapping> {
        // Acquire: partner of the Release in `open`, and the loads are done in this order.
        let word = self.word.load(Ordering::Acquire);
        // Acquire: partner of the Release in `set_end` and in `open`.
        let end = self.end.load(Ordering::Acquire);
        let same = self.word.load(Ordering::Relaxed) == word;
        (same && word & CLOSED == 0 && at.get() < end).then(|| Mapping::from_bits(word))
    }
}
