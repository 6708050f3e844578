//! Page tables as memory: entries and tables. Their users decide which core may change them, and which TLBs
//! to flush.

use core::sync::atomic::{AtomicU64, Ordering};

use vm::Prot;

use super::physmap::phys_to_virt;

/// Entry bits.
pub mod bits {
    pub const PRESENT: u64 = 1;
    pub const WRITE: u64 = 1 << 1;
    pub const USER: u64 = 1 << 2;
    /// Write-through and not cached: for devices.
    pub const DEVICE: u64 = 1 << 3 | 1 << 4;
    pub const ACCESSED: u64 = 1 << 5;
    pub const DIRTY: u64 = 1 << 6;
    pub const LARGE: u64 = 1 << 7;
    pub const GLOBAL: u64 = 1 << 8;
    /// Marks an entry of level 1 that leads to a leaf of the space's map, not to a table. The CPU ignores the
    /// bit.
    pub const LINKED: u64 = 1 << 9;
    pub const NO_EXECUTE: u64 = 1 << 63;
    pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
}

/// Entries of a table.
pub const ENTRIES: usize = abi::reads::TABLE.0;
/// Entries in a cache line.
pub const LINE: usize = 8;
/// The level of the top table. Pages of 4 KiB are in tables of level 0.
pub const TOP: u32 = 3;

/// Returns whether an entry of the group is present. Most entries of most tables are empty.
pub fn is_any_present(group: &&[AtomicU64; LINE]) -> bool {
    group.iter().map(|entry| entry.load(Ordering::Relaxed)).fold(0, |all, value| all | value) & bits::PRESENT
        != 0
}

/// A page table in memory. The CPU walks it while the kernel writes it, so entries are atomic.
#[repr(C, align(4096))]
pub struct Table([AtomicU64; ENTRIES]);

impl Table {
    /// Creates a table without entries.
    pub const fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; ENTRIES])
    }

    /// Returns the table in the frame at `phys`.
    ///
    /// # Safety
    /// The frame is a page table for as long as the reference lives.
    #[inline(always)]
    pub unsafe fn at<'a>(phys: u64) -> &'a Self {
        // SAFETY: the caller's promise, and the physmap shows all memory.
        unsafe { &*phys_to_virt(phys) }
    }

    /// Returns entry `index`.
    #[inline(always)]
    pub fn entry(&self, index: usize) -> &AtomicU64 {
        &self.0[index % ENTRIES]
    }

    /// Returns the first `entries` entries, in groups of a cache line.
    pub fn groups(&self, entries: usize) -> impl Iterator<Item = &[AtomicU64; LINE]> {
        self.0[..entries].as_chunks().0.iter()
    }

    /// Returns the first present entry from `index` on, or the number of entries. Most entries of most tables
    /// are empty, so empty ones are read a cache line at a time.
    pub fn next_present(&self, index: usize) -> usize {
        let is_present = |entry: &AtomicU64| entry.load(Ordering::Relaxed) & bits::PRESENT != 0;
        let line = index.next_multiple_of(LINE);
        if let Some(near) = self.0[index..line].iter().position(is_present) {
            return index + near;
        }
        let far = self.groups(ENTRIES).skip(line / LINE).position(|group| is_any_present(&group));
        let Some(at) = far.map(|far| line + far * LINE) else { return ENTRIES };
        self.0[at..].iter().position(is_present).map_or(ENTRIES, |near| at + near)
    }

    /// Returns the entry on the way to page number `page`, in a table of level `level`.
    #[inline(always)]
    pub fn toward(&self, page: u64, level: u32) -> &AtomicU64 {
        self.entry((page >> (9 * level)) as usize)
    }

    /// Returns the table that `entry` leads to, if it is present and not a large page.
    ///
    /// # Safety
    /// The entry was read from a live table that is not of level 0.
    #[inline(always)]
    pub unsafe fn below<'a>(entry: u64) -> Option<&'a Self> {
        let leads = entry & (bits::PRESENT | bits::LARGE) == bits::PRESENT;
        // SAFETY: such an entry of an upper level holds a table's address.
        leads.then(|| unsafe { Self::at(entry & bits::ADDRESS) })
    }

    /// Copies the kernel's half of `kernel` into this new table.
    pub fn copy_kernel_half(&self, kernel: &Self) {
        for index in ENTRIES / 2..ENTRIES {
            // Relaxed: no core walks the new table yet, and the kernel's top entries never change after boot.
            self.entry(index).store(kernel.entry(index).load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// Returns an entry for a user page.
#[inline(always)]
pub fn user_leaf(frame: u64, prot: Prot) -> u64 {
    let writable = if prot.contains(Prot::WRITE) { bits::WRITE } else { 0 };
    let no_execute = if prot.contains(Prot::EXEC) { 0 } else { bits::NO_EXECUTE };
    frame << 12 | bits::PRESENT | bits::USER | writable | no_execute
}

/// Returns an entry of level 1 for a user's huge page, whose frames follow `first`.
pub fn user_huge(first: u64, prot: Prot) -> u64 {
    user_leaf(first, prot) | bits::LARGE
}

/// Returns whether an entry of level 1 is a huge page.
#[inline(always)]
pub fn is_huge(entry: u64) -> bool {
    const HUGE: u64 = bits::PRESENT | bits::LARGE;
    entry & HUGE == HUGE
}

/// Returns an entry that leads to the next table of a user's half.
#[inline(always)]
pub fn user_link(table: u64) -> u64 {
    table | bits::PRESENT | bits::USER | bits::WRITE
}

/// Returns an entry of level 1 that leads to the frame at `leaf`, which is not the table's own.
#[inline(always)]
pub fn user_leaf_link(leaf: u64) -> u64 {
    user_link(leaf) | bits::LINKED | bits::ACCESSED
}
