//! Copies of private mappings of files, and of snapshots. Members map both without the right to write. A
//! part that is written to is copied into the program's memory before ([`copy_private`]), and the members
//! that have it mapped are asked to map the copy in its place. So no member writes to the copy before all
//! have it.

use core::sync::atomic::Ordering;

use abi::Errno;
use pathreads::record::{Members, NO_FILE, Record, Region};
use pathreads::{PAGE, page_end, page_start};

use super::descriptors::close_unused;
use super::{
    Request, announce, control, full, memory_file, punch, remembered, request, snapshots, stale, take,
    unmap_here,
};
use crate::sys::{self, MAP_PRIVATE, PROT_READ, Result, harmless, nr};

/// The least part of a private mapping that is copied, and the part of its region.
const LEAST_COPY: u64 = 64 << 10;
const COPIES: u64 = 64;

/// The most that is copied at once. With many regions a whole one is: that makes no more of them.
const MOST_COPY: u64 = 4 << 20;
pub const MANY_REGIONS: usize = 10_000;

/// Copies a view of a file into the program's memory, to an offset. The pages behind the file's end stay
/// zero.
pub fn copy_in(from: u64, to: u64, length: u64) -> Result<()> {
    let mut done = 0;
    while done < length {
        let (at, rest) = (from + done, length - done);
        match harmless!(nr::PWRITE, memory_file(), at, rest, to + done) {
            Ok(0) | Err(Errno::EFAULT) => break,
            Ok(written) => done += written,
            Err(_) => return Err(Errno::ENOMEM),
        }
    }
    Ok(())
}

/// Copies a private mapping of a file in a range that will be written to. Members that have the file mapped
/// there map the copy in its place. Pages behind the file's end stay as they are: an access is a SIGBUS.
pub fn copy_private(record: &mut Record, start: u64, end: u64) -> Result<()> {
    let mut at = start;
    while let Some(region) = record.touched(at, end).find(|region| region.needs_copy()).copied() {
        if snapshots::is_own(&region) && snapshots::end(record) {
            continue;
        }
        let file_end = file_end(&region);
        if at.max(region.start) >= file_end {
            at = region.end;
            continue;
        }
        if record.len() >= MANY_REGIONS {
            copy_part(record, &region, region.start, file_end)?;
            continue;
        }
        let part = ((region.end - region.start) / COPIES).clamp(LEAST_COPY, MOST_COPY).next_power_of_two();
        let from = (at.max(region.start) / part * part).max(region.start);
        let to = end.min(file_end).next_multiple_of(part).min(file_end);
        copy_part(record, &region, from, to)?;
    }
    Ok(())
}

/// Returns the address behind the last page of a region that its file has.
fn file_end(region: &Region) -> u64 {
    let length = if region.is_anonymous() { None } else { length_of_regular(region.file) };
    let in_region = length.map(|length| page_end(length).saturating_sub(region.offset));
    in_region.map_or(region.end, |length| region.start.saturating_add(length).min(region.end))
}

/// Returns the length of a file of bytes, or `None` if a descriptor is of something else.
pub fn length_of_regular(file: u64) -> Option<u64> {
    /// The kernel's `struct stat` in words, and the places of the mode and the length in it.
    const STAT: usize = 18;
    const MODE: usize = 3;
    const LENGTH: usize = 6;
    const FORMAT: u64 = 0o170_000;
    const REGULAR: u64 = 0o100_000;
    let mut about = [0_u64; STAT];
    harmless!(nr::FSTAT, file, about.as_mut_ptr() as u64).ok()?;
    (about[MODE] & FORMAT == REGULAR).then_some(about[LENGTH])
}

/// Lets this member write to a page behind the end of its file, so that an access is the SIGBUS that it is
/// on Linux. Returns whether it may.
pub fn open_behind(region: &Region, address: u64) -> bool {
    let start = page_start(address);
    remembered::forget(start, start + PAGE);
    // SAFETY: the memory is the program's.
    stale::with_room(|| unsafe { sys::call(nr::MPROTECT, [start, PAGE, region.rights]) }).is_ok()
}

/// Copies a part of a region into the layer for copies. If that is not a private mapping, the caller has
/// stopped all other members.
pub fn copy_part(record: &mut Record, region: &Region, start: u64, end: u64) -> Result<()> {
    let layer = snapshots::layer();
    let copied = copy_content(region, start, end, layer)
        .and_then(|copied| place_part(record, region, start, end).map(|()| copied))
        .inspect_err(|_| punch(layer + start, layer + end))?;
    control().copied[1].fetch_add(copied, Ordering::Relaxed);
    Ok(())
}

/// Copies what is in a part of a region into a layer of the program's memory. Returns how many bytes are
/// copied.
fn copy_content(region: &Region, start: u64, end: u64, layer: u64) -> Result {
    let (length, offset) = (end - start, region.offset_of(start));
    if region.is_anonymous() {
        return copy_data(file_of(region), offset, memory_file(), layer + start, length);
    }
    // SAFETY: the kernel chooses a free address.
    let map = || unsafe { sys::mmap(0, length, PROT_READ, MAP_PRIVATE, region.file, offset) };
    let view = stale::with_room(map)?;
    let copied = copy_in(view, layer + start, length);
    // SAFETY: the view was for this function alone.
    unsafe { sys::munmap(view, length) };
    copied.map(|()| length)
}

/// Makes a part of a region the program's memory in the layer for copies. No member writes to it before all
/// have it.
fn place_part(record: &mut Record, region: &Region, start: u64, end: u64) -> Result<()> {
    record.divide(start, end).map_err(full)?;
    record.change(start, end, |part| {
        part.is_copy |= part.is_private && !part.is_snapshot;
        (part.file, part.offset) = (NO_FILE, snapshots::layer());
        (part.is_private, part.is_snapshot) = (false, false);
        part.current = Members::NONE;
    });
    // Before the bounds change: see `touch`.
    announce();
    request(region.holders, Request::Replace { start, end });
    record.change(start, end, |part| {
        // A member that cannot map it gets it by a fault.
        if take(part).is_err() {
            unmap_here(part.start, part.end);
        }
    });
    record.join(start, end);
    match region.file {
        NO_FILE => punch(region.offset_of(start), region.offset_of(end)),
        _ => close_unused(record, region),
    }
    Ok(())
}

/// Returns the descriptor of the file in which a region lies.
pub fn file_of(region: &Region) -> u64 {
    if region.file == NO_FILE { memory_file() } else { region.file }
}

/// Notes that a region must be copied before the kernel writes to it, if that is so. The caller announces a
/// change after that.
pub fn note_copy(region: &Region) {
    if region.needs_copy() {
        let [low, high] = &control().copies;
        let is_first = low.load(Ordering::Relaxed) >= high.load(Ordering::Relaxed);
        let start = if is_first { region.start } else { region.start.min(low.load(Ordering::Relaxed)) };
        low.store(start, Ordering::Relaxed);
        high.fetch_max(region.end, Ordering::Relaxed);
    }
}

/// Notes the bounds of memory that must be copied before the kernel writes to it.
pub fn note_copies(record: &Record) {
    let regions = record.all().filter(|region| region.needs_copy());
    let first = regions.clone().map(|region| region.start).min();
    let bounds = [first.unwrap_or(0), regions.map(|region| region.end).max().unwrap_or(0)];
    // Release pairs with the acquire in `needs_copy`.
    for (bound, value) in control().copies.iter().zip(bounds) {
        bound.store(value, Ordering::Release);
    }
}

/// Narrows these bounds, when some memory does not need a copy any more. Not many regions are looked at each
/// time, so the bounds may have more than must be copied.
pub fn narrow_copies(record: &Record) {
    const LOOKED_AT: usize = 64;
    let [low, high] = control().copies.each_ref().map(|bound| bound.load(Ordering::Relaxed));
    let (mut start, mut end) = (low, high);
    for region in record.touched(low, high).take(LOOKED_AT).take_while(|region| !region.needs_copy()) {
        start = region.end;
    }
    start = record.touched(start, high).next().map_or(high, |region| region.start.max(start));
    for region in record.below(start, high).take(LOOKED_AT).take_while(|region| !region.needs_copy()) {
        end = region.start;
    }
    let bounds = if start < end { [start, end] } else { [0; 2] };
    for (bound, value) in control().copies.iter().zip(bounds) {
        bound.store(value, Ordering::Release);
    }
}

/// Copies a range of one file of memory to another, or to the same. Pages that were not written to are not
/// made. Returns how many bytes are copied.
pub fn copy_data(from: u64, start: u64, to: u64, target: u64, length: u64) -> Result {
    let end = start + length;
    let (mut at, mut count) = (start, 0);
    while let Some(data) = first_data(from, at, end) {
        let hole = first_hole(from, data, end);
        let (mut source, mut place) = (data, target + (data - start));
        while source < hole {
            let (source_at, place_at) = (&raw mut source as u64, &raw mut place as u64);
            let copied = harmless!(nr::COPY_FILE_RANGE, from, source_at, to, place_at, hole - source, 0);
            if !copied.is_ok_and(|copied| copied > 0) {
                return Err(Errno::ENOMEM);
            }
        }
        count += hole - data;
        at = hole;
    }
    Ok(count)
}

/// Returns the first data of a range of a file.
pub fn first_data(file: u64, start: u64, end: u64) -> Option<u64> {
    const SEEK_DATA: u64 = 3;
    harmless!(nr::LSEEK, file, start, SEEK_DATA).ok().filter(|data| *data < end)
}

/// Returns the end of data of a range of a file. SEEK_HOLE would look beyond the range, at much more.
pub fn first_hole(file: u64, data: u64, end: u64) -> u64 {
    let mut at = page_start(data) + PAGE;
    while at < end && first_data(file, at, end) == Some(at) {
        at += PAGE;
    }
    at.min(end)
}

/// Makes snapshots in a range the program's memory, of which the content is about to be dropped. A short
/// range is copied with its neighbours, so that there are not many regions.
pub fn drop_snapshots(record: &mut Record, start: u64, end: u64) -> Result<()> {
    let is_it = |region: &&Region| region.is_snapshot && !region.is_copy;
    while let Some(region) = record.touched(start, end).find(is_it).copied() {
        let (from, to) = (start.max(region.start), end.min(region.end));
        if snapshots::is_own(&region) && snapshots::end(record) {
            continue;
        }
        match region.needs_copy() && to - from < LEAST_COPY {
            true => copy_private(record, from, to)?,
            false => place_part(record, &region, from, to)?,
        }
    }
    Ok(())
}

/// Returns whether a range may have memory that must be copied before the kernel writes to it.
pub fn needs_copy(start: u64, end: u64) -> bool {
    // Acquire pairs with the release in [`note_copies`]: the version that was announced before is seen.
    let [low, high] = control().copies.each_ref().map(|bound| bound.load(Ordering::Acquire));
    low < end && start < high
}
