//! Where memory of the program lies: the addresses that may be its own, and those that are chosen for it.

use pathreads::block;
use pathreads::member_reservation::{VIEWS, VIEWS_END};
use pathreads::record::Record;
use pathreads::{PAGE, RUNTIME_END, SLOTS_BASE, page_end, page_start};

use abi::Errno;

use super::memory::remove;
use super::{blocks, me};
use crate::sys::{MAP_FIXED, MAP_FIXED_NOREPLACE, PROT_EXEC, PROT_READ, PROT_WRITE, Result};

/// Where the heap begins, and the most that it grows to.
pub const HEAP: u64 = 0x0800_0000_0000;
pub const HEAP_MOST: u64 = 1 << 40;

/// Where members look for free addresses: each first in a part of its own.
const ARENA: u64 = 0x1000_0000_0000;
const ARENA_PART: u64 = 1 << 37;
const ARENA_END: u64 = block::START - PAGE;

/// The same for mappings that ask for low addresses.
const LOW: u64 = 0x4000_0000;

/// The end of the addresses of a process.
pub const END: u64 = (1 << 47) - PAGE;

pub const RIGHTS: u64 = PROT_READ | PROT_WRITE | PROT_EXEC;

pub const HUGE_PAGE: u64 = 2 << 20;

/// Chooses the address of a mapping. A fixed one replaces the memory that is there.
pub fn place(record: &mut Record, address: u64, length: u64, flags: u64, huge_offset: Option<u64>) -> Result {
    const MAP_32BIT: u64 = 0x40;
    let end = address.checked_add(length).filter(|end| *end <= END);
    if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
        if !address.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        let end = end.filter(|end| is_programs(address, *end)).ok_or(Errno::ENOMEM)?;
        if flags & MAP_FIXED_NOREPLACE != 0 && blocks::is_busy(address, end) {
            return Err(Errno::EEXIST);
        }
        blocks::settle(record, address, end)?;
        if flags & MAP_FIXED_NOREPLACE != 0 {
            return if record.is_free(address, end) { Ok(address) } else { Err(Errno::EEXIST) };
        }
        remove(record, address, end)?;
        return Ok(address);
    }
    if flags & MAP_32BIT != 0 {
        return record.gap(length, LOW, SLOTS_BASE).ok_or(Errno::ENOMEM);
    }
    let wanted = page_start(address);
    let is_possible = wanted >= 1 << 16 && wanted.checked_add(length).is_some_and(|end| end <= block::END);
    // A block that another member is about to unmap is not free yet, and it may still write zeroes there.
    let is_taken = |end: u64| blocks::is_busy(wanted - PAGE, end + PAGE);
    if is_possible && is_programs(wanted, wanted + length) && !is_taken(wanted + length) {
        blocks::settle(record, wanted, wanted + length)?;
        if record.is_free(wanted, wanted + length) {
            return Ok(wanted);
        }
    }
    if let Some(offset) = huge_offset
        && let Ok(start) = free_range(record, length + HUGE_PAGE)
    {
        return Ok(start + (offset.wrapping_sub(start) & (HUGE_PAGE - 1)));
    }
    free_range(record, length)
}

/// Returns whether a range may be the program's: the runtime has others.
pub fn is_programs(start: u64, end: u64) -> bool {
    end <= SLOTS_BASE || RUNTIME_END <= start && end <= VIEWS || VIEWS_END <= start
}

/// Returns the bounds of the addresses where this member looks first for free ones.
pub fn own_part() -> [u64; 2] {
    let start = ARENA + me() as u64 * ARENA_PART;
    [start, (start + ARENA_PART).min(ARENA_END)]
}

pub fn free_range(record: &Record, length: u64) -> Result {
    let [start, end] = own_part();
    let found = record.gap(length, start, end);
    found.or_else(|| record.gap(length, ARENA, ARENA_END)).ok_or(Errno::ENOMEM)
}

/// Returns the end of a range.
pub fn range(start: u64, length: u64) -> Result {
    if !start.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    start.checked_add(page_end(length)).filter(|end| *end <= END && length <= END).ok_or(Errno::EINVAL)
}

/// Returns whether a mapping can grow here.
pub fn is_room(record: &Record, start: u64, end: u64) -> bool {
    end <= ARENA_END && is_programs(start, end) && record.is_free(start, end)
}
