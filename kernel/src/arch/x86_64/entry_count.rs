//! LODIC's local counters of reads (`read_refs=lodic` and its relatives): bits 58 to 52 of a page's entry.
//! The CPU ignores them there. The protocol is that of [`EmbeddedCount`].
//!
//! # In the one table of a space
//! The owner of an entry is the core that has its page's slot locked.
//!
//! A reader looks its entry up in the table that its core runs on. It walks it as the CPU does, without a
//! lock: tables of a shared table stay until the space goes. So a reader that counts itself out uses the
//! entry that it found, whatever core it runs on by then. So do later reads: the tables that walks have found
//! are [remembered](KnownTables).
//!
//! # In the table of one core
//! The owner of an entry is the core. A reader counts itself there, and no other core writes it. The core may
//! drop the table, and need not tell the others which entries it has cleared while it did not run the space.
//! So a count there would be lost if it stayed. It does not:
//!
//! | the reader | its count is in |
//! |---|---|
//! | copies | the entry: it runs on the core, which runs its space, and the kernel is not preempted |
//! | copies, when an interrupt clears the entry for another core | the word of the frame, where [`replace`] has put it |
//! | handles a fault in the middle of the copy | the word: [`move_own_to_word`] is the first thing that the fault does |
//! | copies again after the fault, perhaps on another core | the word |
//!
//! So an entry has a count of one at most, that of the running task. Whatever else a core does with its table
//! finds none: it switches tasks, fills and drops tables when it is not in the middle of a copy, or in the
//! fault. The reader counts itself out of the entry in which the core on which it ends has last counted a
//! read, if that has a count, which is its own, and else out of the word.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use abi::reads::ENTRY;
use baselines::{EmbeddedCount, Shown, Taken};
use percore::Pinned;
use vm::{FrameNum, PageNum};

use super::above::KernelFrames;
use super::cpu;
use super::page_table::{ENTRIES, TOP, Table, bits};
use crate::above::Above;
use crate::arch::per_core::all_cores;
use crate::options::{self, ReadWay};

const COUNT: EmbeddedCount = EmbeddedCount::new(ENTRY.0, ENTRY.1);

/// A page's entry that counts a read of the running task's process, in the one table of its space.
pub struct CountedEntry {
    entry: NonNull<AtomicU64>,
    taken: Taken,
}

/// Tables of level 0 that reads have found by a walk, for the next reads: a walk costs more than all the rest
/// of a count. Each is only a hint. Whatever entry it leads to, a read is counted there if the entry shows
/// the frame that is read. So a table's words may be changed while others read them.
pub struct KnownTables([Known; KNOWN]);

/// One for every [`ENTRIES`] pages of a file, and one may serve several.
const KNOWN: usize = 8;

/// A table that shows pages of a file.
#[repr(align(32))]
struct Known {
    /// [`NONE`] if there is none yet.
    table: AtomicPtr<Table>,
    /// The entry that would show page 0 of the file. Relaxed: a hint.
    first: AtomicU64,
    /// When it was remembered. Relaxed: a hint.
    when: AtomicU32,
    /// The core whose reads count there without a look for others. Relaxed: a hint.
    core: AtomicU32,
}

/// A table that shows nothing. So a read need not ask whether there is one.
static NONE: Table = Table::empty();
const NO_ENTRY: *mut AtomicU64 = (&raw const NONE).cast_mut().cast();

impl Known {
    const fn none() -> Self {
        let [when, core] = [const { AtomicU32::new(0) }; 2];
        let table = AtomicPtr::new((&raw const NONE).cast_mut());
        Self { table, first: AtomicU64::new(0), when, core }
    }

    /// Returns the entry that may show `page` of a file.
    ///
    /// # Safety
    /// As for [`count_first_read`](KnownTables::count_first_read).
    #[inline(always)]
    unsafe fn entry(&self, page: u64) -> &AtomicU64 {
        let at = page.wrapping_add(self.first.load(Ordering::Relaxed));
        // SAFETY: a table of the space, which stays until the space goes, or the empty one. Acquire: pairs
        // with the Release in `remember`. It is seen zeroed.
        unsafe { &*self.table.load(Ordering::Acquire) }.entry(at as usize)
    }
}

impl KnownTables {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self([const { Known::none() }; KNOWN])
    }

    /// Forgets all tables.
    pub fn forget(&self) {
        self.0.iter().for_each(|known| known.table.store((&raw const NONE).cast_mut(), Ordering::Relaxed));
    }

    #[inline(always)]
    fn of(&self, page: u64) -> &Known {
        &self.0[page as usize / ENTRIES % KNOWN]
    }

    /// Counts a read of `frame`, which is a page of a file, in the process's entry of it, if a read has found
    /// that before, none is counted there, and the table is known as this core's. Returns the entry if it
    /// did. The table may be that of another file or of other pages of this one, whose entry shows another
    /// frame.
    ///
    /// # Safety
    /// All reads that used the list were of tasks of one space, which the caller has.
    #[inline(always)]
    pub unsafe fn count_first_read(&self, pin: &Pinned, page: u64, frame: FrameNum) -> Option<CountedEntry> {
        let known = self.of(page);
        if known.core.load(Ordering::Relaxed) != pin.core().index() as u32 {
            return None;
        }
        // SAFETY: the caller's.
        let entry = unsafe { known.entry(page) };
        Some(CountedEntry { entry: entry.into(), taken: COUNT.take_first(entry, shown(frame))? })
    }

    /// Does the same if other reads are counted there, or the table is known as another core's.
    ///
    /// # Safety
    /// As for [`count_first_read`](Self::count_first_read).
    pub unsafe fn count_read(&self, page: u64, frame: FrameNum) -> Option<CountedEntry> {
        // SAFETY: the caller's.
        count_in(unsafe { self.of(page).entry(page) }, frame)
    }

    /// Makes the known table of a page of a file this core's. Returns whether it was another one's.
    pub fn make_own(&self, pin: &Pinned, page: u64) -> bool {
        let (known, core) = (self.of(page), pin.core().index() as u32);
        let is_another = known.core.load(Ordering::Relaxed) != core;
        if is_another {
            known.core.store(core, Ordering::Relaxed);
        }
        is_another
    }

    /// Remembers the table of the space's page `shown`, which shows `page` of a file. If it knows another one
    /// in that place, it does so once in each epoch `now`, because threads that read here and there share
    /// these words.
    fn remember(&self, pin: &Pinned, page: u64, shown: PageNum, table: &Table, now: u64) {
        let known = self.of(page);
        let is_known = !ptr::eq(known.table.load(Ordering::Relaxed), &raw const NONE);
        if is_known && known.when.load(Ordering::Relaxed) == now as u32 {
            return;
        }
        known.when.store(now as u32, Ordering::Relaxed);
        known.core.store(pin.core().index() as u32, Ordering::Relaxed);
        known.first.store(shown.get().wrapping_sub(page), Ordering::Relaxed);
        // Release: other cores see the table as this one has.
        known.table.store(ptr::from_ref(table).cast_mut(), Ordering::Release);
    }

    /// Counts a read of `frame`, which is a page of a file, in this process's entry of its page `shown`, if
    /// that shows the frame and has room. Returns the entry if it did. Remembers the table, if there is an
    /// epoch `now`.
    ///
    /// # Safety
    /// As for [`count_first_read`](Self::count_first_read).
    #[cold]
    pub unsafe fn find_and_count(
        &self,
        pin: &Pinned,
        page: u64,
        frame: FrameNum,
        shown: PageNum,
        now: Option<u64>,
    ) -> Option<CountedEntry> {
        let table = table_of(shown)?;
        if let Some(now) = now {
            self.remember(pin, page, shown, table, now);
        }
        count_in(table.toward(shown.get(), 0), frame)
    }
}

/// The part of its own table of the space that it runs which a core knows. Only the core itself accesses it.
struct Own {
    known: KnownTables,
    /// The entry in which a task has last counted a read, or one that shows nothing. Relaxed: only the core
    /// itself uses it.
    last: AtomicPtr<AtomicU64>,
}

all_cores! {
    static OWN: Own = Own { known: KnownTables::new(), last: AtomicPtr::new(NO_ENTRY) };
}

impl Own {
    #[inline(always)]
    fn count(&self, page: u64, frame: FrameNum) -> Option<OwnCount> {
        // SAFETY: the core forgets its tables before it frees one of them and before it stops running the
        // space, and the caller is a task on it.
        self.count_in(unsafe { self.known.of(page).entry(page) }, frame)
    }

    #[inline(always)]
    fn count_in(&self, entry: &AtomicU64, frame: FrameNum) -> Option<OwnCount> {
        let taken = COUNT.take_first(entry, shown(frame))?;
        self.last.store(ptr::from_ref(entry).cast_mut(), Ordering::Relaxed);
        Some(OwnCount(taken))
    }

    #[inline(always)]
    fn last(&self) -> &AtomicU64 {
        // SAFETY: as in `count`.
        unsafe { &*self.last.load(Ordering::Relaxed) }
    }

    fn forget(&self) {
        self.known.forget();
        self.last.store(NO_ENTRY, Ordering::Relaxed);
    }
}

/// A read that was counted in an entry of the table of the core that the task ran on.
pub struct OwnCount(Taken);

/// Counts a read of `frame`, which is a page of a file, in this core's own entry of it, if a read has found
/// that before.
#[inline(always)]
pub fn count_own_read(pin: &Pinned, page: u64, frame: FrameNum) -> Option<OwnCount> {
    OWN.mine(pin).count(page, frame)
}

/// Looks for this core's entry of the page `shown`, which may show `page` of a file, and counts a read of
/// `frame` there if it does. Remembers the table in the epoch `now`.
#[cold]
pub fn find_and_count_own(
    pin: &Pinned,
    page: u64,
    frame: FrameNum,
    shown: PageNum,
    now: u64,
) -> Option<OwnCount> {
    let (own, table) = (OWN.mine(pin), table_of(shown)?);
    own.known.remember(pin, page, shown, table, now);
    own.count_in(table.toward(shown.get(), 0), frame)
}

/// Drops a read of `frame` from the entry in which this core has last counted one, if it is counted there
/// still. Returns whether it was.
#[inline(always)]
pub fn uncount_own_read(pin: &Pinned, counted: &OwnCount, frame: FrameNum) -> bool {
    COUNT.leave(OWN.mine(pin).last(), &counted.0, shown(frame))
}

/// Moves the count of the running task's read, which a fault has stopped in the middle of its copy, from this
/// core's entry to the word of the frame. Most faults stop no such read.
pub(super) fn move_own_to_word(pin: &Pinned) {
    if !is_by_core() {
        return;
    }
    let entry = OWN.mine(pin).last();
    // Whatever frame it shows, a count there is that of the task's read.
    let shown = FrameNum::new((entry.load(Ordering::Relaxed) & bits::ADDRESS) >> 12);
    COUNT.move_one(entry, self::shown(shown), |reads| Above::add_reads(shown.get(), reads));
}

/// Makes this core forget its own tables, one of which is about to be freed, or whose space it is about to
/// leave.
#[inline(always)]
pub(super) fn forget_tables(pin: &Pinned) {
    if is_by_core() {
        OWN.mine(pin).forget();
    }
}

fn count_in(entry: &AtomicU64, frame: FrameNum) -> Option<CountedEntry> {
    let taken = COUNT.take(entry, shown(frame))?;
    Some(CountedEntry { entry: NonNull::from(entry), taken })
}

/// Drops a read of `frame` from the entry. Returns whether it was, or another is, counted there.
///
/// # Safety
/// The caller is the task that counted the read, and has had the same space since.
#[inline(always)]
pub unsafe fn uncount_read(counted: &CountedEntry, frame: FrameNum) -> bool {
    // SAFETY: the space has not gone, so its tables have not either.
    COUNT.leave(unsafe { counted.entry.as_ref() }, &counted.taken, shown(frame))
}

/// Returns what an entry that shows `frame` has.
#[inline(always)]
fn shown(frame: FrameNum) -> Shown {
    Shown { mask: bits::PRESENT | bits::ADDRESS, value: frame.get() << 12 | bits::PRESENT }
}

/// Returns the table of `page`'s entry below the one that this core runs on, if there is one.
fn table_of<'t>(page: PageNum) -> Option<&'t Table> {
    // SAFETY: the caller is a task in its call, so the core runs on the table of the task's space. If that is
    // the one of all cores, it stays while the task has the space, and so do the tables below it. If it is
    // the core's own, only the core frees tables, and it forgets them before.
    unsafe { lowest_below(Table::at(cpu::cr3() & bits::ADDRESS), page) }
}

/// Returns the table of `page`'s entry below `top`, if there is one.
///
/// # Safety
/// None of the tables is freed while the result is used.
unsafe fn lowest_below(mut table: &Table, page: PageNum) -> Option<&Table> {
    for level in (1..=TOP).rev() {
        // Acquire: a table is seen zeroed, as for `below_or_new` in `shared_table.rs`.
        let value = table.toward(page.get(), level).load(Ordering::Acquire);
        // SAFETY: an upper entry of a user half.
        table = unsafe { Table::below(value) }?;
    }
    Some(table)
}

/// Returns whether entries may have counts.
pub(super) fn is_used() -> bool {
    options::get().counts_in_entries()
}

/// Returns whether those of a core's own table may.
#[inline(always)]
pub(super) fn is_by_core() -> bool {
    options::get().read_way == ReadWay::ByCore
}

/// Puts `new` into an entry of level 0, and returns what was there. Its count moves to the frame that it
/// showed.
#[inline]
pub(super) fn replace(entry: &AtomicU64, new: u64) -> u64 {
    if !is_used() {
        // AcqRel: a core that finds the entry finds the frame zeroed.
        return entry.swap(new, Ordering::AcqRel);
    }
    COUNT.replace(entry, new, |old, reads| Above::add_reads((old & bits::ADDRESS) >> 12, reads))
}

/// Returns whether the entry of `page` in the table below `top` shows `frame` and counts a read of it.
///
/// # Safety
/// None of the tables is freed meanwhile.
pub(super) unsafe fn is_counted(top: &Table, page: PageNum, frame: FrameNum) -> bool {
    // SAFETY: the caller's promise.
    let table = unsafe { lowest_below(top, page) };
    table.is_some_and(|table| COUNT.look(table.toward(page.get(), 0), shown(frame)) > 0)
}
