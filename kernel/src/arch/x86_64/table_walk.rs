//! Walks of the present entries of a user half: clears a range, frees all tables.

use core::sync::atomic::{AtomicU64, Ordering};

use percore::Pinned;
use vm::PageRange;

use super::above::KernelFrames;
use super::entry_count;
use super::page_table::{ENTRIES, TOP, Table, bits, is_any_present, is_huge};
use super::tlb::Flusher;
use crate::above::Above;

/// Removes every present entry of the pages of `runs`, and flushes what it removes if this core runs on the
/// table. A linked leaf keeps its entries: its pages are flushed, or, if all are in one run, it is unlinked.
/// Entries of tables that `COUNTS` may have counts of reads, which move to their frames.
///
/// # Safety
/// `top` is a top table, and none of its tables is freed meanwhile.
#[inline(always)]
pub unsafe fn clear<const COUNTS: bool>(top: &Table, runs: &[PageRange], in_use: bool) {
    let mut flusher = Flusher::new(in_use);
    for run in runs {
        // SAFETY: the caller's promise.
        unsafe { clear_run::<COUNTS>(top, *run, &mut flusher) };
    }
    flusher.finish();
}

/// Does the same for one run.
///
/// # Safety
/// As for [`clear`].
#[inline(always)]
unsafe fn clear_run<const COUNTS: bool>(top: &Table, pages: PageRange, flusher: &mut Flusher) {
    let (mut at, end) = (pages.start().get(), pages.end().get());
    while at < end {
        // SAFETY: the caller's table.
        let (lowest, next) = unsafe { descend(top, at) };
        match lowest {
            Lowest::Leaves(leaves) => clear_leaves::<COUNTS>(leaves, at, next.min(end), flusher),
            Lowest::Link(entry) => clear_link(entry, at, next.min(end), flusher),
            Lowest::Other(entry) => clear_huge(entry, at, flusher),
        }
        at = next;
    }
}

/// The lowest entry or table that a walk reaches.
enum Lowest<'a> {
    /// A table of level 0.
    Leaves(&'a Table),
    /// An entry that leads to a leaf of the space's map.
    Link(&'a AtomicU64),
    /// An entry that leads to no table: empty, or a huge page.
    Other(&'a AtomicU64),
}

/// Returns the lowest entry or table for page number `page`, and the first page that it does not cover.
///
/// # Safety
/// As for [`clear`].
#[inline(always)]
unsafe fn descend(top: &Table, page: u64) -> (Lowest<'_>, u64) {
    let mut table = top;
    for level in (1..=TOP).rev() {
        let entry = table.toward(page, level);
        // Relaxed: the core that clears holds the locks of these pages' slots, and the CPU's walks need no
        // order.
        let value = entry.load(Ordering::Relaxed);
        if value & bits::LINKED != 0 {
            return (Lowest::Link(entry), beyond(page, 1));
        }
        // SAFETY: an upper entry of a user half.
        match unsafe { Table::below(value) } {
            Some(below) => table = below,
            None => return (Lowest::Other(entry), beyond_absent(table, page, level)),
        }
    }
    (Lowest::Leaves(table), beyond(page, 1))
}

/// Returns the first page beyond that of an entry of level `level` that leads to no table, and beyond the
/// absent entries next to it.
#[cold]
fn beyond_absent(table: &Table, page: u64, level: u32) -> u64 {
    let number = page >> (9 * level);
    let first = number & !(ENTRIES as u64 - 1);
    let next = table.next_present((number - first) as usize + 1);
    (first + next as u64) << (9 * level)
}

fn clear_link(entry: &AtomicU64, start: u64, end: u64, flusher: &mut Flusher) {
    if end - start == ENTRIES as u64 {
        // Relaxed: only this core walks it.
        entry.store(0, Ordering::Relaxed);
        return flusher.cleared_many();
    }
    (start..end).for_each(|page| flusher.cleared(page));
}

/// Removes a huge page as a whole, though the range may cover only a part of it. In a shared table another
/// core may have replaced it with a table already, in which the pages of the range have no entries.
fn clear_huge(entry: &AtomicU64, page: u64, flusher: &mut Flusher) {
    let seen = entry.load(Ordering::Relaxed);
    if is_huge(seen) {
        // Relaxed: as in `descend`.
        let _ = entry.compare_exchange(seen, 0, Ordering::Relaxed, Ordering::Relaxed);
        flusher.cleared(page);
    }
}

/// Returns the first page that the next entry of level `level` covers.
#[inline(always)]
fn beyond(page: u64, level: u32) -> u64 {
    ((page >> (9 * level)) + 1) << (9 * level)
}

#[inline(always)]
fn clear_leaves<const COUNTS: bool>(table: &Table, start: u64, end: u64, flusher: &mut Flusher) {
    match end - start {
        1 => clear_leaf::<COUNTS>(table, start, flusher),
        _ => clear_many::<COUNTS>(table, start, end, flusher),
    }
}

#[inline(never)]
fn clear_many<const COUNTS: bool>(table: &Table, start: u64, end: u64, flusher: &mut Flusher) {
    let first = start & !(ENTRIES as u64 - 1);
    let next = |page: u64| first + table.next_present((page - first) as usize) as u64;
    let mut page = next(start);
    while page < end {
        clear_leaf::<COUNTS>(table, page, flusher);
        page = next(page + 1);
    }
}

#[inline(always)]
fn clear_leaf<const COUNTS: bool>(table: &Table, page: u64, flusher: &mut Flusher) {
    let entry = table.toward(page, 0);
    // Relaxed: as in `descend`.
    if entry.load(Ordering::Relaxed) & bits::PRESENT != 0 {
        if COUNTS {
            entry_count::replace(entry, 0);
        } else {
            entry.store(0, Ordering::Relaxed);
        }
        flusher.cleared(page);
    }
}

/// Frees the top table at `root` and every table of its user half, lowest first, at most `most` of them, and
/// returns whether that was all. The frames that the leaves map are not freed.
///
/// # Safety
/// No core uses the table, now or later.
pub unsafe fn free_user_half(pin: &Pinned, root: u64, most: usize) -> bool {
    let mut left = most;
    // SAFETY: the caller's table.
    unsafe { free_below(pin, root, TOP, ENTRIES / 2, &mut left) }
}

/// Frees the table at `phys` after every one below it, until `left` is 0. Returns whether it was freed.
///
/// # Safety
/// The table is of level `level`. Its first `entries` entries are a user's. No core uses it.
unsafe fn free_below(pin: &Pinned, phys: u64, level: u32, entries: usize, left: &mut usize) -> bool {
    if level > 0 {
        // SAFETY: still a table.
        for entry in entries_below(unsafe { Table::at(phys) }, entries) {
            // SAFETY: it is of the level below.
            if !unsafe { free_below(pin, value(entry) & bits::ADDRESS, level - 1, ENTRIES, left) } {
                return false;
            }
            // Relaxed: only the next call walks here.
            entry.store(0, Ordering::Relaxed);
        }
    }
    if *left == 0 {
        return false;
    }
    *left -= 1;
    Above::free_table(pin, phys >> 12);
    true
}

/// Returns the number of tables: the top table at `root` and all below its user half.
///
/// # Safety
/// None of the tables is freed meanwhile.
pub unsafe fn count(root: u64) -> u64 {
    let mut tables = 0;
    // SAFETY: the caller's promise.
    unsafe { each_table(root, TOP, ENTRIES / 2, &mut |_| tables += 1) };
    tables
}

/// Calls `visit` with the frame of every table of the user half at `root`.
///
/// # Safety
/// None of the tables is freed meanwhile.
pub unsafe fn each_frame(root: u64, visit: &mut dyn FnMut(u64)) {
    // SAFETY: the caller's promise.
    unsafe { each_table(root, TOP, ENTRIES / 2, &mut |table| visit(table >> 12)) };
}

fn value(entry: &AtomicU64) -> u64 {
    entry.load(Ordering::Relaxed)
}

/// Returns the entries of a table of level 1 or more that lead to a table. Huge pages lead to none, and
/// linked leaves belong to the map.
fn entries_below(table: &Table, entries: usize) -> impl Iterator<Item = &AtomicU64> {
    let present = table.groups(entries).filter(is_any_present).flatten();
    present.filter(|entry| value(entry) & (bits::PRESENT | bits::LARGE | bits::LINKED) == bits::PRESENT)
}

/// Calls `visit` with the table at `phys`, and every one below it, lowest first.
///
/// # Safety
/// The table is of level `level`. Its first `entries` entries are a user's. No core frees its tables.
unsafe fn each_table(phys: u64, level: u32, entries: usize, visit: &mut dyn FnMut(u64)) {
    if level > 0 {
        // SAFETY: still a table.
        for entry in entries_below(unsafe { Table::at(phys) }, entries) {
            // SAFETY: it is of the level below.
            unsafe { each_table(value(entry) & bits::ADDRESS, level - 1, ENTRIES, visit) };
        }
    }
    visit(phys);
}
