//! Mappings without rights that programs make, open in part and unmap, again and again, without the kernel.
//! `pathreads::reservation` has the states, and says who may change them.
//!
//! A mapping is served only if the program has unmapped one of that length before ([`is_repeated`]). So a
//! program that reserves addresses for good has the kernel's.
//!
//! The accessible part of a kept reservation is bounded with the freed blocks of the CPU in whose list it is.
//! So is that of a reserved one, which the program has mapped without rights: most programs open it in the
//! same way at once. With `--strict` there are no reservations.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::Errno;
use pathreads::chunk::MOST_PAGES;
use pathreads::reservation::{
    CLASSES, COUNT, END, FIRST, FIRST_CLASS, Owner, Part, Reservation, Rest, SLOTS, Seen, State, class_of,
    number, number_at, place,
};
use pathreads::{PAGE, page_end};

use super::{
    CPU, IS_ON, Unmapped, check_bound, clear, current_cpu, forget_lazy, may_begin, note_lazy, views,
};
use crate::boot;
use crate::sys::{
    self, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, NO_FILE, PROT_READ, PROT_WRITE, Result,
    harmless, nr,
};

/// The most bytes of a part that a kept reservation has accessible.
const MOST_PART: u64 = MOST_PAGES * PAGE;

/// The most reservations of a list that are looked through, without the kernel's, and with them.
const LOOKED_AT: usize = 8;
const PASSED: usize = 64;

/// The lengths that are remembered.
const LENGTHS: usize = 8;

static RESERVATION: [Reservation; COUNT] = [const { Reservation::new() }; COUNT];

/// The start of the addresses. 0 before they are used, 1 while they are being reserved.
static BASE: AtomicU64 = AtomicU64::new(0);

/// The number of slots of each class that were begun.
static BEGUN: [AtomicU32; CLASSES] = [const { AtomicU32::new(0) }; CLASSES];

/// Lengths of mappings without rights, each with the lowest bit set if the program has unmapped one.
static LENGTH: [AtomicU64; LENGTHS] = [const { AtomicU64::new(0) }; LENGTHS];

/// The one that is replaced next.
static OLDEST: AtomicU32 = AtomicU32::new(0);

/// Counts the processes that this one is a copy of: `fork` leaves other threads behind.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Begins a child of `fork`.
pub fn begin_process() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

fn generation() -> u8 {
    GENERATION.load(Ordering::Relaxed) as u8
}

/// Changes a state from the one that was seen. Returns the new one.
fn change(number: usize, seen: Seen, to: State) -> Option<Seen> {
    RESERVATION[number].change(seen, to, Owner::default())
}

/// Runs `f` in a state that others wait for, with signals blocked. It returns the next state. Returns whether
/// the state was still the one that was seen.
fn while_others_wait(number: usize, seen: Seen, state: State, f: impl FnOnce() -> State) -> bool {
    let thread = harmless!(nr::GETTID).unwrap_or(0) as u32;
    let owner = Owner { generation: generation(), thread };
    sys::with_signals_blocked(|| {
        let Some(mine) = RESERVATION[number].change(seen, state, owner) else { return false };
        let next = f();
        change(number, mine, next);
        true
    })
}

/// Returns whether addresses are reserved.
pub fn are_there() -> bool {
    BASE.load(Ordering::Relaxed) > 1
}

fn class_number(class: u32) -> usize {
    (class - FIRST_CLASS) as usize
}

/// Maps memory without rights, if the program does so repeatedly.
pub fn map(length: u64, flags: u64) -> Option<u64> {
    let class = class_of(length)?;
    let length = page_end(length);
    if !IS_ON.load(Ordering::Relaxed) || boot::is_strict() || !is_repeated(length) {
        return None;
    }
    let flags = flags & MAP_NORESERVE;
    let cpu = current_cpu();
    check_bound(cpu);
    let number = find(cpu, class, length, flags).or_else(|| begin(cpu, class, length, flags))?;
    CPU[cpu].hits.fetch_add(1, Ordering::Relaxed);
    Some(address(number))
}

/// Returns whether the program has unmapped a mapping without rights of this length. Remembers the length.
fn is_repeated(length: u64) -> bool {
    let known = LENGTH.iter().map(|known| known.load(Ordering::Relaxed)).find(|known| known & !1 == length);
    if known.is_none() {
        let oldest = OLDEST.fetch_add(1, Ordering::Relaxed) as usize % LENGTHS;
        LENGTH[oldest].store(length, Ordering::Relaxed);
    }
    known.is_some_and(|known| known & 1 != 0)
}

/// Notes that the program has unmapped memory of the kernel's.
pub fn note_unmapped(length: u64) {
    let is_first = |known: &&AtomicU64| known.load(Ordering::Relaxed) == length;
    if let Some(known) = LENGTH.iter().find(is_first) {
        let _ = known.compare_exchange(length, length | 1, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Finds a kept reservation in a list, and gives it to the program.
fn find(cpu: usize, class: u32, length: u64, flags: u64) -> Option<usize> {
    let mut next = CPU[cpu].reservations[class_number(class)].load(Ordering::Acquire);
    let mut looked_at = 0;
    for _ in 0..PASSED {
        let number = next.checked_sub(1)? as usize;
        let reservation = &RESERVATION[number];
        next = reservation.next.load(Ordering::Relaxed);
        let seen = reservation.see();
        looked_at += usize::from(seen.state() != State::Kernels);
        if looked_at > LOOKED_AT {
            return None;
        }
        if seen.state() == State::Kept
            && reservation.length.load(Ordering::Relaxed) == length
            && reservation.flags.load(Ordering::Relaxed) == flags
            && change(number, seen, State::Reserved).is_some()
        {
            return Some(number);
        }
    }
    None
}

/// Begins a reservation, and gives it to the program.
fn begin(cpu: usize, class: u32, length: u64, flags: u64) -> Option<usize> {
    reserve()?;
    let more = |count: u32| (u64::from(count) < SLOTS).then_some(count + 1);
    let slot = BEGUN[class_number(class)].fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
    let number = number(class, slot.into());
    let reservation = &RESERVATION[number];
    let seen = reservation.see();
    if seen.state() != State::Unused {
        return None;
    }
    let mut is_begun = false;
    let is_unused = while_others_wait(number, seen, State::Changing, || {
        reservation.cpu.store(cpu as u32, Ordering::Relaxed);
        reservation.length.store(length, Ordering::Relaxed);
        reservation.flags.store(flags, Ordering::Relaxed);
        // The memory has MAP_NORESERVE already.
        is_begun = flags != 0 || map_anew(number, Part { start: 0, end: length }).is_ok();
        if is_begun { State::Reserved } else { State::Kernels }
    });
    if !is_unused || !is_begun {
        return None;
    }
    // Release pairs with the acquire in `find`: the length is known.
    let first = &CPU[cpu].reservations[class_number(class)];
    let _ = first.fetch_update(Ordering::Release, Ordering::Relaxed, |next| {
        reservation.next.store(next, Ordering::Relaxed);
        Some(number as u32 + 1)
    });
    Some(number)
}

/// Reserves the addresses of all, and before those of views. Returns `None` while another thread does, and if
/// there are none.
fn reserve() -> Option<()> {
    const HUGE_PAGE: u64 = 2 << 20;
    if are_there() {
        return Some(());
    }
    if !may_begin() {
        return None;
    }
    BASE.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).ok()?;
    let (length, flags) = (END + HUGE_PAGE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    // SAFETY: the kernel chooses a free address.
    let at = unsafe { sys::mmap(0, length, 0, flags, NO_FILE, 0) }.ok()?;
    // SeqCst, as in `switch_off` and `end`: either this finds that the pool is off, or `end` finds the base.
    BASE.store(at.next_multiple_of(HUGE_PAGE), Ordering::SeqCst);
    if !IS_ON.load(Ordering::SeqCst) {
        end();
        return None;
    }
    Some(())
}

/// Returns the addresses for views, if the pool is on.
pub fn addresses_for_views() -> Option<u64> {
    let base = BASE.load(Ordering::Relaxed);
    (base > 1 && IS_ON.load(Ordering::Relaxed)).then_some(base)
}

fn address(number: usize) -> u64 {
    BASE.load(Ordering::Relaxed) + place(number).1
}

/// Maps a part anew, without rights: its frames go. The caller owns the reservation, and the program has
/// none of the part.
fn map_anew(number: usize, part: Part) -> Result<()> {
    let reservation = &RESERVATION[number];
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | reservation.flags.load(Ordering::Relaxed);
    // SAFETY: the memory is a part of a reservation that this thread owns.
    unsafe { sys::mmap(address(number) + part.start, part.length(), 0, flags, NO_FILE, 0)? };
    Ok(())
}

/// Makes a part readable and writable, if that is a reservation's first part or goes on with it. Returns the
/// result of the call, or `None` if it is the kernel's.
pub fn open(at: u64, length: u64, protection: u64) -> Option<u64> {
    if protection != PROT_READ | PROT_WRITE || !at.is_multiple_of(PAGE) {
        return None;
    }
    let (number, wanted) = part_at(at, page_end(length))?;
    let reservation = &RESERVATION[number];
    loop {
        let (seen, old) = (reservation.see(), reservation.part());
        if wanted.end > reservation.length.load(Ordering::Relaxed) {
            return None;
        }
        let part = match seen.state() {
            State::Reserved if old == wanted => {
                if change(number, seen, State::Open).is_some() {
                    forget_lazy(cpu_of(reservation), old.length());
                    return Some(0);
                }
                continue;
            }
            State::Reserved if old.length() > 0 => {
                if !revoke(number) {
                    return None;
                }
                continue;
            }
            State::Reserved => wanted,
            State::Open => old.and(wanted)?,
            state if state.after().is_some() => {
                wait_for(number, seen);
                continue;
            }
            _ => return None,
        };
        if let Some(mine) = change(number, seen, State::Taken) {
            return Some(open_part(number, mine, seen.state(), at, part));
        }
    }
}

/// Has the kernel open a part of a reservation that this thread has taken. Returns the result of the call,
/// which is the program's.
fn open_part(number: usize, mine: Seen, from: State, at: u64, part: Part) -> u64 {
    let reservation = &RESERVATION[number];
    let length = address(number) + part.end - at;
    // SAFETY: the memory is the program's, and this is its call.
    let opened = unsafe { sys::call(nr::MPROTECT, [at, length, PROT_READ | PROT_WRITE]) };
    if opened.is_ok() {
        reservation.set_part(part);
    }
    change(number, mine, if opened.is_ok() { State::Open } else { from });
    opened.unwrap_or_else(Errno::to_result)
}

/// Maps a file privately over the open part of a reservation, if that can be copied. Returns whether it is.
pub fn map_file([at, length, protection, flags, file, offset]: [u64; 6]) -> bool {
    if protection != PROT_READ | PROT_WRITE
        || flags & !MAP_NORESERVE != MAP_PRIVATE | MAP_FIXED
        || !(at | offset).is_multiple_of(PAGE)
    {
        return false;
    }
    let length = page_end(length);
    let Some((number, wanted)) = part_at(at, length) else { return false };
    let reservation = &RESERVATION[number];
    let (seen, part, copied) = (reservation.see(), reservation.part(), reservation.copied());
    if seen.state() != State::Open || !part.has(wanted) || copied.length() > 0 && copied != wanted {
        return false;
    }
    let Some(view) = views::of(file, offset, length) else { return false };
    let mut is_copied = false;
    while_others_wait(number, seen, State::Copying, || {
        is_copied = views::copy(view, 0, at, length);
        if is_copied {
            reservation.set_copied(wanted);
            reservation.view.store(view as u32, Ordering::Relaxed);
        }
        State::Open
    });
    is_copied
}

/// Drops memory, if it lies in the open part of a reservation, and was copied from a file: the file's bytes
/// come back. Returns the result of the call, or `None` if it is the kernel's.
pub fn advise(at: u64, length: u64, advice: u64) -> Option<u64> {
    const DONTNEED: u64 = 4;
    const FREE: u64 = 8;
    let (number, named) = part_at(at, page_end(length))?;
    let reservation = &RESERVATION[number];
    let (seen, part, copied) = (reservation.see(), reservation.part(), reservation.copied());
    let both = copied.both(named)?;
    if seen.state() != State::Open
        || !part.has(named)
        || !at.is_multiple_of(PAGE)
        || !matches!(advice, DONTNEED | FREE)
    {
        return None;
    }
    if advice == FREE {
        // Linux frees the pages of anonymous memory only.
        return Some(Errno::EINVAL.to_result());
    }
    let (view, mut dropped) = (reservation.view.load(Ordering::Relaxed) as usize, None);
    while_others_wait(number, seen, State::Copying, || {
        // SAFETY: the memory is the program's, and this is its call.
        let result = unsafe { sys::call(nr::MADVISE, [at, length, DONTNEED]) };
        if result.is_ok() {
            views::copy(view, both.start - copied.start, address(number) + both.start, both.length());
        }
        dropped = Some(result.unwrap_or_else(Errno::to_result));
        State::Open
    });
    dropped
}

/// Unmaps memory, if it is exactly a reservation.
pub fn unmap(at: u64, length: u64) -> Unmapped {
    let number = number_of(at).filter(|number| address(*number) == at && length > 0);
    let Some(number) = number else { return Unmapped::Kernels };
    let reservation = &RESERVATION[number];
    loop {
        let seen = reservation.see();
        if reservation.length.load(Ordering::Relaxed) != length || !IS_ON.load(Ordering::Relaxed) {
            return Unmapped::Kernels;
        }
        match seen.state() {
            State::Reserved | State::Open | State::Kernels => {
                if let Some(mine) = change(number, seen, State::Taken) {
                    return keep(number, mine, seen.state());
                }
            }
            state if state.after().is_some() => wait_for(number, seen),
            _ => return Unmapped::Kernels,
        }
    }
}

/// Keeps a reservation that the program unmaps, which this thread has taken.
fn keep(number: usize, mine: Seen, from: State) -> Unmapped {
    let reservation = &RESERVATION[number];
    let (part, cpu) = (reservation.part(), cpu_of(reservation));
    let is_known = from != State::Kernels && !reservation.is_hidden.load(Ordering::Relaxed);
    let is_clear =
        is_known && part.length() <= MOST_PART && clear(address(number) + part.start, part.length() / PAGE);
    if !is_clear && !forget_content(number) {
        change(number, mine, State::Kernels);
        return Unmapped::Kernels;
    }
    reservation.set_copied(Part::default());
    let (before, now) =
        (if from == State::Reserved { part.length() } else { 0 }, reservation.part().length());
    // Before it is kept: any thread may take it then, and count less.
    note_lazy(cpu, now);
    forget_lazy(cpu, before);
    if change(number, mine, State::Kept).is_none() {
        // A handler has named the memory in another way, and it is the kernel's.
        forget_lazy(cpu, now);
        return Unmapped::Kernels;
    }
    check_bound(cpu);
    if from == State::Kernels { Unmapped::Anew } else { Unmapped::Done }
}

/// Maps all of a reservation anew that this thread has taken from the program.
fn forget_content(number: usize) -> bool {
    let reservation = &RESERVATION[number];
    let is_new = map_anew(number, Part { start: 0, end: reservation.length.load(Ordering::Relaxed) }).is_ok();
    if is_new {
        reservation.set_part(Part::default());
        reservation.is_hidden.store(false, Ordering::Relaxed);
    }
    is_new
}

/// Returns the reservation that a range lies in, and the part that it is.
fn part_at(at: u64, length: u64) -> Option<(usize, Part)> {
    let number = number_of(at)?;
    let start = at - address(number);
    let end = start.checked_add(length)?;
    (start < end).then_some((number, Part { start, end }))
}

/// Returns the number of the slot at an address.
fn number_of(at: u64) -> Option<usize> {
    let base = BASE.load(Ordering::Relaxed);
    number_at(at.checked_sub(base).filter(|_| base > 1)?)
}

fn cpu_of(reservation: &Reservation) -> usize {
    reservation.cpu.load(Ordering::Relaxed) as usize
}

/// Waits a little for a thread that changes a reservation.
#[inline(never)]
fn wait_for(number: usize, seen: Seen) {
    if !go_on_for_owner(number, seen) {
        sleep();
    }
}

/// Goes on with a change if the thread that makes it has been killed, or is not in this child of `fork`.
/// Returns whether that is so, or nothing was to be done.
fn go_on_for_owner(number: usize, seen: Seen) -> bool {
    let Some(next) = seen.state().after() else { return true };
    let Owner { generation: of, thread } = seen.owner();
    let is_gone = of != generation() || has_ended(thread.into());
    if is_gone {
        while_others_wait(number, seen, seen.state(), || {
            if next.revoking().is_some() {
                close(number, next);
            }
            next
        });
    }
    is_gone
}

/// Returns whether a thread has ended. One that was killed is listed until its parent knows.
fn has_ended(thread: u64) -> bool {
    if harmless!(nr::TKILL, thread, 0) == Err(Errno::ESRCH) {
        return true;
    }
    let (mut path, mut number, mut text) = ([0_u8; 40], [0; 20], [0_u8; 128]);
    let parts = [&b"/proc/"[..], sys::decimal(thread, &mut number), b"/stat"];
    path.iter_mut().zip(parts.into_iter().flatten()).for_each(|(to, from)| *to = *from);
    let Ok(file) = sys::open(path.as_ptr() as u64, 0) else { return false };
    let length = sys::read_at(file, &mut text, 0).unwrap_or(0);
    sys::close(file);
    let name_end = text[..length].iter().rposition(|byte| *byte == b')');
    name_end.and_then(|end| text.get(end + 2)).is_some_and(|state| matches!(state, b'Z' | b'X'))
}

/// Sleeps a little, so that a thread of a lower priority runs.
fn sleep() {
    const NANOSECONDS: u64 = 50_000;
    let time = [0, NANOSECONDS];
    let _ = harmless!(nr::NANOSLEEP, time.as_ptr() as u64, 0);
}

/// Revokes all kept reservations of a CPU, and those that the program has not opened.
pub fn revoke_all(cpu: usize) {
    for first in &CPU[cpu].reservations {
        let mut next = first.load(Ordering::Acquire);
        while let Some(number) = next.checked_sub(1) {
            revoke(number as usize);
            next = RESERVATION[number as usize].next.load(Ordering::Relaxed);
        }
    }
}

/// Makes the part of a reservation inaccessible that the program has not opened. If a thread is about to that
/// is not there any more, goes on for it. Returns `false` if the part stays accessible.
fn revoke(number: usize) -> bool {
    let reservation = &RESERVATION[number];
    let (seen, part) = (reservation.see(), reservation.part());
    if seen.state().after().is_some() {
        // Another thread does, if it is there.
        go_on_for_owner(number, seen);
        return true;
    }
    let Some(revoking) = seen.state().revoking().filter(|_| part.length() > 0) else { return true };
    let mut is_closed = true;
    while_others_wait(number, seen, revoking, || {
        is_closed = close(number, seen.state());
        seen.state()
    });
    is_closed
}

/// Makes the part of a reservation inaccessible that is being revoked. Returns whether it is.
fn close(number: usize, before: State) -> bool {
    let reservation = &RESERVATION[number];
    let part = reservation.part();
    if part.length() == 0 {
        return true;
    }
    let (at, length) = (address(number) + part.start, part.length());
    let is_closed = match before {
        State::Kept => map_anew(number, part).is_ok(),
        // SAFETY: the program has the memory without rights.
        _ => unsafe { sys::call(nr::MPROTECT, [at, length, 0]) }.is_ok(),
    };
    if is_closed {
        reservation.is_hidden.fetch_or(before == State::Reserved, Ordering::Relaxed);
        reservation.set_part(Part::default());
        forget_lazy(cpu_of(reservation), length);
    }
    is_closed
}

/// Returns whether a range lies in the open part of a reservation.
pub fn is_open(at: u64, length: u64) -> bool {
    part_at(at, length).is_some_and(|(number, part)| {
        let reservation = &RESERVATION[number];
        reservation.see().state() == State::Open && reservation.part().has(part)
    })
}

/// Makes the kernel's all reservations that a range touches: those that the program has stay mapped as it was
/// promised, and those that it has not are unmapped.
pub fn settle(at: u64, length: u64) {
    let base = BASE.load(Ordering::Relaxed);
    if base <= 1 || length == 0 {
        return;
    }
    let from = at.saturating_sub(base).max(FIRST);
    let to = at.saturating_add(length).saturating_sub(base).min(END);
    if from < to
        && let (Some(first), Some(last)) = (number_at(from), number_at(to - 1))
    {
        (first..=last).for_each(settle_one);
    }
}

#[inline(never)]
fn settle_one(number: usize) {
    let reservation = &RESERVATION[number];
    loop {
        let seen = reservation.see();
        let is_done = match seen.state() {
            State::Kernels => true,
            State::Kept => unmap_kept(number, seen),
            // If it cannot be made inaccessible, it stays so.
            State::Reserved if reservation.part().length() > 0 && revoke(number) => false,
            State::Unused | State::Taken | State::Reserved | State::Open => {
                change(number, seen, State::Kernels).is_some()
            }
            _ => {
                wait_for(number, seen);
                false
            }
        };
        if is_done {
            break;
        }
    }
    unmap_rest(number);
}

/// Unmaps a kept reservation. Returns whether it was still that.
fn unmap_kept(number: usize, seen: Seen) -> bool {
    let reservation = &RESERVATION[number];
    while_others_wait(number, seen, State::Changing, || {
        // SAFETY: the program does not have it.
        unsafe { sys::munmap(address(number), reservation.length.load(Ordering::Relaxed)) };
        forget_lazy(cpu_of(reservation), reservation.part().length());
        reservation.set_part(Part::default());
        State::Kernels
    })
}

/// Gives the kernel the addresses of a slot behind its reservation, once: the program may have others there
/// from then on. Another thread that does is waited for, but not for ever: it may not be in this process.
fn unmap_rest(number: usize) {
    const LONGEST: usize = 1000;
    let reservation = &RESERVATION[number];
    if reservation.rest() == Rest::Kernels {
        return;
    }
    let length = reservation.length.load(Ordering::Relaxed);
    let rest = place(number).0 - length;
    sys::with_signals_blocked(|| {
        if reservation.begin_rest() {
            if rest > 0 {
                // SAFETY: the program does not have these.
                unsafe { sys::munmap(address(number) + length, rest) };
            }
            reservation.end_rest();
        }
    });
    let _ = (0..LONGEST).take_while(|_| reservation.rest() == Rest::Ending).map(|_| sleep()).count();
    reservation.end_rest();
}

/// Makes all reservations the kernel's, and gives it the addresses of those to come. No more are begun.
pub fn end() {
    let base = BASE.load(Ordering::SeqCst);
    if base <= 1 {
        return;
    }
    // SAFETY: the program does not have these. A copy from a view ends with an error.
    unsafe { sys::munmap(base, FIRST) };
    let mut run = 0..0;
    for number in 0..COUNT {
        if take_unused(number) {
            run = if run.is_empty() { number..number + 1 } else { run.start..number + 1 };
        } else {
            unmap_unused(core::mem::take(&mut run));
            settle_one(number);
        }
    }
    unmap_unused(run);
}

/// Makes a slot the kernel's that was not begun. Returns whether its addresses are to be unmapped.
fn take_unused(number: usize) -> bool {
    let reservation = &RESERVATION[number];
    let seen = reservation.see();
    seen.state() == State::Unused
        && change(number, seen, State::Kernels).is_some()
        && reservation.begin_rest()
}

/// Unmaps the addresses of slots that were not begun, and lie side by side.
fn unmap_unused(slots: core::ops::Range<usize>) {
    let Some(last) = slots.clone().last() else { return };
    let (start, end) = (address(slots.start), address(last) + place(last).0);
    // SAFETY: the program does not have these.
    unsafe { sys::munmap(start, end - start) };
    slots.for_each(|number| RESERVATION[number].end_rest());
}
