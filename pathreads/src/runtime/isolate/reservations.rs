//! Reservations of this member: mappings without rights, of which it opens a part. They are mapped, opened
//! and unmapped again without the lock of the record. `pathreads::member_reservation` has the states and
//! says who may change them.
//!
//! A reservation is recorded as any mapping is, once, and its part when that is opened first. When its member
//! unmaps it, the part is made zero and inaccessible. Then the next mapping of that length takes no call of
//! Linux, and opening the same part takes one. `blocks` calls what is here for what is the same for both.

use core::sync::atomic::{AtomicU32, Ordering};

use pathreads::block::MOST_PAGES;
use pathreads::member_reservation::{END, SLOTS, START, Seen, Slot, State};
use pathreads::record::{Members, Record, Region};
use pathreads::reservation::{CLASSES, Part};
use pathreads::{PAGE, page_end};

use super::{blocks, control, copies, full, lacks, me, memory, memory_file, punch};
use crate::dispatch;
use crate::entry::Frame;
use crate::pool::views;
use crate::sys::{self, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, Result, nr};

const OPEN: u64 = PROT_READ | PROT_WRITE;

/// The slots of each class that this member has kept, as bits. They are hints: another member may have made
/// one ordinary.
static KEPT: [AtomicU32; CLASSES] = [const { AtomicU32::new(0) }; CLASSES];

const _: () = assert!(SLOTS <= 32);

/// Forgets what is kept, in a member or a process whose maker's reservations are not its own.
pub fn forget_kept() {
    KEPT.iter().for_each(|slots| slots.store(0, Ordering::Relaxed));
}

/// Returns whether this member may have reservations. A limit of addresses counts those that are kept.
fn are_possible() -> bool {
    blocks::are_possible() && control().address_limit.load(Ordering::Relaxed) == u64::MAX
}

/// Returns the class and the length of a mapping that is to be a reservation.
fn class_and_length([address, length, rights, flags, _, offset]: [u64; 6]) -> Option<(usize, u64)> {
    let is_it = length > 0 && dispatch::is_reservation(address, rights, flags, offset);
    let class = Slot::class_for(length).filter(|_| is_it && are_possible())?;
    Some((class, page_end(length)))
}

/// Returns whether a mapping may be a reservation.
pub fn is_possible(arguments: [u64; 6]) -> bool {
    class_and_length(arguments).is_some()
}

/// Returns this member's slots of a class.
fn slots(class: usize) -> impl Iterator<Item = Slot> {
    (0..SLOTS).map(move |number| Slot { member: me(), class, number })
}

/// Maps memory without rights, if this member has kept a reservation of that length.
#[inline(never)]
pub fn map(frame: &Frame) -> Option<u64> {
    let (class, length) = class_and_length(frame.arguments())?;
    let hints = KEPT[class].load(Ordering::Relaxed);
    let table = &control().reservations;
    let kept = slots(class).filter(|slot| hints >> slot.number & 1 != 0).find(|slot| {
        let seen = table.see(*slot);
        (seen.state, seen.length) == (State::Kept, length)
            && table.change(*slot, seen, seen.but(State::Reserved))
    })?;
    KEPT[class].fetch_and(!(1 << kept.number), Ordering::Relaxed);
    Some(kept.start())
}

/// Makes the part of a reservation readable and writable again that was so before.
#[inline(never)]
pub fn open(start: u64, length: u64, rights: u64) -> Option<u64> {
    let slot = Slot::at(start).filter(|slot| slot.member == me())?;
    if rights == OPEN { open_part(slot, start, length) } else { None }
}

#[inline(never)]
fn open_part(slot: Slot, start: u64, length: u64) -> Option<u64> {
    let table = &control().reservations;
    let seen = table.see(slot);
    let is_part = seen.state == State::Reserved && slot.part(start, length) == Some(seen.part);
    // Members whose calls lack memory are asked when there is more.
    let is_asked_for = control().lacking.load(Ordering::Relaxed) != 0;
    let opening = seen.but(State::Opening);
    if !is_part || is_asked_for || !table.change(slot, seen, opening) {
        return None;
    }
    if protect(slot, seen.part, OPEN).is_err() {
        table.change(slot, opening, seen);
        return None;
    }
    if table.change(slot, opening, seen.but(State::Open)) {
        // The change is a barrier, as that of the count in `lacks::note` is: one of the two sees the other.
        if control().lacking.load(Ordering::Relaxed) != 0 {
            tell();
        }
        return Some(0);
    }
    blocks::restore(slot.start(), slot.end());
    None
}

/// Asks the members whose calls lack memory.
#[inline(never)]
fn tell() {
    super::prepare_stack();
    super::locked(|_| lacks::tell());
}

/// Unmaps exactly a reservation of this member. Returns whether it did.
#[inline(never)]
pub fn unmap(at: u64, length: u64) -> bool {
    let Some(slot) = Slot::at(at).filter(|slot| slot.member == me()) else { return false };
    let seen = control().reservations.see(slot);
    if at != slot.start() || page_end(length) != seen.length || !are_possible() {
        return false;
    }
    match seen.state {
        State::Reserved | State::Open if bytes_kept() + bytes_of(&seen) > blocks::KEPT_MOST => false,
        State::Reserved => change_to_kept(slot, seen),
        State::Open => blocks::closing(at, || close(slot, seen)),
        _ => false,
    }
}

/// Makes the part of a reservation zero and inaccessible, which the program unmaps. Returns `false` if it is
/// to be unmapped as ordinary memory.
fn close(slot: Slot, open: Seen) -> bool {
    let table = &control().reservations;
    let closing = open.but(State::Closing);
    if !table.change(slot, open, closing) {
        return false;
    }
    let is_closed = blocks::clear(slot.start() + open.part.start, open.part.length())
        && protect(slot, open.part, 0).is_ok();
    if !is_closed {
        return !table.change(slot, closing, open);
    }
    table.set_copied(slot, Part::default());
    if !change_to_kept(slot, closing) {
        blocks::restore(slot.start(), slot.end());
    }
    true
}

/// Keeps a reservation that is closed. Returns whether it was still this member's.
fn change_to_kept(slot: Slot, from: Seen) -> bool {
    let is_kept = control().reservations.change(slot, from, from.but(State::Kept));
    if is_kept {
        KEPT[slot.class].fetch_or(1 << slot.number, Ordering::Relaxed);
    }
    is_kept
}

/// Returns the bytes of a part whose frames are kept. Those of a large one are dropped.
fn bytes_of(seen: &Seen) -> u64 {
    Some(seen.part.length()).filter(|length| *length <= MOST_PAGES * PAGE).unwrap_or(0)
}

/// Returns the bytes of all that this member keeps.
fn bytes_kept() -> u64 {
    let hints = |class: usize| KEPT[class].load(Ordering::Relaxed);
    let all = (0..CLASSES).filter(|class| hints(*class) != 0).flat_map(slots);
    let seen = all
        .filter(|slot| hints(slot.class) >> slot.number & 1 != 0)
        .map(|slot| control().reservations.see(slot));
    seen.filter(|seen| seen.state == State::Kept).map(|seen| bytes_of(&seen)).sum()
}

fn protect(slot: Slot, part: Part, rights: u64) -> Result {
    // SAFETY: the memory is a reservation that this member is opening or closing.
    unsafe { sys::call(nr::MPROTECT, [slot.start() + part.start, part.length(), rights]) }
}

/// Maps a file privately over the open part of a reservation, if that can be copied. Returns the address if
/// it is.
#[inline(never)]
pub fn map_file(frame: &Frame) -> Option<u64> {
    let [at, _, rights, flags, _, offset] = frame.arguments();
    let is_plain = flags & !MAP_NORESERVE == MAP_PRIVATE | MAP_FIXED && offset.is_multiple_of(PAGE);
    let slot = Slot::at(at).filter(|slot| is_plain && rights == OPEN && slot.member == me())?;
    copy_file(slot, frame.arguments())
}

/// Copies a file over the open part of a reservation. Not inlined, as some others here, because Go makes
/// calls with little stack.
#[inline(never)]
fn copy_file(slot: Slot, [at, length, _, _, file, offset]: [u64; 6]) -> Option<u64> {
    let table = &control().reservations;
    let (seen, copied, wanted) = (table.see(slot), table.copied(slot), slot.part(at, length)?);
    if seen.state != State::Open || !seen.part.has(wanted) || copied.length() > 0 && copied != wanted {
        return None;
    }
    let view = views::of(file, offset, page_end(length))?;
    let copying = seen.but(State::Copying);
    if !table.change(slot, seen, copying) {
        return None;
    }
    let is_copied = views::copy(view, 0, at, page_end(length));
    if is_copied {
        table.set_copied(slot, wanted);
    }
    (table.change(slot, copying, seen) && is_copied).then_some(at)
}

/// Finds a slot for a new reservation. One that is kept, and has another length, goes.
pub fn place(record: &mut Record, arguments: [u64; 6]) -> Option<Slot> {
    let (class, length) = class_and_length(arguments)?;
    let end_of = |slot: &Slot| slot.start() + length;
    let is_free = |record: &Record, slot: &Slot| {
        record.is_free(slot.start() - PAGE, end_of(slot) + PAGE) && !blocks::is_closing(slot.start())
    };
    if let Some(slot) = slots(class).find(|slot| is_free(record, slot)) {
        return Some(slot);
    }
    let kept = slots(class).find(|slot| control().reservations.see(*slot).state == State::Kept)?;
    blocks::settle(record, kept.start(), kept.end()).ok()?;
    Some(kept).filter(|slot| is_free(record, slot))
}

/// Begins a reservation that was recorded and mapped here as ordinary memory.
pub fn begin_use(slot: Slot, length: u64) {
    let reserved = Seen { state: State::Reserved, length, part: Part::default() };
    // A call that failed may have left one.
    control().reservations.set_copied(slot, Part::default());
    control().reservations.change(slot, Seen::default(), reserved);
}

/// Begins a reservation of ordinary memory of which a part was opened, if it can be one. The lock is held.
pub fn begin_open(record: &mut Record, at: u64) {
    let Some(slot) = Slot::at(at).filter(|slot| slot.member == me() && are_possible()) else {
        return;
    };
    if let Some(open) = as_open(record, slot) {
        control().reservations.change(slot, Seen::default(), open);
    }
}

/// Returns the reservation that a slot's ordinary memory is: what lies before and behind one readable and
/// writable region has no rights, and no other member has any of it.
fn as_open(record: &Record, slot: Slot) -> Option<Seen> {
    let start = slot.start();
    let regions = record.touched(start - PAGE, slot.end());
    let end = regions.clone().last()?.end;
    let is_plain =
        |region: &Region| region.is_fresh() && !region.is_stack && region.holders == Members::only(me());
    // The next mapping must find it zero, and only the part is made so.
    let is_empty = |region: &Region| {
        let (start, end) = (region.offset_of(region.start), region.offset_of(region.end));
        region.rights != 0 || copies::first_data(memory_file(), start, end).is_none()
    };
    let is_whole = regions.clone().next()?.start == start
        && end < slot.end()
        && record.covers(start, end)
        && regions.clone().all(is_plain)
        && regions.clone().all(is_empty);
    let mut with_rights = regions.filter(|region| region.rights != 0);
    let open = with_rights.next().filter(|region| is_whole && region.rights == OPEN)?;
    if with_rights.next().is_some() {
        return None;
    }
    let part = Part { start: open.start - start, end: open.end - start };
    Some(Seen { state: State::Open, length: end - start, part }).filter(|seen| seen.fits())
}

/// Returns the reservation that a region is of, unless that is ordinary.
pub fn of(region: &Region) -> Option<(Slot, Seen)> {
    let slot = Slot::at(region.start)?;
    let seen = control().reservations.see(slot);
    (region.start - slot.start() < seen.length).then_some((slot, seen))
}

/// Returns whether a region is the program's, with its rights. A reservation becomes ordinary then, so that
/// this member can map it. The lock is held.
#[inline(never)]
pub fn open_for_all(region: &Region) -> bool {
    of(region).is_none_or(|(slot, _)| {
        let table = &control().reservations;
        loop {
            let seen = table.see(slot);
            if !seen.is_open() || seen.state == State::Ordinary {
                return seen.is_open();
            }
            // Before the state changes: see `touch`.
            super::announce();
            if table.change(slot, seen, Seen::default()) {
                return true;
            }
        }
    })
}

/// Makes the reservation ordinary that a region is of, so that the record alone says what the program has
/// there. Returns the address behind. The lock is held.
pub fn settle(record: &mut Record, region: &Region) -> Result {
    let Some((slot, _)) = of(region) else {
        mark_copies(record, region.start, region.end)?;
        return Ok(region.end);
    };
    // Before the state changes: see `touch`. Its own member has it mapped.
    match slot.member == me() {
        true => super::announce(),
        false => _ = super::announce_to_all(),
    }
    let seen = control().reservations.end(slot);
    let (start, end) = (slot.start(), slot.start() + seen.length);
    if !seen.is_programs() {
        control().reservations.set_copied(slot, Part::default());
        memory::remove_kept(record, start, end)?;
    } else if !seen.is_open() {
        record.change(start + seen.part.start, start + seen.part.end, |region| {
            region.rights = 0;
            // It is zero, and another part may be opened next.
            punch(region.offset_of(region.start), region.offset_of(region.end));
        });
        record.join(start, end);
    }
    mark_copies(record, start, end)?;
    Ok(end.max(region.end))
}

/// Makes all ordinary of which a part of at least this length is open. All other members are stopped.
pub fn settle_large(record: &mut Record, length: u64) -> Result<()> {
    let mut at = START;
    while let Some(region) = record.touched(at, END).next().copied() {
        at = region.end;
        if of(&region).is_some_and(|(_, seen)| seen.is_open() && seen.part.length() >= length) {
            at = settle(record, &region)?;
        }
    }
    Ok(())
}

/// Notes in the record what was copied from files, which is not zero again when the program drops it. The
/// lock is held.
pub fn mark_copies(record: &mut Record, start: u64, end: u64) -> Result<()> {
    for slot in Slot::touched(start, end) {
        let copied = control().reservations.copied(slot);
        if copied.length() > 0 {
            let (from, to) = (slot.start() + copied.start, slot.start() + copied.end);
            record.divide(from, to).map_err(full)?;
            record.change(from, to, |region| region.is_copy = true);
            control().reservations.set_copied(slot, Part::default());
        }
    }
    Ok(())
}

/// Makes the reservations of a range ordinary of which something was copied from files: that is about to be
/// dropped, or not. The lock is held.
pub fn settle_copies(record: &mut Record, start: u64, end: u64) -> Result<()> {
    let has_copies = |slot: &Slot| control().reservations.copied(*slot).length() > 0;
    for slot in Slot::touched(start, end).filter(has_copies) {
        blocks::settle(record, slot.start(), slot.end())?;
    }
    Ok(())
}

/// Returns whether a range may have memory that another member alone has mapped.
#[inline(never)]
pub fn may_be_others(start: u64, end: u64) -> bool {
    let is_others =
        |slot: Slot| slot.member != me() && control().reservations.see(slot).state != State::Ordinary;
    end > START && Slot::touched(start, end).any(is_others)
}

/// Returns whether a range touches one that its member has not unmapped yet.
#[inline(never)]
pub fn is_busy(start: u64, end: u64) -> bool {
    Slot::touched(start, end).any(|slot| control().reservations.see(slot).state == State::Closing)
}
