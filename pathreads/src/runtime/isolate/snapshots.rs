//! `fork` that copies large memory on demand.
//!
//! The program's memory is one file. When a process is made, large parts of that become a *snapshot*, to
//! which no process writes any more. Parent and child treat it as a private mapping of a file: it is mapped
//! without the right to write, and a part is copied before it is written to (`copies::copy_private`). The
//! rest is copied at once into a file of the child.
//!
//! The file has *layers* ([`LAYER`]), and in each an address has a place of its own. The parent's copies go
//! into a layer in which they have not been. A child begins with one layer of its own file.
//!
//! | a region | `file` | `offset` | private |
//! |---|---|---|---|
//! | the program's memory | none | its layer | no |
//! | a snapshot of the program's own memory | the descriptor of that memory | the layer and the address | yes |
//! | a snapshot of an ancestor's memory | a descriptor that is kept | the same in that file | yes |
//!
//! 1. *No process writes to a snapshot.* All other members are stopped when it is made ([`begin`]), and lose
//!    the right to write before the child is made and they go on. A child of `vfork` is not asked, nor is a
//!    member that has left and clears its last word, so there are no new snapshots while there is one.
//! 2. *A layer is new where something is put into it.* While there are snapshots, copies and new memory go
//!    into a layer above all that have been in use since there are any ([`next_layer`]): children may read
//!    one that no region of the parent names any more. Without snapshots nothing is in a layer that no region
//!    names there.
//! 3. *A child locks its parent's file*, by an open file description of its own that its children inherit.
//!    When no lock is left, the program's snapshots are its memory again, as they are, and data that no
//!    region names goes ([`end`]). The kernel removes the lock of a process that is killed.
//! 4. *No stack that is in use is in a snapshot*, because the kernel writes the frames of signals there, and
//!    the runtime stands on it under the lock. Threads say where their stacks are when they are stopped
//!    ([`note_stacks`]). Memory that was mapped as a stack (MAP_STACK) is in none at all.
//! 5. *A futex is in memory of the program while a thread waits there*: its word is copied before the call,
//!    and before it is made again (`calls::prepare_again`).

use core::sync::atomic::{AtomicU64, Ordering};

use pathreads::record::{LAYER, MOST_MEMBERS, Members, NO_FILE, Record, Region};
use pathreads::{page_end, page_start};

use super::copies;
use super::descriptors::MOST_PRIVATE;
use super::{
    Request, blocks, control, fork, me, memory_file, remembered, request_or_fail, reservations, stale,
};
use crate::stack;
use crate::sys::{self, PROT_EXEC, Result, harmless, nr};

/// The most layers: the file has them all from its beginning.
pub const MOST_LAYERS: u64 = 1 << 15;

/// The least length of neighbours of which a snapshot is made. Stacks of the usual size are smaller.
const LEAST_LENGTH: u64 = 16 << 20;

/// The least data in them. Less is copied as fast.
const LEAST_DATA: u64 = 4 << 20;

/// With more regions everything is copied, so that the child's and the parent's do not become ever more.
const MANY_REGIONS: usize = 8_000;

/// When more regions are not in the first layer, they are moved there before another snapshot is made.
const FEW_APART: usize = 2_048;

/// The bytes below a stack's pointer and above that are in no snapshot.
const BELOW: u64 = 8 << 20;
const ABOVE: u64 = 8 << 20;

/// The memory that is a member's stack, as bounds: where it was interrupted, where it left the program's
/// stack, and its stack for signals.
pub struct Stacks([[AtomicU64; 2]; 3]);

/// Notes where this member's stacks are.
pub fn note_stacks(pointer: u64) {
    let around = |pointer: u64| [pointer.saturating_sub(BELOW), pointer.saturating_add(ABOVE)];
    let signals = super::OF_SIGNALS.each_ref().map(|bound| bound.load(Ordering::Relaxed));
    let ranges = [around(pointer), around(stack::left_by(pointer).unwrap_or(pointer)), signals];
    for (place, range) in control().members[me()].stacks.0.iter().flatten().zip(ranges.as_flattened()) {
        place.store(*range, Ordering::Relaxed);
    }
}

/// Returns the parts of a range that are stacks.
fn stacks_in(start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let is_there =
        |member: &usize| *member == me() || control().members[*member].thread.load(Ordering::Relaxed) != 0;
    let all = (0..MOST_MEMBERS).filter(is_there).flat_map(|member| &control().members[member].stacks.0);
    all.filter_map(move |[low, high]| {
        let (low, high) = (low.load(Ordering::Relaxed), high.load(Ordering::Relaxed));
        let part = (page_start(low).max(start), page_end(high.min(end)).min(end));
        (part.0 < part.1).then_some(part)
    })
}

/// Returns the offset of the layer for copies and new memory.
pub fn layer() -> u64 {
    control().layer.load(Ordering::Relaxed)
}

/// Returns whether a region is a snapshot of the program's own memory.
pub fn is_own(region: &Region) -> bool {
    region.is_snapshot && region.file == memory_file()
}

/// Makes snapshots for a child that is about to be made. All other members are stopped. Returns a descriptor
/// for the child, or `None` if there are none: then all own memory is to be copied. The regions of the record
/// have this descriptor until [`go_on`].
pub fn begin(record: &mut Record) -> Option<u64> {
    // They are in no snapshot, and would be copied at once.
    reservations::settle_large(record, LEAST_LENGTH).ok()?;
    // A member that has left is not stopped.
    let are_stopped = control().leaving.load(Ordering::Relaxed) == 0;
    let apart = record.all().filter(|region| is_apart(region)).count();
    // A child of `vfork` is not asked when memory moves.
    if end(record) && are_stopped && !fork::has_sharing_children() && apart > FEW_APART {
        join_layers(record);
    }
    let is_possible = are_stopped
        && !fork::has_sharing_children()
        && record.len() < MANY_REGIONS
        && control().private_files.load(Ordering::Relaxed) < MOST_PRIVATE;
    if !is_possible || !record.all().any(is_own) && next_run(record, 0).is_none() {
        return None;
    }
    let [layer, highest] = next_layer(record)?;
    let file = open_again().ok()?;
    let mut at = 0;
    while let Some((start, end)) = next_run(record, at) {
        make(record, start, end, file);
        at = end;
    }
    if drop_rights(record, file).is_err() {
        unmake(record, file);
        sys::close(file);
        return None;
    }
    record.change(0, u64::MAX, |region| {
        if is_own(region) {
            region.file = file;
        }
    });
    if !record.has_file(file) {
        sys::close(file);
        return None;
    }
    control().layer.store(layer, Ordering::Relaxed);
    control().highest_layer.store(highest, Ordering::Relaxed);
    control().private_files.fetch_add(1, Ordering::Relaxed);
    Some(file)
}

/// Goes on in the parent when the child was made, or could not be.
pub fn go_on(record: &mut Record, file: u64) {
    record.change(0, u64::MAX, |region| {
        if region.file == file {
            region.file = memory_file();
        }
    });
    control().private_files.fetch_sub(1, Ordering::Relaxed);
    sys::close(file);
}

/// Returns a layer that is not in use, and the highest that has been since there are snapshots. While there
/// are some, the former is above all that have been.
fn next_layer(record: &Record) -> Option<[u64; 2]> {
    let layers = || record.all().map(layer_of);
    let highest = layers().fold(0, u64::max);
    let next = match layer() {
        0 => (1..).map(|number| number * LAYER).find(|layer| layers().all(|used| used != *layer))?,
        _ => highest.max(control().highest_layer.load(Ordering::Relaxed)) + LAYER,
    };
    (next < MOST_LAYERS * LAYER).then_some([next, highest.max(next)])
}

/// Returns the layer of an own region, or 0.
fn layer_of(region: &Region) -> u64 {
    match region.file {
        NO_FILE => region.offset,
        _ if is_own(region) => region.offset / LAYER * LAYER,
        _ => 0,
    }
}

/// Returns the next neighbours that are worth a snapshot: large memory with the same rights and much data.
fn next_run(record: &Record, from: u64) -> Option<(u64, u64)> {
    let is_possible = |region: &Region| {
        region.is_anonymous()
            && !region.is_stack
            && region.rights & PROT_EXEC == 0
            && !blocks::is_block(region)
    };
    let mut regions = record.touched(from, u64::MAX).peekable();
    while let Some(first) = regions.next() {
        if !is_possible(first) {
            continue;
        }
        let (start, mut end) = (first.start, first.end);
        let continues =
            |next: &Region, end: u64| end == next.start && first.rights == next.rights && is_possible(next);
        while let Some(next) = regions.next_if(|next| continues(next, end)) {
            end = next.end;
        }
        if end - start >= LEAST_LENGTH && has_much(record, start, end) {
            return Some((start, end));
        }
    }
    None
}

/// Returns whether neighbours have much data that is in no snapshot.
fn has_much(record: &Record, start: u64, end: u64) -> bool {
    let mut data = 0;
    for region in record.touched(start, end).filter(|region| region.file == NO_FILE) {
        let (mut at, end) = (region.offset_of(region.start), region.offset_of(region.end));
        while let Some(start) = copies::first_data(memory_file(), at, end) {
            at = copies::first_hole(memory_file(), start, end.min(start + LEAST_DATA));
            data += at - start;
            if data >= LEAST_DATA {
                return true;
            }
        }
    }
    false
}

/// Makes neighbours a snapshot, but for stacks.
fn make(record: &mut Record, start: u64, end: u64, file: u64) {
    for (from, to) in stacks_in(start, end) {
        // If the record is full, the whole region is copied.
        let _ = record.divide(from, to);
    }
    record.change(start, end, |region| {
        if region.file == NO_FILE && stacks_in(region.start, region.end).next().is_none() {
            (region.file, region.offset) = (file, region.offset_of(region.start));
            (region.is_private, region.is_snapshot) = (true, true);
        }
    });
}

/// Makes new snapshots the program's memory again. Members that have lost the right to write get it by a
/// fault.
fn unmake(record: &mut Record, file: u64) {
    record.change(0, u64::MAX, |region| {
        if region.file == file {
            (region.file, region.offset) = (NO_FILE, region.offset / LAYER * LAYER);
            (region.is_private, region.is_snapshot) = (false, false);
            region.current = Members::NONE;
        }
    });
    record.join(0, u64::MAX);
    super::announce_to_all();
}

/// Has all members map new snapshots without the right to write. Fails if one cannot, because Linux allows no
/// more mappings: it may write there still.
fn drop_rights(record: &mut Record, file: u64) -> Result<()> {
    drop_rights_here(record, file)?;
    request_or_fail(super::others(), Request::Freeze { file })?;
    for region in record.all_mut().filter(|region| region.file == file) {
        region.current = region.holders;
    }
    copies::note_copies(record);
    super::announce();
    Ok(())
}

/// Does so in this member.
pub fn drop_rights_here(record: &Record, file: u64) -> Result {
    for region in record.all().filter(|region| region.file == file && region.holders.has(me())) {
        let (start, length) = (region.start, region.end - region.start);
        remembered::forget(start, region.end);
        stale::unmap(start, region.end)?;
        // SAFETY: the memory is the program's.
        if unsafe { sys::call(nr::MPROTECT, [start, length, region.mapped_rights()]) }.is_err() {
            super::try_unmap_here(region.start, region.end)?;
        }
    }
    Ok(0)
}

/// The kernel's `struct flock`: the kind in 16 bits, and a range from 0 to the end.
const FLOCK: usize = 4;

/// Opens the program's memory once more, with a lock that says so.
fn open_again() -> Result {
    const O_RDWR_CLOEXEC: u64 = 0x8_0002;
    const PREFIX: &[u8] = b"/proc/self/fd/";
    const F_OFD_SETLK: u64 = 37;
    let (mut path, mut digits) = ([0; 40], [0; 20]);
    let number = sys::decimal(memory_file(), &mut digits);
    path[..PREFIX.len()].copy_from_slice(PREFIX);
    path[PREFIX.len()..PREFIX.len() + number.len()].copy_from_slice(number);
    let file = super::keep_away(harmless!(nr::OPEN, path.as_ptr() as u64, O_RDWR_CLOEXEC)?)?;
    // A lock to read.
    let lock = [0_u64; FLOCK];
    harmless!(nr::FCNTL, file, F_OFD_SETLK, lock.as_ptr() as u64).inspect_err(|_| sys::close(file))?;
    Ok(file)
}

/// Returns whether another process may read the program's memory.
fn is_read_by_others() -> bool {
    const F_OFD_GETLK: u64 = 36;
    const F_WRLCK: u64 = 1;
    const F_UNLCK: u64 = 2;
    let mut lock = [0_u64; FLOCK];
    lock[0] = F_WRLCK;
    let known = harmless!(nr::FCNTL, memory_file(), F_OFD_GETLK, lock.as_mut_ptr() as u64).is_ok();
    !known || lock[0] & 0xffff != F_UNLCK
}

/// Makes the program's snapshots its memory again, if no other process has them. Returns whether it did, or
/// there were none. Members have less than is recorded then.
pub fn end(record: &mut Record) -> bool {
    if layer() == 0 {
        return true;
    }
    if fork::has_sharing_children() || is_read_by_others() {
        return false;
    }
    record.change(0, u64::MAX, |region| {
        if is_own(region) {
            (region.file, region.offset) = (NO_FILE, layer_of(region));
            (region.is_private, region.is_snapshot) = (false, false);
            region.current = Members::NONE;
        }
    });
    record.join(0, u64::MAX);
    control().layer.store(0, Ordering::Relaxed);
    // Before the bounds change: see `touch`.
    super::announce_to_all();
    copies::note_copies(record);
    drop_unnamed(record);
    true
}

/// Counts calls since [`end_sometimes`] has looked.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Ends snapshots that no other process has any more, at some calls about memory. Parts that the program has
/// copied are twice in its file until then.
pub fn end_sometimes() {
    const SOME: u64 = 64;
    if layer() != 0 && CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(SOME) {
        super::with_record(end);
    }
}

/// Gives back what the program's file has and no region names.
fn drop_unnamed(record: &Record) {
    let (mut at, end) = (0, MOST_LAYERS * LAYER);
    while let Some(data) = copies::first_data(memory_file(), at, end) {
        let (layer, address) = (data / LAYER * LAYER, data % LAYER);
        let (bound, is_named) = match record.touched(address, u64::MAX).next() {
            Some(region) if region.start <= address => {
                (region.end, region.file == NO_FILE && region.offset == layer)
            }
            Some(region) => (region.start, false),
            None => (LAYER, false),
        };
        at = layer + bound;
        if !is_named {
            super::punch(data, at);
        }
    }
}

/// Moves memory to the first layer, in which nothing else is at its addresses when there are no snapshots.
/// All other members are stopped. Before it is moved, all members unmap it: one that cannot, because Linux
/// allows no more mappings, would have the old place still. Then all stays.
fn join_layers(record: &mut Record) {
    let is_moved = |region: &Region| is_apart(region) && stacks_in(region.start, region.end).next().is_none();
    for region in record.all_mut().filter(|region| is_moved(region)) {
        region.current = Members::NONE;
    }
    super::announce_to_all();
    let is_forgotten = forget_here(record).and_then(|_| request_or_fail(super::others(), Request::Forget));
    if is_forgotten.is_err() {
        return;
    }
    for region in record.all_mut() {
        region.holders = region.current;
    }
    for moved in record.all_mut() {
        let region = *moved;
        let (Region { start, end, offset, .. }, length) = (region, region.end - region.start);
        if !is_moved(&region) {
            continue;
        }
        if copies::copy_data(memory_file(), offset + start, memory_file(), start, length).is_err() {
            super::punch(start, end);
            break;
        }
        super::punch(offset + start, offset + end);
        moved.offset = 0;
    }
    record.join(0, u64::MAX);
}

/// Returns whether a region is not in the first layer.
fn is_apart(region: &Region) -> bool {
    region.file == NO_FILE && region.offset != 0 && !blocks::is_block(region)
}

/// Unmaps what this member has not mapped as it is recorded.
pub fn forget_here(record: &Record) -> Result {
    let is_behind = |region: &&Region| region.holders.has(me()) && !region.current.has(me());
    for region in record.all().filter(is_behind) {
        super::try_unmap_here(region.start, region.end)?;
    }
    Ok(0)
}

/// Begins a child of `fork` with regions as they are in its own file.
pub fn begin_process(record: &mut Record) {
    control().layer.store(0, Ordering::Relaxed);
    control().copied.iter().for_each(|bytes| bytes.store(0, Ordering::Relaxed));
    record.change(0, u64::MAX, |region| {
        // Memory that is in no snapshot of the child's was copied.
        if is_own(region) {
            (region.is_private, region.is_snapshot) = (false, false);
            region.file = NO_FILE;
        }
        if region.file == NO_FILE {
            region.offset = 0;
        }
    });
    record.join(0, u64::MAX);
    copies::note_copies(record);
}
