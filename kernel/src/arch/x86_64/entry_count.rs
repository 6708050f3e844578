//! LODIC's local counters of reads (`read_refs=lodic`): bits 58 to 52 of a page's entry in the one table of
//! its space. The CPU ignores them there. The protocol is that of [`EmbeddedCount`], and the owner of an
//! entry is the core that has its page's slot locked.
//!
//! A reader looks its entry up in the table that its core runs on. It walks it as the CPU does, without a
//! lock: tables of a shared table stay until the space goes. So a reader that counts itself out uses the
//! entry that it found, whatever core it runs on by then. So do later reads: the tables that walks have found
//! are [remembered](KnownTables).

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use abi::reads::ENTRY;
use baselines::EmbeddedCount;
use vm::{FrameNum, PageNum};

use super::above::KernelFrames;
use super::cpu;
use super::page_table::{ENTRIES, TOP, Table, bits};
use crate::above::Above;
use crate::options;

const COUNT: EmbeddedCount = EmbeddedCount::new(ENTRY.0, ENTRY.1);

/// A page's entry that counts a read of the running task's process.
pub struct CountedEntry(NonNull<AtomicU64>);

/// Tables of level 0 that reads have found by a walk, for the next reads: a walk costs more than all the rest
/// of a count. Each is only a hint. Whatever entry it leads to, a read is counted there if the entry shows
/// the frame that is read. So a table's words may be changed while others read them.
pub struct KnownTables([Known; KNOWN]);

/// One for every [`ENTRIES`] pages of a file, and one may serve several.
const KNOWN: usize = 8;

/// A table that shows pages of a file.
#[repr(align(32))]
struct Known {
    /// The file's name, or 0: there is no table yet.
    file: AtomicU64,
    /// The page of the file that entry 0 would show. Relaxed: a hint.
    first: AtomicU64,
    table: AtomicPtr<Table>,
    /// When it was remembered. Relaxed: a hint.
    when: AtomicU64,
}

impl Known {
    const fn none() -> Self {
        let [file, first, when] = [const { AtomicU64::new(0) }; 3];
        Self { file, first, table: AtomicPtr::new(ptr::null_mut()), when }
    }
}

impl KnownTables {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self([const { Known::none() }; KNOWN])
    }

    /// Forgets all tables.
    pub fn forget(&self) {
        self.0.iter().for_each(|known| known.file.store(0, Ordering::Relaxed));
    }

    #[inline(always)]
    fn of(&self, page: u64) -> &Known {
        &self.0[page as usize / ENTRIES % KNOWN]
    }

    /// Counts a read of `frame`, which is a page of a file, in the process's entry of it, if a read has found
    /// that before. Returns the entry if it did.
    ///
    /// # Safety
    /// All reads that used the list were of tasks of one space, which the caller has.
    #[inline(always)]
    pub unsafe fn count_read(&self, (file, page): (u64, u64), frame: FrameNum) -> Option<CountedEntry> {
        let known = self.of(page);
        let at = page.wrapping_sub(known.first.load(Ordering::Relaxed));
        // Acquire: pairs with the Release in `remember`. There is a table.
        if known.file.load(Ordering::Acquire) != file || at >= ENTRIES as u64 {
            return None;
        }
        // SAFETY: a table of the space, which stays until the space goes. Acquire: it is seen zeroed.
        let entry = unsafe { &*known.table.load(Ordering::Acquire) }.entry(at as usize);
        COUNT.take(entry, shows(frame)).then(|| CountedEntry(NonNull::from(entry)))
    }

    /// Remembers the table of the space's page `shown`, which shows `page` of a file. If it knows another one
    /// in that place, it does so once in each epoch `now`, because threads that read here and there share
    /// these words.
    fn remember(&self, (file, page): (u64, u64), shown: PageNum, table: &Table, now: u64) {
        let known = self.of(page);
        if known.file.load(Ordering::Relaxed) != 0 && known.when.load(Ordering::Relaxed) == now {
            return;
        }
        known.when.store(now, Ordering::Relaxed);
        known.first.store(page.wrapping_sub(shown.get() % ENTRIES as u64), Ordering::Relaxed);
        // Release: other cores see the table as this one has.
        known.table.store(ptr::from_ref(table).cast_mut(), Ordering::Release);
        known.file.store(file, Ordering::Release);
    }

    /// Counts a read of `frame`, which is a page of a file, in this process's entry of its page `shown`, if
    /// that shows the frame and has room. Returns the entry if it did. Remembers the table, if there is an
    /// epoch `now`.
    ///
    /// # Safety
    /// As for [`count_read`](Self::count_read).
    #[cold]
    pub unsafe fn find_and_count(
        &self,
        of_file: (u64, u64),
        frame: FrameNum,
        shown: PageNum,
        now: Option<u64>,
    ) -> Option<CountedEntry> {
        let table = table_of(shown)?;
        if let Some(now) = now {
            self.remember(of_file, shown, table, now);
        }
        let entry = table.toward(shown.get(), 0);
        COUNT.take(entry, shows(frame)).then(|| CountedEntry(NonNull::from(entry)))
    }
}

/// Drops a read of `frame` from the entry. Returns whether it was, or another is, counted there.
///
/// # Safety
/// The caller is the task that counted the read, and has had the same space since.
#[inline]
pub unsafe fn uncount_read(entry: &CountedEntry, frame: FrameNum) -> bool {
    // SAFETY: the space has not gone, so its tables have not either.
    COUNT.leave(unsafe { entry.0.as_ref() }, shows(frame))
}

#[inline(always)]
fn shows(frame: FrameNum) -> impl Fn(u64) -> bool {
    move |value| value & (bits::PRESENT | bits::ADDRESS) == frame.get() << 12 | bits::PRESENT
}

/// Returns the table of `page`'s entry below the one that this core runs on, if there is one.
fn table_of<'t>(page: PageNum) -> Option<&'t Table> {
    // SAFETY: the caller is a task in its call, so the core runs on the shared table of the task's space.
    // That stays while the task has the space, and so do the tables below it.
    let mut table = unsafe { Table::at(cpu::cr3()) };
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

/// Moves the count of `old`, the former value of an entry, to the frame that it showed.
#[inline]
pub(super) fn carry(old: u64) {
    if COUNT.of(old) > 0 {
        Above::add_reads((old & bits::ADDRESS) >> 12, COUNT.of(old));
    }
}
