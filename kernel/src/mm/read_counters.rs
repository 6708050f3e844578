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
//! Threads of one process that read one page on several cores meet in its counter, or in its entry of a page
//! table. LODIC leaves that as it is. Here the process is then *split*, for good: each core has a page of
//! counters for it.
//!
//! | a page of counters is | by |
//! |---|---|
//! | made | the first read of its process that finds a contended page, or the first such on its core if the process is split |
//! | in use | the process, or the process on that core: reads count there |
//! | detached | the sweep, if no read has counted there since the last one; or the end of the process |
//! | out of the table | the domain, once it has no count |
//! | free | the domain, some epochs later |
//!
//! 1. *Contended* is measured where it costs nothing more: the mark lies in the line of the word that the
//!    read has just written. If it is another core's, the line has come from there.
//! 2. A counter is claimed by a core that is pinned and found the frame in its file's tree since, as a hold
//!    is taken. It first notes the group of its page's slot in the descriptor. So when the frame is released,
//!    the descriptor says which pages may have a counter for it, and the question looks at one set of each.
//!    This is LODIC's query, by processes. It is exact without a flag that holds updates off, because no hold
//!    can be taken any more.
//! 3. The question frees the counters of its frame. So no counter names a frame that is used anew.
//! 4. A read finds the page of counters while it is pinned, and no epoch ends before it unpins. So a detached
//!    page has all its holds when the domain releases it, which does not take it out of the table until none
//!    is left.
//! 5. No step takes a lock. The table of pages and the word that names a page's process are [`Slots`] and
//!    [`Tenant`], whose rules stand in `crates/baselines/src/counters/slots.rs`, with a loom model beside it.
//! 6. A process is split by one compare-and-swap, and the pages of its cores are named by the words that
//!    remember their slots. So a page has one user, whether that is a process or a core of one. Nothing moves
//!    when it is split: reads in its first page are dropped there, and the sweep takes that page. There is a
//!    loom model in `crates/baselines/tests/loom/split.rs`.
//! 7. A question looks at [`PIECE`] pages at most, and goes on in the next review of its frame. A piece
//!    without a count is progress, so a core that drains the domain goes on until the question is over. The
//!    sweep looks at a part of the table in each epoch.

use core::mem::{ManuallyDrop, offset_of};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use abi::config::ReadRefs;
use alloc::boxed::Box;
use baselines::{Asked, ClaimedCount, ClaimedSet, Slots, Tenant};
use once_cell::race::OnceBox;
use percore::{MAX_CORES, Pinned, pin};
use refcache::{Header, Refcache};
use vm::FrameNum;

use super::{FRAME, Scheduler, epoch, fallible, frames, page_refs};
use crate::above::Above;
use crate::counters::{self, Counter};
use crate::options;

/// Reads of a page that find another core's mark, in one epoch, before it counts as contended, and reads that
/// meet others of their process before that is split. An epoch lasts a tick or more if none is forced, so
/// fewer cost nothing.
const CONTENDED: u32 = 8;
/// Epochs between two sweeps of a page: a process that does not count in it between them loses it.
const SWEEP: u64 = 16;
/// The most pages that the question about a frame looks at in one review.
const PIECE: usize = 64;
/// The most pages of counters. A process, or a core of one, that finds none left counts in the word.
const MOST: usize = 4096;

/// Sets of counters in each page: what is left of a frame.
const SETS: usize = FRAME as usize / size_of::<ClaimedSet>() - 1;

/// The counters of one process, or of one core of it.
#[repr(C, align(64))]
struct CounterPage {
    header: Header,
    tenant: Tenant,
    /// Its slot in the table. Relaxed: written before the page is there.
    slot: AtomicU32,
    sets: [ClaimedSet; SETS],
}

const _: () = assert!(size_of::<ClaimedSet>() == ClaimedSet::WORDS * size_of::<ClaimedCount>());
const _: () =
    assert!(size_of::<CounterPage>() == abi::reads::COUNTERS && offset_of!(CounterPage, sets) == 64);

/// All pages of counters.
static PAGES: Slots<CounterPage, MOST> = Slots::new();
/// The slot of a user that has no page.
static NO_PAGE: Slot = AtomicPtr::new(ptr::null_mut());
/// The last epoch in which the table was full. Relaxed: a hint.
static FULL: AtomicU64 = AtomicU64::new(u64::MAX);
/// The epoch of the last sweep. Relaxed: only the core that changes it sweeps.
static SWEPT: AtomicU64 = AtomicU64::new(0);

type Slot = AtomicPtr<CounterPage>;

/// The counters of a process.
pub struct ReadCounters {
    whole: User,
    /// Those of each core, once the process is split.
    cores: OnceBox<[User; MAX_CORES]>,
    /// The core that has last found another one's read in a counter of the process.
    met: Mark,
}

/// A user of a page of counters: the slot of its page, which is [`NO_PAGE`] or one of the table. Its address
/// is the user's name in the page.
#[repr(align(8))]
pub(super) struct User(AtomicPtr<Slot>);

/// A read that is counted in a page of counters.
pub(super) struct Counted(NonNull<ClaimedCount>);

impl ReadCounters {
    /// Returns those of a process that has read no contended page.
    pub const fn new() -> Self {
        Self { whole: User::new(), cores: OnceBox::new(), met: Mark::new() }
    }

    /// Counts a read as [`User::take_at_once`] does, if the process has a counter for it in any place.
    pub(super) fn take(&self, pin: &Pinned, frame: FrameNum) -> Option<Counted> {
        let (word, last) = self.user(pin).page()?.set(frame).take(name(frame), taker(pin))?;
        if last != taker(pin) {
            self.meet(pin);
        }
        Some(Counted(word.into()))
    }

    /// Claims a counter for the next read of `frame`, which the pinned caller found in its file's tree. There
    /// may be no memory, or the counters of its set are in use for other frames.
    #[cold]
    pub(super) fn claim(&self, pin: &Pinned, frame: FrameNum) {
        let user = self.user(pin);
        let Some(page) = user.page().or_else(|| user.make(pin, self.group())) else { return };
        page_refs::mark(frame).note(page.slot.load(Ordering::Relaxed) as usize);
        let first = CounterPage::place(frame) % ClaimedSet::WORDS;
        if page.set(frame).claim(first, name(frame), taker(pin)) {
            counters::add(pin, Counter::ReadCounters, 1);
        }
    }

    /// Notes that another core has counted the last read in a counter of the process. Cores that meet often
    /// get counters of their own.
    pub(super) fn meet(&self, pin: &Pinned) {
        if may_split() && self.cores.get().is_none() && self.met.leave(pin) {
            self.split();
        }
    }

    #[cold]
    fn split(&self) {
        // The reserve is for allocations that cannot wait. A table that is half full is left to processes.
        if frames::is_low() || PAGES.is_half_full() {
            return;
        }
        let Ok(cores) = fallible::boxed([const { User::new() }; MAX_CORES]) else { return };
        // Another thread of the process may be faster.
        drop(self.cores.set(cores));
    }

    /// Returns a number for the group of the slots of all its pages.
    fn group(&self) -> usize {
        // The heap's blocks begin at multiples of 64, so the bits below tell no processes apart.
        ptr::from_ref(self).addr() / 64
    }

    /// Returns the user as which this core counts.
    #[inline(always)]
    pub(super) fn user(&self, pin: &Pinned) -> &User {
        self.of_core(pin).unwrap_or(&self.whole)
    }

    /// Returns the user of this core if the process is split.
    #[inline(always)]
    pub(super) fn of_core(&self, pin: &Pinned) -> Option<&User> {
        self.cores.get().map(|cores| &cores[pin.core().index()])
    }
}

impl User {
    const fn new() -> Self {
        Self(AtomicPtr::new((&raw const NO_PAGE).cast_mut()))
    }

    /// Counts a read of `frame`, which the pinned caller found in its file's tree, if this user has a counter
    /// for it in the first place, where it counts no other and this core has counted the last. This is what
    /// most reads do, and it calls nothing.
    #[inline(always)]
    pub(super) fn take_at_once(&self, pin: &Pinned, frame: FrameNum) -> Option<Counted> {
        let page = self.in_slot().filter(|page| page.tenant.is_used_by(self.name()))?;
        let word = page.first_word(frame);
        word.take_first(name(frame), taker(pin)).then(|| Counted(word.into()))
    }

    /// Returns its page for a count.
    fn page(&self) -> Option<&CounterPage> {
        self.in_slot().filter(|page| page.tenant.is(self.name()))
    }

    /// Returns the page in its slot, which may be another user's by now.
    #[inline(always)]
    fn in_slot(&self) -> Option<&CounterPage> {
        // Acquire: pairs with the Release in `Slots::remember`.
        let slot = self.0.load(Ordering::Acquire);
        // SAFETY: slots are static. Acquire: pairs with the Release of the page's insertion.
        let page = NonNull::new(unsafe { &*slot }.load(Ordering::Acquire))?;
        // SAFETY: the callers are pinned, and a page that they find in a slot is freed some epochs later.
        Some(unsafe { page.as_ref() })
    }

    #[inline(always)]
    fn name(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    fn make(&self, pin: &Pinned, group: usize) -> Option<&CounterPage> {
        let now = epoch::domain().epoch();
        // The reserve is for allocations that cannot wait. To find out that a table is full takes a look at
        // all of it.
        if frames::is_low() || FULL.load(Ordering::Relaxed) == now {
            return None;
        }
        let old = self.0.load(Ordering::Relaxed);
        let page = CounterPage::new(self.name())?;
        // SAFETY: it has the name of this user, which is here, so it is not freed.
        let note = |at| unsafe { page.as_ref() }.slot.store(at as u32, Ordering::Relaxed);
        let Some(at) = PAGES.insert(page, group, note) else {
            FULL.store(now, Ordering::Relaxed);
            // SAFETY: no other flow has seen it.
            unsafe { CounterPage::free(page) };
            return None;
        };
        counters::add(pin, Counter::ReadCounterPages, 1);
        if let Some(page) = PAGES.remember(&self.0, old, at, page) {
            // Another thread of the process has made one, too.
            // SAFETY: both were in their slots after the caller was pinned.
            unsafe { CounterPage::detach(page, pin, |tenant| tenant.end(self.name())) };
        }
        self.page()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // Relaxed: the threads of the process have ended.
        if ptr::eq(self.0.load(Ordering::Relaxed), &NO_PAGE) {
            return;
        }
        // The last task of a process may go where the core has left the epochs.
        Above::come_online();
        let pin = pin();
        if let Some(page) = self.in_slot() {
            // SAFETY: found in its slot while pinned.
            unsafe { CounterPage::detach(page.into(), &pin, |tenant| tenant.end(self.name())) };
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
    /// Makes a page of free counters in which the one called `user` counts.
    fn new(user: usize) -> Option<NonNull<Self>> {
        let block = ManuallyDrop::new(fallible::empty::<Self>(1).ok()?).as_mut_ptr();
        // SAFETY: the block has room for one page. Counters and the slot begin as zeroes.
        unsafe {
            block.write_bytes(0, 1);
            (&raw mut (*block).header).write(Header::new(1, None, release));
            (&raw mut (*block).tenant).write(Tenant::new(user));
        }
        NonNull::new(block)
    }

    /// Returns the number of the counter that is looked at first for a frame.
    #[inline(always)]
    fn place(frame: FrameNum) -> usize {
        // The high bits of the hash: neighbours get places far apart, and no division is needed.
        let hash = u64::from((frame.get() as u32).wrapping_mul(0x9e37_79b9));
        ((hash * (SETS * ClaimedSet::WORDS) as u64) >> 32) as usize
    }

    /// Returns that counter, as `set` does in more instructions.
    #[inline(always)]
    fn first_word(&self, frame: FrameNum) -> &ClaimedCount {
        // SAFETY: the sets are an array of their words, and `place` is below the number of words.
        unsafe { &*self.sets.as_ptr().cast::<ClaimedCount>().add(Self::place(frame)) }
    }

    /// Returns the set of a frame.
    fn set(&self, frame: FrameNum) -> &ClaimedSet {
        &self.sets[Self::place(frame) / ClaimedSet::WORDS]
    }

    /// Frees a page, some epochs later, if `take_away` takes it from its user.
    ///
    /// # Safety
    /// The caller found it in its slot since it was pinned.
    unsafe fn detach(page: NonNull<Self>, pin: &Pinned, take_away: impl FnOnce(&Tenant) -> bool) {
        // SAFETY: the caller is pinned. The header begins the page, and its one reference is dropped once,
        // since a page has a tenant once.
        unsafe {
            if take_away(&page.as_ref().tenant) {
                epoch::domain().adjust(pin, page.cast(), -1);
            }
        }
    }

    /// # Safety
    /// No other flow finds the page or is counted there.
    unsafe fn free(page: NonNull<Self>) {
        // SAFETY: it came from a vector with room for one.
        drop(unsafe { Box::from_raw(page.as_ptr()) });
    }
}

/// Takes a detached page that counts no read out of the table.
///
/// # Safety
/// Called once for each header, by the domain, with the header of a [`CounterPage`].
unsafe fn release(domain: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    // SAFETY: it is freed below only.
    let page = unsafe { header.cast::<CounterPage>().as_ref() };
    if page.sets.iter().any(ClaimedSet::is_used) {
        // SAFETY: the domain has forgotten the header.
        return unsafe { page_refs::stay(domain, pin, header, release) };
    }
    PAGES.remove(page.slot.load(Ordering::Relaxed) as usize);
    // SAFETY: as above. A core that has found the page in its slot unpins before the header dies again.
    unsafe {
        header.write(Header::new(1, None, free));
        domain.adjust(pin, header, -1);
    }
}

/// Frees a page of counters that is out of the table.
///
/// # Safety
/// Called once, by the domain, with the header of a [`CounterPage`].
unsafe fn free(_: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    counters::add(pin, Counter::ReadCounterPages, -1);
    // SAFETY: epochs have passed since it was in the table.
    unsafe { CounterPage::free(header.cast()) };
}

/// Detaches the pages in which no read was counted for some epochs, in a part of the table. A core calls it
/// when an epoch has ended.
pub(super) fn sweep(pin: &Pinned) {
    let end = PAGES.end();
    if end == 0 {
        return;
    }
    let (now, last) = (epoch::domain().epoch(), SWEPT.load(Ordering::Relaxed));
    if now == last || SWEPT.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    let part = (now % SWEEP) as usize;
    let bound = |part: usize| end * part / SWEEP as usize;
    for page in (bound(part)..bound(part + 1)).filter_map(|at| PAGES.get(at)) {
        // SAFETY: found in its slot while pinned.
        unsafe { CounterPage::detach(page, pin, Tenant::sweep) };
    }
}

/// Asks whether a read of `frame` is counted in any page, in the next piece of the question. Returns also how
/// many sets were looked at, each a cache line. No core can take a new hold.
pub(super) fn ask(_pin: &Pinned, frame: FrameNum) -> (Asked, usize) {
    let mut lines = 0;
    let asked = page_refs::mark(frame).ask(|groups, from| {
        PAGES.ask(groups, from, PIECE, |page| {
            lines += 1;
            // SAFETY: found in its slot while pinned.
            unsafe { page.as_ref() }.set(frame).has(name(frame))
        })
    });
    (asked, lines)
}

/// Returns whether processes are split. Where ways are compared with the paper's they are not.
pub(super) fn may_split() -> bool {
    options::get().read_refs == ReadRefs::Lodic
}

/// Returns this core's number as the taker of a reference.
#[inline(always)]
fn taker(pin: &Pinned) -> u64 {
    pin.core().index() as u64
}

/// Returns the frame's name in the counters, of which none is 0.
fn name(frame: FrameNum) -> u64 {
    frame.get() + 1
}

/// The core that has last counted a read in a frame's descriptor, or met another in a counter of a process,
/// and how often that changed. When the frame is released, how far the question about it has got.
pub(super) struct Mark {
    /// The number of the core and 1, the changes and their epoch. Or the slot at which the question goes on.
    /// Relaxed: a hint, or used by the core that releases the frame.
    last: AtomicU32,
    /// The groups of slots whose pages may have a counter that names the frame, and [`ASKED`]. Relaxed: the
    /// epochs order it before the question.
    groups: AtomicU32,
}

/// The question has begun.
const ASKED: u32 = 1 << 31;
const CORE_BITS: u32 = 9;
const TIMES_BITS: u32 = 7;
const _: () = assert!(MAX_CORES as u64 <= ClaimedCount::TAKERS);
const _: () = assert!(MAX_CORES < 1 << CORE_BITS && CONTENDED < 1 << TIMES_BITS);

impl Mark {
    pub(super) const fn new() -> Self {
        Self { last: AtomicU32::new(0), groups: AtomicU32::new(0) }
    }

    /// Notes that the page in slot `at` may get a counter for the frame.
    fn note(&self, at: usize) {
        let group = Slots::<CounterPage, MOST>::group(at);
        if self.groups.load(Ordering::Relaxed) & group == 0 {
            self.groups.fetch_or(group, Ordering::Relaxed);
        }
    }

    /// Asks the next piece of the question, by the groups and the slot where it goes on.
    fn ask(&self, piece: impl FnOnce(u32, usize) -> Asked) -> Asked {
        let groups = self.groups.load(Ordering::Relaxed);
        if groups == 0 {
            return Asked::Free;
        }
        let from = if groups & ASKED == 0 { 0 } else { self.last.load(Ordering::Relaxed) as usize };
        let asked = piece(groups, from);
        if let Asked::Held(at) | Asked::Unfinished(at) = asked {
            self.last.store(at as u32, Ordering::Relaxed);
            self.groups.store(groups | ASKED, Ordering::Relaxed);
        }
        asked
    }

    /// Leaves the mark of this core. Returns whether another core's was there, not for the first times in
    /// this epoch.
    #[inline]
    pub(super) fn leave(&self, pin: &Pinned) -> bool {
        !self.is_own(pin) && self.change(self.last.load(Ordering::Relaxed), pin.core().index() as u32 + 1)
    }

    /// Returns whether this core's is there.
    #[inline(always)]
    pub(super) fn is_own(&self, pin: &Pinned) -> bool {
        self.last.load(Ordering::Relaxed) % (1 << CORE_BITS) == pin.core().index() as u32 + 1
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
