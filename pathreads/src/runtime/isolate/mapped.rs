//! Memory as this member has it mapped. A member maps memory when it lacks some: at a fault ([`fault`]),
//! before a call that names it ([`touch`]), and before a call that may name any ([`sync`]).

use core::sync::atomic::{AtomicU64, Ordering};

use pathreads::record::{Members, NO_FILE, Record, Region};
use pathreads::requests;

use super::copies::{self, needs_copy};
use super::stats::{self, Work};
use super::{
    blocks, control, fork, lacks, locked, me, memory_file, prepare_stack, remembered, snapshots, stale,
};
use crate::sys::{
    self, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE, Result,
    harmless, nr,
};

/// The version up to which this member has all that is recorded.
pub static SYNCED: AtomicU64 = AtomicU64::new(0);

/// No version.
pub const NEVER: u64 = u64::MAX;

/// Maps a region here as it is recorded.
pub fn map_here(region: &Region) -> Result {
    let Region { start, end, .. } = *region;
    stale::unmap(start, end)?;
    stale::with_room(|| map_as_recorded(region))
}

fn map_as_recorded(region: &Region) -> Result {
    let Region { start, end, .. } = *region;
    let file = if region.file == NO_FILE { memory_file() } else { region.file };
    let offset = region.offset_of(start);
    // A snapshot of the program's own memory may become that again, as it is mapped.
    let is_private = region.is_private && !snapshots::is_own(region);
    let kind = if is_private { MAP_PRIVATE } else { MAP_SHARED };
    let (rights, flags) = (region.mapped_rights(), kind | MAP_FIXED | MAP_NORESERVE);
    // SAFETY: the memory is the program's.
    unsafe { sys::mmap(start, end - start, rights, flags, file, offset) }
}

/// Maps a region here, and notes that.
pub fn take(region: &mut Region) -> Result {
    // A block that was made ordinary for this member was counted as mapped here.
    let mapped = map_here(region).inspect_err(|_| SYNCED.store(NEVER, Ordering::Relaxed))?;
    region.holders = region.holders.with(me());
    if !fork::is_sharing() {
        region.current = region.current.with(me());
    }
    Ok(mapped)
}

/// Does the same for memory that is there, and that this member lacks.
fn fill(region: &mut Region) -> Result {
    stats::note_fill();
    take(region)
}

/// Maps a region of which a copy was made. The right to write comes by a fault, when all have the copy.
pub fn replace_here(region: &Region) {
    remembered::forget(region.start, region.end);
    let rights =
        if region.rights & PROT_WRITE == 0 { region.rights } else { region.rights & !PROT_WRITE | PROT_READ };
    if map_here(&Region { rights, ..*region }).is_err() {
        unmap_here(region.start, region.end);
    }
}

/// Unmaps memory here. Fails, and changes nothing, if a part of a mapping goes and Linux allows no more
/// mappings.
pub fn try_unmap_here(start: u64, end: u64) -> Result {
    remembered::forget(start, end);
    stale::unmap(start, end)?;
    // SAFETY: the memory is the program's, which unmaps it.
    stale::with_room(|| unsafe { sys::call(nr::MUNMAP, [start, end - start, 0]) })
}

/// Returns the bounds of the first neighbours that a range touches, and the members that may have one mapped.
/// The record is divided at the ends of the range.
pub fn first_run(record: &Record, start: u64, end: u64) -> Option<(u64, u64, Members)> {
    let mut regions = record.touched(start, end);
    let &Region { start, end, holders, .. } = regions.next()?;
    let (mut reached, mut all) = (end, holders);
    for next in regions {
        if next.start != reached {
            break;
        }
        (reached, all) = (next.end, all.and_all(next.holders));
    }
    Some((start, reached, all))
}

/// Unmaps memory here that the program has still, or of which no mapping is divided.
pub fn unmap_here(start: u64, end: u64) {
    let _ = try_unmap_here(start, end);
}

/// Gives memory here the rights that are recorded. Fails, and changes nothing, if Linux allows no more
/// mappings. Memory that is not mapped here is mapped: a child of `vfork` has mapped it in this member's
/// name.
pub fn protect_here(region: &Region) -> Result {
    remembered::forget(region.start, region.end);
    // It may be recorded again, and stale here: that is not made this region by a change of its rights.
    stale::unmap(region.start, region.end)?;
    // SAFETY: the memory is the program's.
    unsafe { sys::call(nr::MPROTECT, [region.start, region.end - region.start, region.mapped_rights()]) }
        .or_else(|_| map_here(region))
}

/// Gives pages of the program's memory back, by their offsets. They are zero when they are used again.
pub fn punch(start: u64, end: u64) {
    const KEEP_SIZE_PUNCH_HOLE: u64 = 3;
    let _ = harmless!(nr::FALLOCATE, memory_file(), KEEP_SIZE_PUNCH_HOLE, start, end - start);
}

/// Handles an access to memory that this member does not have as recorded. Returns whether it has it now.
/// `cause` is the processor's error code.
pub fn fault(address: u64, cause: u64) -> bool {
    stats::timed(Work::Fault, || locked(|record| handle_fault(record, address, cause)))
}

/// Handles a SIGBUS. Returns whether the access is to be tried again, because the memory was stale here.
pub fn stale_fault(address: u64, cause: u64) -> bool {
    stats::timed(Work::Fault, || {
        locked(|record| {
            if stale::has(address) {
                return handle_fault(record, address, cause);
            }
            // A request, or a handler of the program, may have come before the lock, and what was stale is
            // unmapped.
            if record.at(address).is_some_and(|region| region.current.has(me())) {
                return stale::is_first_try(address);
            }
            handle_fault(record, address, cause) || stale::is_unmapped(address)
        })
    })
}

fn handle_fault(record: &mut Record, address: u64, cause: u64) -> bool {
    // Stale memory that is not recorded is unmapped: the next access is the program's fault, as Linux
    // describes it.
    let unmap = || stale::has(address) && stale::unmap(address, address + 1).is_ok();
    fill_at(record, address, cause) || unmap()
}

/// Maps the region at an address here, if the program may access that, or this member lacks it: then the next
/// access is the program's fault, too. The lock is held.
fn fill_at(record: &mut Record, address: u64, cause: u64) -> bool {
    const WRITE: u64 = 1 << 1;
    const FETCH: u64 = 1 << 4;
    let needed = match cause {
        _ if cause & WRITE != 0 => PROT_WRITE,
        _ if cause & FETCH != 0 => PROT_EXEC,
        _ => PROT_READ | PROT_WRITE,
    };
    let is_refused = |region: &Region| region.rights & needed == 0;
    let is_had = |region: &Region| region.current.has(me()) || fork::is_sharing();
    let is_there = |region: &&mut Region| !(is_refused(region) && is_had(region)) && blocks::is_open(region);
    let Some(region) = record.at_mut(address).filter(is_there) else {
        return false;
    };
    if is_refused(region) {
        return take(region).is_ok();
    }
    stats::note_fault();
    if needed == PROT_WRITE && region.needs_copy() {
        return write_private(record, address);
    }
    fill(region).is_ok()
}

/// Has a page copied that is written to, if its file has it.
fn write_private(record: &mut Record, address: u64) -> bool {
    if copies::copy_private(record, address, address + 1).is_err() {
        return false;
    }
    let Some(region) = record.at_mut(address).filter(|region| region.needs_copy()) else { return true };
    fill(region).is_ok() && copies::open_behind(region, address)
}

/// Maps all regions that this member does not have as recorded. Inlined, because Go makes calls with little
/// stack.
#[inline(always)]
pub fn sync() {
    stale::name_all();
    if stale::is_new() || !is_synced() || blocks::are_new() {
        stats::timed(Work::Fill, map_all);
    }
}

/// Does the same before a call of which the memory is not known. Memory that must be copied before it is
/// written to is copied where an argument points to.
pub fn sync_to_write(call: &[u64; 7]) {
    const LIKELY: u64 = 1 << 20;
    sync();
    let named = || call[1..].iter().filter(|at| needs_copy(**at, at.saturating_add(1)));
    if named().next().is_some() {
        prepare_stack();
        locked(|record| {
            for at in named() {
                // The kernel reports memory that cannot be had.
                let _ = copies::copy_private(record, *at, at.saturating_add(LIKELY));
            }
        });
    }
    // A copy may have been made meanwhile.
    sync();
}

#[inline(never)]
fn map_all() {
    prepare_stack();
    locked(|record| {
        blocks::note_seen();
        stale::note_seen();
        let is_missing =
            |region: &&mut Region| region.rights != 0 && !region.current.has(me()) && blocks::is_open(region);
        for region in record.all_mut().filter(is_missing) {
            let _ = fill(region);
        }
        note_synced();
    });
}

/// Notes that this task has all that is recorded.
pub fn note_synced() {
    requests::note_synced(&control().version, &SYNCED);
}

/// Returns whether this member has all that is recorded, but blocks of other members.
fn is_synced() -> bool {
    requests::is_synced(&control().version, &SYNCED)
}

/// Maps the regions of a range that this member does not have as recorded.
#[inline(always)]
pub fn touch(start: u64, length: u64) {
    stale::name(start, start.saturating_add(length));
    // The version is read after the states of blocks: it is increased before one becomes ordinary.
    let has_it = if lacks::looks() || stale::is_new() {
        false
    } else if is_synced() && !needs_copy(start, start.saturating_add(length)) {
        !blocks::may_be_others(start, length) && is_synced()
    } else {
        remembered::has(start, length)
    };
    if !has_it {
        stats::timed(Work::Fill, || map_range(start, length));
    }
}

#[inline(never)]
fn map_range(start: u64, length: u64) {
    prepare_stack();
    locked(|record| {
        let end = start.saturating_add(length);
        stale::note_seen();
        bring(record, start, end);
        if needs_copy(start, end) {
            copies::narrow_copies(record);
        }
        if lacks::looks() {
            lacks::note(record, start, end);
        }
        let is_ready = |region: &&Region| region.current.has(me()) && !region.needs_copy();
        if let Some(region) = record.at(start).filter(is_ready) {
            remembered::add(region);
        }
    });
}

/// Maps the regions of a range that this member does not have as recorded, so that the kernel may write
/// there. The lock is held.
pub fn bring(record: &mut Record, start: u64, end: u64) {
    // The kernel reports memory that cannot be had.
    let _ = copies::copy_private(record, start, end);
    map_missing(record, start, end, fill);
}

/// Maps the regions of a range that this member does not have as recorded. The lock is held.
pub fn touch_in(record: &mut Record, start: u64, end: u64) {
    map_missing(record, start, end, take);
}

fn map_missing(record: &mut Record, start: u64, end: u64, map: fn(&mut Region) -> Result) {
    record.change(start, end, |region| {
        if !region.current.has(me()) && blocks::is_open(region) {
            let _ = map(region);
        }
    });
}

/// Notes that members may have less than is recorded. The lock is held. This member has what changed, or
/// maps it before the lock is released.
pub fn announce() {
    requests::note_announced(&SYNCED, announce_to_all());
}

/// Notes that members may have less than is recorded, this one included. Returns the version before.
pub fn announce_to_all() -> u64 {
    let version = requests::announce(&control().version);
    lacks::tell();
    version
}
