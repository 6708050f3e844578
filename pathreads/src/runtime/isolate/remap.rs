//! `mremap`. A private mapping of a file, parts of which were copied, is one mapping to the program: it
//! becomes one copy before it moves or grows.

use core::sync::atomic::Ordering;

use abi::Errno;
use pathreads::page_end;
use pathreads::record::{Members, NO_FILE, Record, Region};

use super::addresses::{END, free_range, is_programs, is_room, range};
use super::copies::{copy_data, copy_part, file_of};
use super::descriptors::{close_private, copy_away};
use super::memory::{add, remove};
use super::{
    announce_to_all, blocks, control, fork, full, memory_file, snapshots, with_others_stopped, with_record,
};
use crate::sys::Result;

const MREMAP_MAYMOVE: u64 = 1;
pub const MREMAP_FIXED: u64 = 2;

/// Moves memory or changes its length, as `mremap` does.
pub fn resize([start, old, new, flags, target, _]: [u64; 6]) -> Result {
    let is_fixed = flags & MREMAP_FIXED != 0;
    let (old, new) = (page_end(old), page_end(new));
    range(start, old)?;
    if old == 0
        || new == 0
        || new > END
        || flags & !(MREMAP_MAYMOVE | MREMAP_FIXED) != 0
        || is_fixed && flags & MREMAP_MAYMOVE == 0
    {
        return Err(Errno::EINVAL);
    }
    let is_apart = |end: u64| is_programs(target, end) && (start + old <= target || end <= start);
    if is_fixed && !range(target, new).is_ok_and(is_apart) {
        return Err(Errno::EINVAL);
    }
    with_record(|record| {
        blocks::settle(record, start, start + old)?;
        let behind = if new > old { file_behind(record, start, start + old) } else { None };
        if let Some((file, offset)) = behind
            && !is_fixed
            && is_room(record, start + old, start + new)
        {
            let rights = record.at(start).map_or(0, |region| region.rights);
            add(record, of_file(start + old, start + new, rights, file, offset + old))?;
            return Ok(start);
        }
        // The last part of the file that is copied closes its descriptor. Other members do not have those of
        // a child of `vfork`.
        let behind = match behind.filter(|_| !fork::is_sharing()) {
            Some((file, offset)) => Some((copy_away(file)?, offset)),
            None => None,
        };
        let moved = move_or_resize(record, [start, old, new, flags, target], behind);
        if let Some((file, _)) = behind {
            control().private_files.fetch_add(1, Ordering::Relaxed);
            if !record.has_file(file) {
                close_private(file);
            }
        }
        moved
    })
}

/// Returns the descriptor of the file of a private mapping of which parts were copied, and the offset of its
/// start.
fn file_behind(record: &Record, start: u64, end: u64) -> Option<(u64, u64)> {
    let mut regions = record.touched(start, end);
    if regions.clone().nth(1).is_none() || !is_one(record, start, end) {
        return None;
    }
    let region = regions.find(|region| region.is_private && !region.is_snapshot)?;
    let offset = match region.start.checked_sub(start) {
        Some(before) => region.offset.checked_sub(before)?,
        None => region.offset_of(start),
    };
    Some((region.file, offset))
}

/// Returns a region of a private mapping of a file, which no member has yet.
fn of_file(start: u64, end: u64, rights: u64, file: u64, offset: u64) -> Region {
    let (holders, current) = (Members::NONE, Members::NONE);
    Region {
        start,
        end,
        rights,
        file,
        offset,
        is_copy: false,
        is_private: true,
        is_snapshot: false,
        is_stack: false,
        holders,
        current,
    }
}

/// Does so for memory that has one file, or none, or becomes one copy. `behind` is the file that a mapping
/// shows where it grows, if it becomes one copy. The lock is held.
fn move_or_resize(
    record: &mut Record,
    [start, old, new, flags, target]: [u64; 5],
    behind: Option<(u64, u64)>,
) -> Result {
    let is_fixed = flags & MREMAP_FIXED != 0;
    if new > old || is_fixed {
        make_one(record, start, start + old)?;
    }
    if new <= old && !is_fixed {
        // As on Linux, other mappings may follow, which go.
        if !is_one(record, start, start + new) {
            return Err(Errno::EFAULT);
        }
        remove(record, start + new, start + old)?;
        return Ok(start);
    }
    let region = record.at(start).copied().filter(|region| start + old.min(new) <= region.end);
    let region = region.ok_or(Errno::EFAULT)?;
    if start + old > region.end {
        return Err(Errno::EFAULT);
    }
    // New memory is the program's.
    let part = if region.is_anonymous() {
        let (file, offset) = (NO_FILE, snapshots::layer());
        Region { file, offset, is_private: false, is_snapshot: false, ..region }
    } else {
        region
    };
    let part = Region { holders: Members::NONE, current: Members::NONE, ..part };
    let offset_at = |place: u64| if part.file == NO_FILE { part.offset } else { region.offset_of(place) };
    if !is_fixed && start + old == region.end && is_room(record, region.end, start + new) {
        let offset = offset_at(region.end);
        add(record, Region { start: region.end, end: start + new, offset, ..part })?;
        return Ok(start);
    }
    if flags & MREMAP_MAYMOVE == 0 {
        return Err(Errno::ENOMEM);
    }
    let to = if is_fixed { target } else { free_range(record, new)? };
    if is_fixed {
        remove(record, to, to + new)?;
    }
    let first = if region.is_anonymous() && behind.is_some() { old } else { new };
    add(record, Region { start: to, end: to + first, offset: offset_at(start), ..part })?;
    if region.is_anonymous() {
        let (from, target) = (region.offset_of(start), part.offset + to);
        let copied = copy_data(file_of(&region), from, memory_file(), target, old.min(new));
        copied.or_else(|error| remove(record, to, to + new).and(Err(error)))?;
    }
    if let Some((file, offset)) = behind.filter(|_| first < new) {
        add(record, of_file(to + old, to + new, region.rights, file, offset + old))
            .or_else(|error| remove(record, to, to + old).and(Err(error)))?;
    }
    remove(record, start, start + old).or_else(|error| remove(record, to, to + new).and(Err(error)))?;
    Ok(to)
}

/// Returns whether a range is one mapping to the program: parts of a private mapping may be copied.
fn is_one(record: &Record, start: u64, end: u64) -> bool {
    let is_whole = record.covers(start, end);
    let regions = record.touched(start, end);
    let rights = regions.clone().next().map_or(0, |region| region.rights);
    let is_one = |is_part: fn(&Region) -> bool| {
        regions.clone().all(|region| region.rights == rights && is_part(region))
    };
    // Where one mapping of a file begins in it. Two may lie beside each other.
    let mut places = regions.clone().filter(|region| region.is_private && !region.is_snapshot);
    let place = |region: &Region| region.offset.wrapping_sub(region.start);
    let is_one_file = places.next().is_none_or(|first| places.all(|other| place(other) == place(first)));
    is_whole
        && (regions.clone().nth(1).is_none()
            || is_one_file && is_one(|region| region.is_private || region.is_copy)
            || is_one(|region| region.is_anonymous() && !region.is_copy))
}

/// Makes a private mapping, of which parts were copied, one copy in one layer.
fn make_one(record: &mut Record, start: u64, end: u64) -> Result<()> {
    if record.touched(start, end).nth(1).is_none() || !is_one(record, start, end) {
        return Ok(());
    }
    record.divide(start, end).map_err(full)?;
    let layer = snapshots::layer();
    let is_apart = |region: &&Region| region.file != NO_FILE || region.offset != layer;
    while let Some(region) = record.touched(start, end).find(is_apart).copied() {
        // Other members may write to memory that is no private mapping.
        with_others_stopped(|| copy_part(record, &region, region.start, region.end))?;
    }
    // All lie in the program's memory, and are mapped there wherever they are mapped.
    let regions = record.touched(start, end);
    let holders = regions.fold(Members::NONE, |all, region| all.and_all(region.holders));
    record.change(start, end, |region| (region.holders, region.current) = (holders, Members::NONE));
    record.join(start, end);
    announce_to_all();
    Ok(())
}
