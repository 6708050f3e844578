//! The calls about memory. They change the record, and what this member has mapped. Other members are asked
//! to give up what the program must not have any more, and map what is new when they need it.
//!
//! They run on a stack of the runtime, with signals blocked, because Go makes them with little stack.
//!
//! Mappings of files are of descriptors that are kept for them. Private ones are mapped by each member
//! without the right to write ([`super::copies`]). Small ones, if the file has all of them, and code are
//! copied at once: a descriptor for each would be many, and code is rewritten.

use core::sync::atomic::Ordering;

use abi::Errno;
use pathreads::record::{Members, NO_FILE, Record, Region};
use pathreads::{PAGE, page_end, page_start};

use super::addresses::{END, HEAP, HEAP_MOST, HUGE_PAGE, RIGHTS, place, range};
use super::copies::{copy_in, copy_private, drop_snapshots, length_of_regular, narrow_copies, note_copy};
use super::descriptors::{MOST_PRIVATE, close_private, close_unused, copy_away};
use super::{
    Request, announce, announce_to_all, blocks, control, first_run, fork, full, keep_away, me, new_file, own,
    postponed, protect_here, punch, remap, remembered, request_or_fail, reservations, snapshots, stale,
    stats, take, touch_in, try_unmap_here, unmap_here, with_record,
};
use crate::dispatch::Then;
use crate::entry::Frame;
use crate::patch;
use crate::sys::{
    self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE, Result,
    harmless, nr,
};

/// The least length of a private mapping of a file that is not copied at once, if the file has all of it.
const LEAST_PRIVATE: u64 = 1 << 20;

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
    // Otherwise that was tried (`own::serve`).
    let may_be_own = !postponed::are_possible();
    let result = match number {
        nr::MMAP if may_be_own => own::map(arguments).map_or_else(|| map_for_program(arguments), Ok),
        nr::MMAP => map_for_program(arguments),
        nr::MUNMAP if may_be_own && own::unmap(a, b) => Ok(0),
        nr::MUNMAP => unmap(a, b),
        nr::MPROTECT if may_be_own && own::protect(a, b, c) => Ok(0),
        nr::MPROTECT => protect(a, b, c),
        nr::MREMAP => remap::resize(arguments),
        nr::BRK => Ok(set_heap_end(a)),
        nr::MADVISE => match advise(a, b, c) {
            Some(result) => result,
            None => return Then::Perform,
        },
        _ => {
            let end = a.saturating_add(b);
            stale::name(a, end);
            let settled = with_record(|record| {
                blocks::settle(record, a, end)?;
                // Linux would find what is stale here.
                stale::unmap(a, end)?;
                touch_in(record, a, end);
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
    let address = map_as(arguments, !fork::is_sharing())?;
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
    let open = || open_source(length, rights, flags, file, offset, may_be_private);
    let source = match open() {
        Err(Errno::ENOMEM) if stale::is_possible() => {
            with_record(|_| stale::unmap(0, u64::MAX))?;
            open()?
        }
        source => source?,
    };
    let result = with_record(|record| {
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
            let file = new_file(c"shared", length)?;
            Ok(Source::File(keep_away(file)?, 0))
        }
        (false, true) => {
            // SAFETY: the kernel chooses a free address.
            let at =
                unsafe { sys::mmap(0, length, rights, MAP_PRIVATE | flags & MAP_NORESERVE, file, offset)? };
            if may_be_private
                && control().private_files.load(Ordering::Relaxed) < MOST_PRIVATE
                && is_mapped_privately(file, offset, length, rights)
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

/// Returns whether members may map a file themselves: it is a large one, or memory behind its end would be
/// written to, and it has pages of 4 KiB.
fn is_mapped_privately(file: u64, offset: u64, length: u64, rights: u64) -> bool {
    /// The words of the kernel's `struct statfs`, which begins with the type.
    const STATFS: usize = 15;
    const HUGETLBFS: u64 = 0x9584_58f6;
    if rights & PROT_EXEC != 0 || length < LEAST_PRIVATE && rights & PROT_WRITE == 0 {
        return false;
    }
    let Some(in_file) = length_of_regular(file) else { return false };
    if length < LEAST_PRIVATE && page_end(in_file).saturating_sub(offset) >= length {
        return false;
    }
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
    control().data_limit.store(sys::limit_of(sys::RLIMIT_DATA), Ordering::Relaxed);
    control().address_limit.store(sys::limit_of(sys::RLIMIT_AS), Ordering::Relaxed);
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
pub fn add(record: &mut Record, mut region: Region) -> Result<()> {
    take(&mut region)?;
    record.add(region).map_err(full).inspect_err(|_| unmap_here(region.start, region.end))?;
    note_copy(&region);
    announce();
    Ok(())
}

/// Makes the program's memory in a range go. If a member cannot unmap it, all is recorded as before, and
/// nothing of it is lost.
pub fn remove(record: &mut Record, start: u64, end: u64) -> Result<()> {
    remove_from(record, start, end, stale::make_stale)
}

/// Does so for memory that the program does not have, and that a member may be about to drop or to protect
/// without the lock: it must not have that mapped.
pub fn remove_kept(record: &mut Record, start: u64, end: u64) -> Result<()> {
    remove_from(record, start, end, |_, _, _, holders| holders)
}

/// Makes the holders of memory lose it without asking them, and returns those that have to be asked.
type Revoke = fn(&Record, u64, u64, Members) -> Members;

fn remove_from(record: &mut Record, start: u64, end: u64, revoke: Revoke) -> Result<()> {
    blocks::settle(record, start, end)?;
    record.divide(start, end).map_err(full)?;
    if let Err(error) = unmap_everywhere(record, start, end, revoke) {
        // Those that have unmapped it get it again by a fault.
        record.change(start, end, |region| region.current = Members::NONE);
        announce_to_all();
        touch_in(record, start, end);
        record.join(start, end);
        return Err(error);
    }
    while let Some(region) = record.touched(start, end).next().copied() {
        record.remove(region.start, region.end);
        release(record, &region);
    }
    Ok(())
}

/// Unmaps a range in all members that may have it mapped. The record is divided at its ends, and nothing but
/// what is recorded is unmapped: there may be memory of the runtime between.
fn unmap_everywhere(record: &Record, start: u64, end: u64, revoke: Revoke) -> Result<()> {
    let mut at = start;
    while let Some((start, reached, holders)) = first_run(record, at, end) {
        try_unmap_here(start, reached)?;
        stats::note_avoided(holders);
        let asked = revoke(record, start, reached, holders);
        request_or_fail(asked, Request::Unmap { start, end: reached })?;
        at = reached;
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

/// Unmaps memory, as `munmap` does.
pub fn unmap(start: u64, length: u64) -> Result {
    let end = range(start, length)?;
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    with_record(|record| remove(record, start, end)).map(|()| 0)
}

/// Changes rights, as `mprotect` does.
pub fn protect(start: u64, length: u64, rights: u64) -> Result {
    let end = range(start, length).map_err(|error| if length > END { Errno::ENOMEM } else { error })?;
    if rights & !RIGHTS != 0 {
        return Err(Errno::EINVAL);
    }
    with_record(|record| {
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
                narrow_copies(record);
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
    remembered::forget(start, end);
    region.rights = rights;
    if old.holders.has(me()) {
        protect_here(region).inspect_err(|_| region.rights = old.rights)?;
    }
    if old.rights & !rights != 0 {
        stats::note_avoided(old.holders);
        if let Err(error) = request_or_fail(old.holders, Request::Protect { start, end }) {
            (region.rights, region.current) = (old.rights, Members::NONE);
            announce_to_all();
            let _ = take(region);
            return Err(error);
        }
        region.current = region.holders;
    } else if old.rights != rights {
        region.current = if fork::is_sharing() { Members::NONE } else { Members::only(me()) };
        if !old.holders.has(me()) {
            // `announce` says that this member has what changed.
            take(region).inspect_err(|_| *region = old)?;
        }
        announce();
    }
    if region.needs_copy() {
        note_copy(region);
        announce();
    }
    Ok(())
}

/// Sets the end of the heap, as `brk` does.
pub fn set_heap_end(end: u64) -> u64 {
    with_record(|record| {
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
        stale::name(start, end);
        with_record(|record| {
            // The kernel reports memory that cannot be had.
            let _ = if advice == POPULATE_WRITE { copy_private(record, start, end) } else { Ok(()) };
            let _ = stale::unmap(start, end);
            touch_in(record, start, end);
        });
        return None;
    }
    if !KNOWN.contains(&advice) || advice == WIPEONFORK {
        return Some(Err(Errno::EINVAL));
    }
    Some(with_record(|record| {
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

/// Records the stack that the kernel made, and replaces it in place by the program's memory. The caller
/// stands on another stack.
pub fn replace_stack(pointer: u64, top: u64, rights: u64) {
    const RLIMIT_STACK: u64 = 3;
    const MOST: u64 = 64 << 20;
    let length = page_start(sys::limit_of(RLIMIT_STACK).clamp(128 << 10, MOST));
    let (used, start) = (page_start(pointer), top - length);
    let copied = copy_in(used, used, top - used);
    let placed = copied
        .and_then(|()| with_record(|record| fill_in(record, start, length, rights, Source::Nothing, true)));
    if placed.is_err() {
        sys::fail(b"no memory for the stack", 125);
    }
}
