//! One core's page table of one space, and the core's state beside it. Only the core itself accesses it,
//! except for `presence`. `per_core_tables.rs` tells what interrupts may do to it meanwhile.

use core::sync::atomic::{AtomicU64, Ordering};

use percore::Pinned;
use vm::{Asid, OutOfMemory, PageNum, PageRange, Presence};

use super::above::KernelFrames;
use super::entry_count;
use super::page_table::{TOP, Table, bits, is_huge, user_link};
use super::{cpu, interrupts, kernel_map, pcid, table_walk, tlb};
use crate::above::Above;

/// One core's part.
pub(super) struct CoreTable {
    /// Physical address of the top table, 0 if there is none. Written by the owner only.
    root: AtomicU64,
    /// Number of tables. Written by the owner only. Relaxed: it orders nothing.
    tables: AtomicU64,
    pub presence: Presence,
    asid: Asid,
}

impl CoreTable {
    /// Creates the part of a core that has no table yet. `runs` tells whether the core runs the space
    /// already.
    pub fn new(runs: bool) -> Self {
        let presence = Presence::new();
        if runs {
            presence.enter();
        }
        Self { root: AtomicU64::new(0), tables: AtomicU64::new(0), presence, asid: Asid::new() }
    }

    /// Returns the root's physical address. Relaxed: only the owner reads it, or the thread that frees the
    /// space.
    #[inline(always)]
    pub fn root(&self) -> u64 {
        self.root.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub fn top(&self) -> Option<&Table> {
        let root = self.root();
        // SAFETY: the owner frees the table after it has set the root to 0, in `drop_table`.
        (root != 0).then(|| unsafe { Table::at(root) })
    }

    /// Allocates a frame of zeroes for another table.
    fn alloc(&self, pin: &Pinned) -> Result<u64, OutOfMemory> {
        let frame = Above::alloc_table(pin).ok_or(OutOfMemory)?;
        self.tables.store(self.tables.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Ok(frame << 12)
    }

    /// Takes the table back that `entry` led to, and nothing leads to any more.
    pub fn free(&self, pin: &Pinned, entry: u64) {
        entry_count::forget_tables(pin);
        Above::free_table(pin, (entry & bits::ADDRESS) >> 12);
        self.tables.store(self.tables.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    /// Removes the translations of the pages of `runs`, also from the TLB. By the owner only.
    #[inline(always)]
    pub fn clear(&self, runs: &[PageRange]) {
        if !self.presence.is_here() {
            self.asid.forget();
            return self.clear_entries(runs);
        }
        if let Some(top) = self.top() {
            // SAFETY: the owner's table, and no table of it is freed meanwhile.
            unsafe { table_walk::clear::<false>(top, runs, true) };
        }
    }

    /// Does the same for `pages` in a handler, whose entries may count a read.
    #[cold]
    pub fn clear_counted(&self, pages: PageRange) {
        if let Some(top) = self.top().filter(|_| self.presence.is_here()) {
            // SAFETY: as in `clear`.
            return unsafe { table_walk::clear::<true>(top, &[pages], true) };
        }
        self.clear(&[pages]);
    }

    /// Removes the entries of the pages of `runs` from the table, which is not in use. By the owner only.
    #[cold]
    fn clear_entries(&self, runs: &[PageRange]) {
        if let Some(top) = self.top() {
            // SAFETY: the owner's table, and no table of it is freed meanwhile.
            unsafe { table_walk::clear::<false>(top, runs, false) };
        }
    }

    /// Flushes `page`, whose entry has changed. Called by the owner only.
    #[inline(never)]
    pub fn flush_page(&self, page: PageNum) {
        match self.presence.is_here() {
            true => cpu::flush_page(page.get() << 12),
            false => self.asid.forget(),
        }
    }

    /// Flushes many pages, whose entries have changed. Called by the owner only.
    pub fn flush(&self) {
        match self.presence.is_here() {
            true => tlb::flush_user(),
            false => self.asid.forget(),
        }
    }

    /// Loads the owner's table, or the kernel's map as long as it has none. With `flush`, the TLB keeps none
    /// of its translations.
    #[inline(never)]
    fn load(&self, pin: &Pinned, flush: bool) {
        match self.root() {
            0 => pcid::load_kernel(pin),
            // SAFETY: every root has the kernel's half. The translations in the TLB are right, flushed or not
            // used: see `vm::Asids`.
            root => unsafe { pcid::load(pin, root, &self.asid, flush) },
        }
    }

    /// Returns the top table to fill in, and makes it if there is none.
    #[inline(always)]
    pub fn top_or_new(&self, pin: &Pinned) -> Result<&Table, OutOfMemory> {
        if !self.presence.is_here() {
            self.catch_up();
        }
        match self.top() {
            Some(top) => Ok(top),
            None => self.begin(pin),
        }
    }

    /// Clears what the owner missed before it fills for a process that it does not run.
    #[cold]
    fn catch_up(&self) {
        if let Some(missed) = self.presence.catch_up() {
            self.asid.forget();
            self.clear_entries(&[missed]);
        }
    }

    /// Creates the top table.
    #[cold]
    fn begin(&self, pin: &Pinned) -> Result<&Table, OutOfMemory> {
        let root = self.alloc(pin)?;
        // SAFETY: a frame of zeroes that only this function uses.
        let top = unsafe { Table::at(root) };
        top.copy_kernel_half(kernel_map::kernel_table());
        self.root.store(root, Ordering::Relaxed);
        if self.presence.is_here() {
            self.load(pin, true);
        }
        Ok(top)
    }

    /// Makes the core run the space from now on. Interrupts are off.
    pub fn enter(&self, pin: &Pinned) {
        let missed = self.presence.enter();
        if let Some(missed) = missed {
            self.clear_entries(&[missed]);
        }
        self.load(pin, missed.is_some());
    }

    /// Frees all there is.
    pub fn drop_tables(&self, pin: &Pinned) {
        let _off = interrupts::off();
        let root = self.root.swap(0, Ordering::Relaxed);
        if root == 0 {
            return;
        }
        self.tables.store(0, Ordering::Relaxed);
        entry_count::forget_tables(pin);
        if self.presence.is_here() {
            pcid::load_kernel(pin);
        }
        self.asid.forget();
        // SAFETY: neither this core nor the CPU can reach the root any more.
        let _all = unsafe { table_walk::free_user_half(pin, root, usize::MAX) };
    }

    /// Frees at most `most` tables. Returns whether there are more.
    ///
    /// # Safety
    /// No core runs the space, now or later, and no other caller frees meanwhile.
    pub unsafe fn free_piece(&self, pin: &Pinned, most: usize) -> bool {
        let root = self.root();
        // SAFETY: the caller's promise.
        if root != 0 && !unsafe { table_walk::free_user_half(pin, root, most) } {
            return true;
        }
        self.root.store(0, Ordering::Relaxed);
        false
    }

    /// Returns the number of tables: an estimate for any core but the owner.
    pub fn tables(&self) -> u64 {
        self.tables.load(Ordering::Relaxed)
    }
}

/// Returns `page`'s entry of level `lowest`, and makes its table if there is none, in place of a huge page.
/// Called by the owner only.
#[inline(always)]
pub(super) fn entry_of<'a>(
    pin: &Pinned,
    mine: &CoreTable,
    top: &'a Table,
    page: PageNum,
    lowest: u32,
) -> Result<&'a AtomicU64, OutOfMemory> {
    let mut table = top;
    for level in (lowest + 1..=TOP).rev() {
        let entry = table.toward(page.get(), level);
        let value = entry.load(Ordering::Relaxed);
        debug_assert!(value & bits::LINKED == 0, "a leaf's entries are its map's");
        // SAFETY: upper entries of a user half lead to tables, and the owner frees none while it fills.
        table = match unsafe { Table::below(value) } {
            Some(below) => below,
            None => {
                let below = mine.alloc(pin)?;
                drop_huge(mine, entry, page);
                entry.store(user_link(below), Ordering::Relaxed);
                // SAFETY: a frame of zeroes that now is a table.
                unsafe { Table::at(below) }
            }
        };
    }
    Ok(table.toward(page.get(), lowest))
}

/// Empties `entry`, on the way to `page`, if it is a huge page: no TLB may have two sizes for one page.
#[inline]
pub(super) fn drop_huge(mine: &CoreTable, entry: &AtomicU64, page: PageNum) {
    if is_huge(entry.load(Ordering::Relaxed)) {
        entry.store(0, Ordering::Relaxed);
        mine.flush_page(page);
    }
}
