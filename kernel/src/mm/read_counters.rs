//! Local counters that the kernel makes by itself (`read_refs=lodic`): a page of a file whose shared word is
//! contended gets a counter in each process that reads it, and loses it when it is cold.
//!
//! LODIC's own counters lie in page tables, so a process must have mapped a page and named it. These lie in a
//! [page of counters](CounterPage) of the process, and need no mapping. They work with all page tables.
//!
//! ```text
//!   read ──▶ the process's page of counters has one for the frame ─▶ count there       no other process writes it
//!        └─▶ or else: the word of the frame's descriptor, and the mark of this core
//!                └─▶ the mark is another core's, for the N-th time in this epoch: claim a counter for the next read
//! ```
//!
//! | a page of counters is | by |
//! |---|---|
//! | made | the first read of its process that finds a contended page |
//! | in use | the process: reads count there, and set `used` |
//! | detached | the sweep, if no read has set `used` since the last one; or the end of the process |
//! | free | the domain, once it has no count |
//!
//! 1. *Contended* is measured where it costs nothing more: the mark lies in the line of the word that the
//!    read has just written. If it is another core's, the line has come from there.
//! 2. A counter is claimed by a core that is pinned and found the frame in its file's tree since, as a hold
//!    is taken. It sets the descriptor's flag first. So when the frame is released, the flag says whether any
//!    counter may name it, and the question looks at one set of each page of counters. This is LODIC's
//!    query, by processes. It is exact without a flag that holds updates off, because no hold can be taken
//!    any more.
//! 3. The question frees the counters of its frame. So no counter names a frame that is used anew.
//! 4. A read finds the page of counters while it is pinned, and no epoch ends before it unpins. So a detached
//!    page has all its holds when the domain releases it, which does not free it until none is left.
//! 5. The list of all pages is changed, and looked through, under its lock. So is `owner`, which is there as
//!    long as the page names it. An owner that ends and finds that it has no page any more takes no lock: it
//!    acquires what the sweep released.

use core::mem::{ManuallyDrop, offset_of};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use alloc::boxed::Box;
use alloc::vec::Vec;
use baselines::{ClaimedCount, ClaimedSet};
use percore::{Pinned, pin};
use refcache::{Header, Refcache};
use sync::SpinLock;
use vm::FrameNum;

use super::{FRAME, Scheduler, epoch, fallible, frames, page_refs};
use crate::above::Above;
use crate::counters::{self, Counter};

/// Reads of a page that find another core's mark, in one epoch, before it counts as contended. An epoch lasts
/// a tick or more if none is forced, so fewer cost nothing.
const CONTENDED: u32 = 8;
/// Epochs between two sweeps: a process that does not count in its page between them loses it.
const SWEEP: u64 = 16;

/// Sets of counters in each page: what is left of a frame.
const SETS: usize = FRAME as usize / size_of::<ClaimedSet>() - 1;

/// The counters of one process.
#[repr(C, align(64))]
struct CounterPage {
    header: Header,
    /// Null once it is detached. Relaxed: it changes under the lock of the list.
    owner: AtomicPtr<ReadCounters>,
    /// A read has counted here since the last sweep. Relaxed: a hint.
    used: AtomicBool,
    sets: [ClaimedSet; SETS],
}

const _: () =
    assert!(size_of::<CounterPage>() == abi::reads::COUNTERS && offset_of!(CounterPage, sets) == 64);

// SAFETY: the owner is used under the lock of the list only, and the rest is atomic.
unsafe impl Send for Listed {}

/// A page of counters in the list. It is there until it is freed.
#[derive(PartialEq)]
struct Listed(NonNull<CounterPage>);

static PAGES: SpinLock<Vec<Listed>> = SpinLock::new(Vec::new());
/// The length of the list. Relaxed: a hint for the sweep. A page that counts a frame whose release is due is
/// in the list since before some epochs.
static NUMBER: AtomicUsize = AtomicUsize::new(0);
/// The epoch of the last sweep. Relaxed: only the core that changes it sweeps.
static SWEPT: AtomicU64 = AtomicU64::new(0);

/// The page of counters of a process, if it has one.
pub struct ReadCounters(AtomicPtr<CounterPage>);

/// A read that is counted in a page of counters.
pub(super) struct Counted(NonNull<ClaimedCount>);

impl ReadCounters {
    /// Returns those of a process that has read no contended page.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Counts a read of `frame`, which the pinned caller found in its file's tree, if the process has a
    /// counter for it.
    #[inline]
    pub(super) fn take(&self, _pin: &Pinned, frame: FrameNum) -> Option<Counted> {
        let page = self.page()?;
        let (set, first) = page.place(frame);
        let counter = set.take(first, name(frame))?;
        if !page.used.load(Ordering::Relaxed) {
            page.used.store(true, Ordering::Relaxed);
        }
        Some(Counted(counter.into()))
    }

    /// Claims a counter for the next read of `frame`, which the pinned caller found in its file's tree. There
    /// may be no memory, or the counters of its set are in use for other frames.
    #[cold]
    pub(super) fn claim(&self, pin: &Pinned, frame: FrameNum) {
        let Some(page) = self.page().or_else(|| self.make()) else { return };
        // Relaxed: the epochs order it before the question.
        page_refs::mark(frame).claimed.store(true, Ordering::Relaxed);
        let (set, first) = page.place(frame);
        if set.claim(first, name(frame)) {
            counters::add(pin, Counter::ReadCounters, 1);
        }
    }

    #[inline(always)]
    fn page(&self) -> Option<&CounterPage> {
        // Acquire: pairs with the Release in `make`.
        let page = NonNull::new(self.0.load(Ordering::Acquire))?;
        // SAFETY: the callers are pinned, and a page that they find here is freed some epochs later.
        Some(unsafe { page.as_ref() })
    }

    fn make(&self) -> Option<&CounterPage> {
        // The reserve is for allocations that cannot wait.
        if frames::is_low() {
            return None;
        }
        let mut pages = PAGES.lock();
        if let Some(page) = self.page() {
            return Some(page);
        }
        pages.try_reserve(1).ok()?;
        let page = CounterPage::new(self)?;
        pages.push(Listed(page));
        NUMBER.store(pages.len(), Ordering::Relaxed);
        counters::bump(Counter::ReadCounterPages);
        // Release: the page is seen as it was made.
        self.0.store(page.as_ptr(), Ordering::Release);
        drop(pages);
        self.page()
    }
}

impl Drop for ReadCounters {
    fn drop(&mut self) {
        // Acquire: pairs with the Release in `detach`. The sweep's last access comes before the memory goes.
        if self.0.load(Ordering::Acquire).is_null() {
            return;
        }
        // The last task of a process may go where the core has left the epochs.
        Above::come_online();
        let _pages = PAGES.lock();
        if let Some(page) = self.page() {
            // SAFETY: the list is locked, and a page that has an owner is in it.
            unsafe { CounterPage::detach(page.into(), &pin()) };
        }
    }
}

impl Counted {
    /// Counts the read out.
    ///
    /// # Safety
    /// Called once.
    #[inline]
    pub(super) unsafe fn leave(&self) {
        // SAFETY: the page of counters stays as long as it counts this read.
        unsafe { self.0.as_ref() }.leave();
    }
}

impl CounterPage {
    /// Makes a page of free counters in which `owner` counts.
    fn new(owner: &ReadCounters) -> Option<NonNull<Self>> {
        let block = ManuallyDrop::new(fallible::empty::<Self>(1).ok()?).as_mut_ptr();
        // SAFETY: the block has room for one page. Counters and flags begin as zeroes.
        unsafe {
            block.write_bytes(0, 1);
            (&raw mut (*block).header).write(Header::new(1, None, release));
            (&raw mut (*block).owner).write(AtomicPtr::new(ptr::from_ref(owner).cast_mut()));
            // The sweep before its first read leaves it.
            (&raw mut (*block).used).write(AtomicBool::new(true));
        }
        NonNull::new(block)
    }

    /// Returns the set of a frame, and the place in it that is looked at first.
    #[inline(always)]
    fn place(&self, frame: FrameNum) -> (&ClaimedSet, usize) {
        // The high bits of the hash: neighbours get places far apart, and no division is needed.
        let hash = u64::from((frame.get() as u32).wrapping_mul(0x9e37_79b9));
        let place = ((hash * (SETS * ClaimedSet::WORDS) as u64) >> 32) as usize;
        (&self.sets[place / ClaimedSet::WORDS], place % ClaimedSet::WORDS)
    }

    /// Takes a page from its owner.
    ///
    /// # Safety
    /// It is in the list, which the caller has locked.
    unsafe fn detach(page: NonNull<Self>, pin: &Pinned) {
        // SAFETY: it is freed when it is out of the list. Relaxed: see 4 and 5.
        let owner = unsafe { page.as_ref() }.owner.swap(ptr::null_mut(), Ordering::Relaxed);
        if let Some(owner) = NonNull::new(owner) {
            // SAFETY: an owner that ends takes its page's name for it away before, under the lock, or sees
            // this store, which is the last access. Release: pairs with the Acquire in `drop`.
            unsafe { owner.as_ref() }.0.store(ptr::null_mut(), Ordering::Release);
            drop_reference(pin, page);
        }
    }
}

/// Drops the only reference of a page of counters.
fn drop_reference(pin: &Pinned, page: NonNull<CounterPage>) {
    // SAFETY: the header begins the page, which is released some epochs later.
    unsafe { epoch::domain().adjust(pin, page.cast(), -1) };
}

/// Frees a detached page of counters that counts no read.
///
/// # Safety
/// Called once for each header, by the domain, with the header of a [`CounterPage`].
unsafe fn release(domain: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    let page = header.cast::<CounterPage>();
    let mut pages = PAGES.lock();
    // SAFETY: it is freed below only.
    if unsafe { page.as_ref() }.sets.iter().any(ClaimedSet::is_used) {
        drop(pages);
        // SAFETY: the domain has forgotten the header.
        unsafe { page_refs::come_back(domain, pin, header, release) };
        return;
    }
    if let Some(at) = pages.iter().position(|listed| *listed == Listed(page)) {
        pages.swap_remove(at);
    }
    if pages.is_empty() {
        *pages = Vec::new();
    }
    NUMBER.store(pages.len(), Ordering::Relaxed);
    drop(pages);
    counters::add(pin, Counter::ReadCounterPages, -1);
    // SAFETY: it came from a vector with room for one. No read finds it or is counted there, and it is out of
    // the list.
    drop(unsafe { Box::from_raw(page.as_ptr()) });
}

/// Detaches the pages in which no read was counted for some epochs. A core calls it when an epoch has ended.
pub(super) fn sweep(pin: &Pinned) {
    if NUMBER.load(Ordering::Relaxed) == 0 {
        return;
    }
    let (now, last) = (epoch::domain().epoch(), SWEPT.load(Ordering::Relaxed));
    let is_due = now >= last + SWEEP;
    if !is_due || SWEPT.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    for Listed(page) in PAGES.lock().iter() {
        // SAFETY: it is freed when it is out of the list, which is locked.
        if !unsafe { page.as_ref() }.used.swap(false, Ordering::Relaxed) {
            // SAFETY: as above.
            unsafe { CounterPage::detach(*page, pin) };
        }
    }
}

/// Returns whether a read of `frame` is counted in any page, and how many sets were looked at, each a cache
/// line. Exact once no core can take a new hold.
pub(super) fn ask(frame: FrameNum) -> (bool, usize) {
    // Relaxed: see 2.
    if page_refs::mark(frame).claimed.load(Ordering::Relaxed) { ask_pages(frame) } else { (false, 0) }
}

/// Looks at the frame's set in each page, up to the first with a count.
#[cold]
fn ask_pages(frame: FrameNum) -> (bool, usize) {
    // SAFETY: a page is freed when it is out of the list.
    let has = |Listed(page): &Listed| unsafe { page.as_ref() }.place(frame).0.has(name(frame));
    let pages = PAGES.lock();
    let first = pages.iter().position(has);
    (first.is_some(), first.map_or(pages.len(), |at| at + 1))
}

/// Returns the frame's name in the counters, of which none is 0.
fn name(frame: FrameNum) -> u64 {
    frame.get() + 1
}

/// The core that has last counted a read in a frame's descriptor, and how often that changed.
pub(super) struct Mark {
    /// The number of the core and 1, the changes and their epoch. Relaxed: a hint.
    last: AtomicU32,
    /// A counter of a process may name the frame.
    claimed: AtomicBool,
}

const CORE_BITS: u32 = 9;
const TIMES_BITS: u32 = 7;
const _: () = assert!(percore::MAX_CORES < 1 << CORE_BITS && CONTENDED < 1 << TIMES_BITS);

impl Mark {
    pub(super) const fn new() -> Self {
        Self { last: AtomicU32::new(0), claimed: AtomicBool::new(false) }
    }

    /// Leaves the mark of this core. Returns whether another core's was there, not for the first times in
    /// this epoch.
    #[inline]
    pub(super) fn leave(&self, pin: &Pinned) -> bool {
        let (last, core) = (self.last.load(Ordering::Relaxed), pin.core().index() as u32 + 1);
        last % (1 << CORE_BITS) != core && self.change(last, core)
    }

    fn change(&self, last: u32, core: u32) -> bool {
        let epoch = epoch::domain().epoch() as u32 % (1 << (32 - CORE_BITS - TIMES_BITS));
        let is_same_epoch = last >> (CORE_BITS + TIMES_BITS) == epoch;
        let times = last >> CORE_BITS & ((1 << TIMES_BITS) - 1);
        let times = if is_same_epoch { (times + 1).min(CONTENDED) } else { 1 };
        self.last.store(epoch << (CORE_BITS + TIMES_BITS) | times << CORE_BITS | core, Ordering::Relaxed);
        times == CONTENDED
    }
}
