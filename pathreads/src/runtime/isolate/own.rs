//! Memory that one member alone has, in its own part of the arena: it is mapped, changed and unmapped
//! without the lock of all memory (`pathreads::parts`), so members that do so do not wait for each other's
//! calls of Linux.
//!
//! 1. *A member changes here only addresses that are free, or mapped by no other member*, and that lie in its
//!    part. Free addresses there are given by itself, or under the lock. So those that are changed side by
//!    side are different, and the table alone is common.
//! 2. *Whatever needs another member is left to the lock*: a request, a snapshot, a call that lacks memory,
//!    a limit that all mappings count for. The member looks for these when it is in. Snapshots and lacks come
//!    under the lock, so there are none until it is out. A limit may come meanwhile, as between two calls.
//! 3. *A region is recorded when it is mapped, and unmapped before it is recorded no more.* No other sees the
//!    time between: it would need the lock, or be this member. If Linux does not unmap it, it stays recorded.

use core::sync::atomic::{Ordering, compiler_fence};

use pathreads::record::{Members, NO_FILE, Record, Region};
use pathreads::{page_end, parts, requests};

use super::lock::{IN_RECORD, Linux};
use super::mapped::SYNCED;
use super::{
    addresses, blocks, control, first_run, fork, is_signal_stack, map_here, me, postponed, punch, remembered,
    reservations, snapshots, stale, try_unmap_here, unmap_here,
};
use crate::dispatch::Then;
use crate::entry::Frame;
use crate::sys::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, nr};
use crate::{patch, stack};

/// Serves a call about memory that this member alone has, while handlers of the program wait. Returns whether
/// it did. If not, the call needs the lock, or has signals blocked. Not inlined, because Go makes calls with
/// little stack.
#[inline(never)]
pub fn serve(frame: &mut Frame) -> bool {
    // A request that comes may need the stack for signals.
    !is_signal_stack(frame.rsp)
        && postponed::while_handlers_wait(|| stack::with_all(frame, serve_here) == Then::Return)
}

/// Does so on a stack of the runtime.
extern "C" fn serve_here(frame: &mut Frame) -> Then {
    let [number, a, b, c, ..] = frame.call;
    patch::forget(a, b);
    let result = match number {
        nr::MMAP => map(frame.arguments()),
        nr::MUNMAP => unmap(a, b).then_some(0),
        _ => protect(a, b, c).then_some(0),
    };
    result.map_or(Then::Perform, |result| {
        frame.rax = result;
        Then::Return
    })
}

/// Runs `f` if this member may change its own memory without the lock. Signals are blocked, or handlers of
/// the program wait.
fn inside<R>(f: impl FnOnce() -> Option<R>) -> Option<R> {
    if fork::is_sharing() {
        return None;
    }
    IN_RECORD.store(true, Ordering::Relaxed);
    // As in `with_record`.
    compiler_fence(Ordering::SeqCst);
    let word = &control().members[me()].inside;
    let result = if parts::enter(word, &control().lock, &Linux) {
        let result = if is_alone() { f() } else { None };
        parts::leave(word, &Linux);
        result
    } else {
        None
    };
    compiler_fence(Ordering::SeqCst);
    IN_RECORD.store(false, Ordering::Relaxed);
    result
}

/// Returns whether nothing is to be asked of other members, or counted over all memory. This member is in.
fn is_alone() -> bool {
    snapshots::layer() == 0
        && control().data_limit.load(Ordering::Relaxed) == u64::MAX
        && control().lacking.load(Ordering::Relaxed) == 0
}

/// Runs `f` with the record, while no other member that is in does so. This member is in.
fn with_table<R>(f: impl FnOnce(&mut Record) -> R) -> R {
    let table = &control().table;
    parts::take_table(table, &Linux);
    // SAFETY: the lock of the table is held, and those that have the lock of all memory wait for this member.
    let result = f(unsafe { &mut *control().record.get() });
    parts::release_table(table, &Linux);
    result
}

/// Maps plain memory in this member's part, as `mmap` does. Returns `None` if that needs the lock.
pub fn map(arguments: [u64; 6]) -> Option<u64> {
    const MAP_STACK: u64 = 0x2_0000;
    let [address, length, rights, flags, _, offset] = arguments;
    let [from, to] = addresses::own_part();
    let is_plain = flags & !(MAP_NORESERVE | MAP_STACK) == MAP_PRIVATE | MAP_ANONYMOUS;
    if address != 0 || offset != 0 || !is_plain || !(1..=to - from).contains(&length) {
        return None;
    }
    let (length, rights) = (page_end(length), rights & addresses::RIGHTS);
    inside(|| {
        if reservations::is_possible(arguments) {
            return None;
        }
        let start = with_table(|record| match blocks::has_place(record, arguments) {
            true => None,
            false => record.gap(length, from, to),
        })?;
        let only = Members::only(me());
        let region = Region {
            start,
            end: start + length,
            rights,
            file: NO_FILE,
            offset: 0,
            is_copy: false,
            is_private: false,
            is_snapshot: false,
            is_stack: flags & MAP_STACK != 0,
            holders: only,
            current: only,
        };
        // Errors are found again under the lock.
        map_here(&region).ok()?;
        let added = with_table(|record| {
            record.add(region).ok()?;
            announce();
            Some(start)
        });
        if added.is_none() {
            unmap_here(region.start, region.end);
        }
        added
    })
}

/// Returns whether memory of the program is mapped by no other member.
fn is_own(region: &Region) -> bool {
    let only = Members::only(me());
    region.file == NO_FILE && !region.is_private && region.holders.and_all(only) == only
}

/// Returns the end of a range in this member's part.
fn end_in_part(start: u64, length: u64) -> Option<u64> {
    let [from, to] = addresses::own_part();
    let end = addresses::range(start, length).ok()?;
    (length > 0 && from <= start && end <= to).then_some(end)
}

/// Unmaps memory in this member's part, if it alone has that, as `munmap` does. Returns whether it did.
pub fn unmap(start: u64, length: u64) -> bool {
    let Some(end) = end_in_part(start, length) else { return false };
    let unmap = || {
        let mut run = with_table(|record| {
            let is_possible = record.touched(start, end).all(is_own);
            is_possible.then(|| record.divide(start, end).ok()).flatten()?;
            Some(first_run(record, start, end))
        })?;
        while let Some((from, to, _)) = run {
            // An error is found again under the lock, where all that has gone here is mapped again.
            try_unmap_here(from, to).ok()?;
            run = if to == end { None } else { with_table(|record| first_run(record, to, end)) };
        }
        let mut next = with_table(|record| take_first(record, start, end));
        while let Some(region) = next {
            punch(region.offset_of(region.start), region.offset_of(region.end));
            let is_last = region.end == end;
            next = if is_last { None } else { with_table(|record| take_first(record, region.end, end)) };
        }
        Some(())
    };
    inside(unmap).is_some()
}

/// Removes the first region of a range from the record, and returns it.
fn take_first(record: &mut Record, start: u64, end: u64) -> Option<Region> {
    let region = *record.touched(start, end).next()?;
    record.remove(region.start, region.end);
    Some(region)
}

/// Changes the rights of memory in this member's part, if it alone has that, as `mprotect` does. Returns
/// whether it did.
pub fn protect(start: u64, length: u64, rights: u64) -> bool {
    let Some(end) = end_in_part(start, length).filter(|_| rights & !addresses::RIGHTS == 0) else {
        return false;
    };
    let only = Members::only(me());
    let protect = || {
        with_table(|record| {
            let is_mapped = |region: &Region| is_own(region) && region.holders == only;
            let is_possible = record.covers(start, end) && record.touched(start, end).all(is_mapped);
            is_possible.then(|| record.divide(start, end).ok()).flatten()
        })?;
        remembered::forget(start, end);
        stale::unmap(start, end).ok()?;
        // Errors are found again under the lock.
        // SAFETY: the memory is the program's.
        unsafe { sys::call(nr::MPROTECT, [start, end - start, rights]) }.ok()?;
        with_table(|record| {
            let mut is_more = false;
            record.change(start, end, |region| {
                is_more |= rights & !region.rights != 0;
                (region.rights, region.current) = (rights, only);
            });
            record.join(start, end);
            if is_more {
                announce();
            }
        });
        Some(())
    };
    inside(protect).is_some()
}

/// Notes that members may have less than is recorded. This member has what changed, and the lock of the
/// table.
fn announce() {
    requests::note_announced(&SYNCED, requests::announce(&control().version));
}
