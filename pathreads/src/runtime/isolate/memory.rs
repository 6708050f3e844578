//! The calls about memory. They change the record, and what this member has mapped. Other members are asked
//! to give up what the program must not have any more, and map what is new when they need it.
//!
//! They run on a stack of the runtime, with signals blocked, because Go makes them with little stack.
//!
//! Mappings of files are of descriptors that are kept for them. Private ones are mapped by each member
//! without the right to write. A part that is written to is copied into the program's memory before
//! ([`copy_private`]). Small ones and code are copied at once: a descriptor for each would be many, and code
//! is rewritten.

use core::sync::atomic::Ordering;

use abi::Errno;
use pathreads::block;
use pathreads::member_reservation::{VIEWS, VIEWS_END};
use pathreads::record::{Members, NO_FILE, Record, Region};
use pathreads::{PAGE, RUNTIME_END, SLOTS_BASE, page_end, page_start};

use super::{
    Request, blocks, control, copy_away, full, me, memory_file, own, punch, request, reservations, snapshots,
    take,
};
use crate::dispatch::Then;
use crate::entry::Frame;
use crate::patch;
use crate::sys::{
    self, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_EXEC,
    PROT_READ, PROT_WRITE, Result, harmless, nr,
};

/// Where the heap begins, and the most that it grows to.
pub const HEAP: u64 = 0x0800_0000_0000;
const HEAP_MOST: u64 = 1 << 40;

/// Where members look for free addresses: each first in a part of its own.
const ARENA: u64 = 0x1000_0000_0000;
const ARENA_PART: u64 = 1 << 37;
const ARENA_END: u64 = block::START - PAGE;

/// The same for mappings that ask for low addresses.
const LOW: u64 = 0x4000_0000;

/// The end of the addresses of a process.
const END: u64 = (1 << 47) - PAGE;

pub const RIGHTS: u64 = PROT_READ | PROT_WRITE | PROT_EXEC;

/// The least length of a private mapping of a file that is not copied at once.
const LEAST_PRIVATE: u64 = 1 << 20;

/// The least part of it that is copied, and the part of the region.
const LEAST_COPY: u64 = 64 << 10;
const COPIES: u64 = 64;

/// The most that is copied at once. With many regions a whole one is: that makes no more of them.
const MOST_COPY: u64 = 4 << 20;
const MANY_REGIONS: usize = 10_000;

/// The most descriptors that are kept for private mappings.
pub const MOST_PRIVATE: u64 = 128;

const HUGE_PAGE: u64 = 2 << 20;

/// The content of a mapping.
#[derive(Clone, Copy)]
enum Source {
    /// Zeroes.
    Nothing,
    /// The bytes at an address, where the file is mapped meanwhile.
    View(u64),
    /// A descriptor that is kept, and an offset.
    File(u64, u64),
    /// The same of a private mapping.
    Private(u64, u64),
}

impl Source {
    /// Returns the offset of a large mapping of a file in its first huge page. Linux maps the file's memory
    /// by larger pages where the address has the same offset.
    fn huge_offset(self, length: u64) -> Option<u64> {
        match self {
            Source::File(_, offset) | Source::Private(_, offset) if length >= HUGE_PAGE => {
                Some(offset % HUGE_PAGE)
            }
            _ => None,
        }
    }
}

/// Handles a call about memory.
pub extern "C" fn call(frame: &mut Frame) -> Then {
    let arguments = frame.arguments();
    let [number, a, b, c, ..] = frame.call;
    snapshots::end_sometimes();
    // The second argument of `brk` is what the register happens to have.
    if number != nr::BRK {
        patch::forget(a, b);
    }
    let result = match number {
        nr::MMAP => own::map(arguments).map_or_else(|| map_for_program(arguments), Ok),
        nr::MUNMAP if own::unmap(a, b) => Ok(0),
        nr::MUNMAP => unmap(a, b),
        nr::MPROTECT if own::protect(a, b, c) => Ok(0),
        nr::MPROTECT => protect(a, b, c),
        nr::MREMAP => resize(arguments),
        nr::BRK => Ok(set_heap_end(a)),
        nr::MADVISE => match advise(a, b, c) {
            Some(result) => result,
            None => return Then::Perform,
        },
        _ => {
            let end = a.saturating_add(b);
            let settled = super::with_record(|record| {
                blocks::settle(record, a, end)?;
                super::touch_in(record, a, end);
                Ok(())
            });
            if let Err(error) = settled {
                frame.rax = Errno::to_result(error);
                return Then::Return;
            }
            return Then::Perform;
        }
    };
    frame.rax = result.unwrap_or_else(Errno::to_result);
    Then::Return
}

/// Maps memory. Code of a file is rewritten while there is one thread. Later its calls are dispatched.
fn map_for_program(arguments: [u64; 6]) -> Result {
    let [_, length, protection, flags, file, offset] = arguments;
    // Other members do not have the descriptors of a child of `vfork`.
    let address = map_as(arguments, !super::fork::is_sharing())?;
    let is_code = protection & PROT_EXEC != 0 && flags & (MAP_PRIVATE | MAP_ANONYMOUS) == MAP_PRIVATE;
    if is_code && !patch::has_threads() {
        patch::add(patch::Mapping { address, length, protection, file, offset });
    }
    Ok(address)
}

/// Maps memory for the runtime, as `mmap` does. Signals are blocked, or there are none yet.
pub fn map(arguments: [u64; 6]) -> Result {
    map_as(arguments, false)
}

/// Maps memory. A private mapping of a file may be one of which a write is a fault.
fn map_as(arguments: [u64; 6], may_be_private: bool) -> Result {
    const MAP_GROWSDOWN: u64 = 0x100;
    const MAP_HUGETLB: u64 = 0x4_0000;
    const MAP_STACK: u64 = 0x2_0000;
    let [address, length, rights, flags, file, offset] = arguments;
    if flags & (MAP_GROWSDOWN | MAP_HUGETLB) != 0 {
        return Err(Errno::ENOMEM);
    }
    if length == 0 || !offset.is_multiple_of(PAGE) || flags & 3 == 0 {
        return Err(Errno::EINVAL);
    }
    let length = page_end(length);
    if length == 0 || length > END {
        return Err(Errno::ENOMEM);
    }
    let source = open_source(length, rights, flags, file, offset, may_be_private)?;
    let result = super::with_record(|record| {
        check_limit(record, length, rights)?;
        let block = blocks::place(record, arguments);
        let slot = reservations::place(record, arguments);
        let start = match (block, slot) {
            (Some(block), _) => block.start(),
            (_, Some(slot)) => slot.start(),
            _ => place(record, address, length, flags, source.huge_offset(length))?,
        };
        fill_in(record, start, length, rights & RIGHTS, source, flags & MAP_STACK != 0)?;
        block.into_iter().for_each(blocks::begin_use);
        slot.into_iter().for_each(|slot| reservations::begin_use(slot, length));
        Ok(start)
    });
    match source {
        // SAFETY: the view was for this function alone.
        Source::View(at) => unsafe { sys::munmap(at, length) },
        Source::File(file, _) if result.is_err() => sys::close(file),
        Source::Private(file, _) if result.is_err() => close_private(file),
        _ => {}
    }
    result
}

/// Finds what a mapping is of. Errors about the file are Linux's.
fn open_source(
    length: u64,
    rights: u64,
    flags: u64,
    file: u64,
    offset: u64,
    may_be_private: bool,
) -> Result<Source> {
    let is_anonymous = flags & MAP_ANONYMOUS != 0;
    let is_private = flags & 3 == MAP_PRIVATE;
    match (is_anonymous, is_private) {
        (true, true) => Ok(Source::Nothing),
        (true, false) => {
            let file = super::new_file(c"shared", length)?;
            Ok(Source::File(super::keep_away(file)?, 0))
        }
        (false, true) => {
            // SAFETY: the kernel chooses a free address.
            let at =
                unsafe { sys::mmap(0, length, rights, MAP_PRIVATE | flags & MAP_NORESERVE, file, offset)? };
            let is_large = length >= LEAST_PRIVATE && rights & PROT_EXEC == 0;
            if may_be_private
                && is_large
                && control().private_files.load(Ordering::Relaxed) < MOST_PRIVATE
                && is_regular(file)
                && let Ok(kept) = copy_away(file)
            {
                control().private_files.fetch_add(1, Ordering::Relaxed);
                // SAFETY: the mapping was a try.
                unsafe { sys::munmap(at, length) };
                return Ok(Source::Private(kept, offset));
            }
            // SAFETY: the view is this function's.
            unsafe { sys::call(nr::MPROTECT, [at, length, PROT_READ])? };
            Ok(Source::View(at))
        }
        (false, false) => {
            // SAFETY: the kernel chooses a free address.
            let at = unsafe { sys::mmap(0, length, rights, MAP_SHARED, file, offset)? };
            // SAFETY: the mapping was a try.
            unsafe { sys::munmap(at, length) };
            Ok(Source::File(copy_away(file)?, offset))
        }
    }
}

/// Returns whether a descriptor is of a file that has a length, and pages of 4 KiB.
fn is_regular(file: u64) -> bool {
    /// The kernel's `struct stat`, and the place of the mode in it, in words of four bytes.
    const STAT: usize = 36;
    const MODE: usize = 6;
    const FORMAT: u32 = 0o170_000;
    const REGULAR: u32 = 0o100_000;
    let mut about = [0_u32; STAT];
    let known = harmless!(nr::FSTAT, file, about.as_mut_ptr() as u64).is_ok();
    if !known || about[MODE] & FORMAT != REGULAR {
        return false;
    }
    /// The words of the kernel's `struct statfs`, which begins with the type.
    const STATFS: usize = 15;
    const HUGETLBFS: u64 = 0x9584_58f6;
    let mut system = [0_u64; STATFS];
    harmless!(nr::FSTATFS, file, system.as_mut_ptr() as u64).is_ok() && system[0] != HUGETLBFS
}

/// Returns an error if the program must not have so much more memory.
fn check_limit(record: &Record, length: u64, rights: u64) -> Result<()> {
    let limit = control().data_limit.load(Ordering::Relaxed);
    if limit == u64::MAX || rights & PROT_WRITE == 0 {
        return Ok(());
    }
    let is_data = |region: &&Region| {
        (region.file == NO_FILE || region.is_private)
            && region.rights & PROT_WRITE != 0
            && !blocks::is_closed(region)
    };
    let used: u64 = record.all().filter(is_data).map(|region| region.end - region.start).sum();
    if used + length > limit { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// Notes the limits of the program's data and addresses.
pub fn note_limit() {
    const RLIMIT_DATA: u64 = 2;
    const RLIMIT_AS: u64 = 9;
    control().data_limit.store(super::limit_of(RLIMIT_DATA), Ordering::Relaxed);
    control().address_limit.store(super::limit_of(RLIMIT_AS), Ordering::Relaxed);
}

/// Chooses the address of a mapping. A fixed one replaces the memory that is there.
fn place(record: &mut Record, address: u64, length: u64, flags: u64, huge_offset: Option<u64>) -> Result {
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
fn is_programs(start: u64, end: u64) -> bool {
    end <= SLOTS_BASE || RUNTIME_END <= start && end <= VIEWS || VIEWS_END <= start
}

/// Returns the bounds of the addresses where this member looks first for free ones.
pub fn own_part() -> [u64; 2] {
    let start = ARENA + me() as u64 * ARENA_PART;
    [start, (start + ARENA_PART).min(ARENA_END)]
}

fn free_range(record: &Record, length: u64) -> Result {
    let [start, end] = own_part();
    let found = record.gap(length, start, end);
    found.or_else(|| record.gap(length, ARENA, ARENA_END)).ok_or(Errno::ENOMEM)
}

/// Adds a region and maps it here.
fn fill_in(
    record: &mut Record,
    start: u64,
    length: u64,
    rights: u64,
    source: Source,
    is_stack: bool,
) -> Result {
    let (file, offset) = match source {
        Source::File(file, offset) | Source::Private(file, offset) => (file, offset),
        Source::Nothing | Source::View(_) => (NO_FILE, snapshots::layer()),
    };
    let end = start + length;
    let is_copy = matches!(source, Source::View(_));
    let is_private = matches!(source, Source::Private(..));
    let (holders, current) = (Members::NONE, Members::NONE);
    let copied = if let Source::View(at) = source { copy_in(at, offset + start, length) } else { Ok(()) };
    let region = Region {
        start,
        end,
        rights,
        file,
        offset,
        is_copy,
        is_private,
        is_snapshot: false,
        is_stack,
        holders,
        current,
    };
    let added = copied.and_then(|()| add(record, region));
    if added.is_err() && file == NO_FILE {
        punch(offset + start, offset + end);
    }
    added.map(|()| start)
}

/// Adds a region and maps it here. If that fails, neither is done.
fn add(record: &mut Record, mut region: Region) -> Result<()> {
    take(&mut region)?;
    record.add(region).map_err(full).inspect_err(|_| super::unmap_here(region.start, region.end))?;
    note_copy(&region);
    super::announce();
    Ok(())
}

/// Copies a view of a file into the program's memory, to an offset. The pages behind the file's end stay
/// zero.
fn copy_in(from: u64, to: u64, length: u64) -> Result<()> {
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
/// there map the copy in its place.
pub fn copy_private(record: &mut Record, start: u64, end: u64) -> Result<()> {
    while let Some(region) = record.touched(start, end).find(|region| region.needs_copy()).copied() {
        if snapshots::is_own(&region) && snapshots::end(record) {
            continue;
        }
        if record.len() >= MANY_REGIONS {
            copy_part(record, &region, region.start, region.end)?;
            continue;
        }
        let part = ((region.end - region.start) / COPIES).clamp(LEAST_COPY, MOST_COPY).next_power_of_two();
        let from = (start.max(region.start) / part * part).max(region.start);
        let to = end.min(region.end).next_multiple_of(part).min(region.end);
        copy_part(record, &region, from, to)?;
    }
    Ok(())
}

/// Copies a part of a region into the layer for copies. If that is not a private mapping, the caller has
/// stopped all other members.
fn copy_part(record: &mut Record, region: &Region, start: u64, end: u64) -> Result<()> {
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
    let view = unsafe { sys::mmap(0, length, PROT_READ, MAP_PRIVATE, region.file, offset)? };
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
    super::announce();
    request(region.holders, Request::Replace { start, end });
    record.change(start, end, |part| {
        // A member that cannot map it gets it by a fault.
        if take(part).is_err() {
            super::unmap_here(part.start, part.end);
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
fn file_of(region: &Region) -> u64 {
    if region.file == NO_FILE { memory_file() } else { region.file }
}

/// Makes the program's memory in a range go.
pub fn remove(record: &mut Record, start: u64, end: u64) -> Result<()> {
    blocks::settle(record, start, end)?;
    record.divide(start, end).map_err(full)?;
    while let Some(region) = record.touched(start, end).next().copied() {
        record.remove(region.start, region.end);
        super::unmap_here(region.start, region.end);
        request(region.holders, Request::Unmap { start: region.start, end: region.end });
        release(record, &region);
    }
    Ok(())
}

/// Gives back the memory or the file of a region that has gone.
fn release(record: &mut Record, region: &Region) {
    if region.file == NO_FILE {
        punch(region.offset_of(region.start), region.offset_of(region.end));
    } else {
        close_unused(record, region);
    }
}

/// Closes the file of a region that has gone, if no other region has it.
fn close_unused(record: &Record, region: &Region) {
    let is_unused = record.all().all(|other| other.file != region.file);
    match region.is_private {
        true => {
            note_copies(record);
            if is_unused && region.is_snapshot {
                close_snapshot(region.file);
            } else if is_unused {
                close_private(region.file);
            }
        }
        false if is_unused => sys::close(region.file),
        false => {}
    }
}

/// Closes the descriptor of a snapshot, if that is of another process.
fn close_snapshot(file: u64) {
    if file != memory_file() {
        sys::close(file);
        // A child of `vfork` closes its own descriptor only.
        control().private_files.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Closes a descriptor that was kept for a private mapping. Linux would drop the program's own locks of the
/// file (`fcntl`), so a file with locks keeps its descriptor.
fn close_private(file: u64) {
    const F_OFD_GETLK: u64 = 36;
    const F_WRLCK: u64 = 1;
    const F_UNLCK: u64 = 2;
    /// The kernel's `struct flock` begins with the kind, in 16 bits.
    const FLOCK: usize = 4;
    let mut lock = [0_u64; FLOCK];
    lock[0] = F_WRLCK;
    let known = harmless!(nr::FCNTL, file, F_OFD_GETLK, lock.as_mut_ptr() as u64).is_ok();
    if !known || lock[0] & 0xffff == F_UNLCK {
        sys::close(file);
    }
    // A child of `vfork` closes its own descriptor only.
    control().private_files.fetch_sub(1, Ordering::Relaxed);
}

/// Notes that a region must be copied before the kernel writes to it, if that is so. The caller announces a
/// change after that.
fn note_copy(region: &Region) {
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

/// Unmaps memory, as `munmap` does.
pub fn unmap(start: u64, length: u64) -> Result {
    let end = range(start, length)?;
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    super::with_record(|record| remove(record, start, end)).map(|()| 0)
}

/// Returns the end of a range.
pub fn range(start: u64, length: u64) -> Result {
    if !start.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    start.checked_add(page_end(length)).filter(|end| *end <= END && length <= END).ok_or(Errno::EINVAL)
}

/// Changes rights, as `mprotect` does.
pub fn protect(start: u64, length: u64, rights: u64) -> Result {
    let end = range(start, length).map_err(|error| if length > END { Errno::ENOMEM } else { error })?;
    if rights & !RIGHTS != 0 {
        return Err(Errno::EINVAL);
    }
    super::with_record(|record| {
        blocks::settle(record, start, end)?;
        let is_whole = record.covers(start, end);
        record.divide(start, end).map_err(full)?;
        let mut at = start;
        while at < end
            && let Some(region) = record.at_mut(at)
        {
            at = region.end;
            let is_private = region.is_private;
            protect_region(region, rights)?;
            if is_private {
                note_copies(record);
            }
        }
        record.join(start, end);
        reservations::begin_open(record, start);
        if is_whole { Ok(0) } else { Err(Errno::ENOMEM) }
    })
}

/// Changes the rights of a region, which no other member changes meanwhile.
fn protect_region(region: &mut Region, rights: u64) -> Result<()> {
    let (start, end, old) = (region.start, region.end, *region);
    region.rights = rights;
    if old.holders.has(me()) {
        // SAFETY: the memory is the program's.
        unsafe { sys::call(nr::MPROTECT, [start, end - start, region.mapped_rights()]) }
            .inspect_err(|_| region.rights = old.rights)?;
    }
    if old.rights & !rights != 0 {
        request(old.holders, Request::Protect { start, end });
        region.current = region.holders;
    } else if old.rights != rights {
        region.current = if super::fork::is_sharing() { Members::NONE } else { Members::only(me()) };
        if !old.holders.has(me()) {
            // `announce` says that this member has what changed.
            take(region).inspect_err(|_| *region = old)?;
        }
        super::announce();
    }
    if region.needs_copy() {
        note_copy(region);
        super::announce();
    }
    Ok(())
}

const MREMAP_MAYMOVE: u64 = 1;
const MREMAP_FIXED: u64 = 2;

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
    super::with_record(|record| {
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
        let behind = match behind.filter(|_| !super::fork::is_sharing()) {
            Some((file, offset)) => Some((copy_away(file)?, offset)),
            None => None,
        };
        let moved = move_or_resize(record, [start, old, new, flags, target], behind);
        if let Some((file, _)) = behind {
            control().private_files.fetch_add(1, Ordering::Relaxed);
            if record.all().all(|region| region.file != file) {
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
    remove(record, start, start + old)?;
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
        super::with_others_stopped(|| copy_part(record, &region, region.start, region.end))?;
    }
    // All lie in the program's memory, and are mapped there wherever they are mapped.
    let regions = record.touched(start, end);
    let holders = regions.fold(Members::NONE, |all, region| all.and_all(region.holders));
    record.change(start, end, |region| (region.holders, region.current) = (holders, Members::NONE));
    record.join(start, end);
    super::announce_to_all();
    Ok(())
}

/// Returns whether a mapping can grow here.
fn is_room(record: &Record, start: u64, end: u64) -> bool {
    end <= ARENA_END && is_programs(start, end) && record.is_free(start, end)
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

/// Sets the end of the heap, as `brk` does.
pub fn set_heap_end(end: u64) -> u64 {
    super::with_record(|record| {
        let now = control().heap_end.load(Ordering::Relaxed);
        if !(HEAP..HEAP + HEAP_MOST).contains(&end) {
            return now;
        }
        let (old, new) = (page_end(now), page_end(end));
        let rights = PROT_READ | PROT_WRITE;
        let changed = match old.cmp(&new) {
            core::cmp::Ordering::Less if !record.is_free(old, new) => Err(Errno::ENOMEM),
            core::cmp::Ordering::Less => check_limit(record, new - old, rights)
                .and_then(|()| fill_in(record, old, new - old, rights, Source::Nothing, false))
                .map(|_| ()),
            core::cmp::Ordering::Equal => Ok(()),
            core::cmp::Ordering::Greater => remove(record, new, old),
        };
        if changed.is_err() {
            return now;
        }
        control().heap_end.store(end, Ordering::Relaxed);
        end
    })
}

/// Takes advice, as `madvise` does. Returns `None` for an advice that the kernel takes.
pub fn advise(start: u64, length: u64, advice: u64) -> Option<Result> {
    const DONTNEED: u64 = 4;
    const REMOVE: u64 = 9;
    const WIPEONFORK: u64 = 18;
    const POPULATE_WRITE: u64 = 23;
    const POPULATE: core::ops::RangeInclusive<u64> = 22..=POPULATE_WRITE;
    const KNOWN: core::ops::RangeInclusive<u64> = 0..=25;
    let end = match range(start, length) {
        Ok(end) => end,
        Err(error) => return Some(Err(error)),
    };
    if POPULATE.contains(&advice) {
        super::with_record(|record| {
            // The kernel reports memory that cannot be had.
            let _ = if advice == POPULATE_WRITE { copy_private(record, start, end) } else { Ok(()) };
            super::touch_in(record, start, end);
        });
        return None;
    }
    if !KNOWN.contains(&advice) || advice == WIPEONFORK {
        return Some(Err(Errno::EINVAL));
    }
    Some(super::with_record(|record| {
        let is_whole = blocks::covers(record, start, end);
        if advice == DONTNEED || advice == REMOVE {
            drop_snapshots(record, start, end)?;
            reservations::settle_copies(record, start, end)?;
            // A copy of a file stays as it is: its bytes would not come back.
            for region in record.touched(start, end).filter(|region| region.is_fresh()) {
                punch(region.offset_of(region.start.max(start)), region.offset_of(region.end.min(end)));
            }
        }
        if is_whole { Ok(0) } else { Err(Errno::ENOMEM) }
    }))
}

/// Makes snapshots in a range the program's memory, of which the content is about to be dropped. A short
/// range is copied with its neighbours, so that there are not many regions.
fn drop_snapshots(record: &mut Record, start: u64, end: u64) -> Result<()> {
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

/// Records the stack that the kernel made, and replaces it in place by the program's memory. The caller
/// stands on another stack.
pub fn replace_stack(pointer: u64, top: u64, rights: u64) {
    const RLIMIT_STACK: u64 = 3;
    const MOST: u64 = 64 << 20;
    let length = page_start(super::limit_of(RLIMIT_STACK).clamp(128 << 10, MOST));
    let (used, start) = (page_start(pointer), top - length);
    let copied = copy_in(used, used, top - used);
    let placed = copied.and_then(|()| {
        super::with_record(|record| fill_in(record, start, length, rights, Source::Nothing, true))
    });
    if placed.is_err() {
        sys::fail(b"no memory for the stack", 125);
    }
}
