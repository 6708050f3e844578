//! Memory whose content the program drops (MADV_DONTNEED), again and again: it is made zero and keeps its
//! frames. Allocators reset the memories of WebAssembly so. To drop pages, and to have them again by faults,
//! takes several times as long, and interrupts the other threads.
//!
//! | state of a range | | changed by |
//! |---|---|---|
//! | free | | a thread that counts its first drop, to taken |
//! | taken | a thread is changing it | that thread; by others, and its handlers, to spoiled |
//! | spoiled | taken, and a call has named the memory meanwhile | the thread that has taken it, to free |
//! | counted | has been dropped by the kernel some times | any thread, to taken or free |
//! | known | plain memory, and perhaps a private mapping of a file that has a view | any thread, to free |
//! | refused | is not that, or there are enough | any thread, to free |
//!
//! 1. *A known range is as the kernel's list says*, which was read once, when it had been dropped [`BEFORE`]
//!    times. Every call that may change a mapping first makes the ranges free that it names ([`forget`]).
//! 2. *Kept memory is bounded*: ranges of at most [`MOST_LENGTH`], and [`MOST_KEPT`] of all. Others are the
//!    kernel's.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use pathreads::maps::{Line, Reader};
use pathreads::reservation::Part;
use pathreads::{PAGE, page_end};

use super::{CPU, IS_ON, clear, current_cpu, views};
use crate::sys::{self, harmless, nr};

/// The drops of a range that are the kernel's.
const BEFORE: u32 = 8;

/// The most bytes of a range, and of all that are known.
const MOST_LENGTH: u64 = 1 << 20;
const MOST_KEPT: u64 = 32 << 20;

/// The number of ranges, and of those that a range may take the place of.
const RANGES: usize = 256;
const PROBED: usize = 4;

const FREE: u8 = 0;
const TAKEN: u8 = 1;
const COUNTED: u8 = 2;
const KNOWN: u8 = 3;
const REFUSED: u8 = 4;
const SPOILED: u8 = 5;

/// A range. The thread that takes it changes all but the state and the count.
#[repr(align(64))]
struct Range {
    state: AtomicU8,
    count: AtomicU32,
    start: AtomicU64,
    length: AtomicU64,
    /// The part of a file, by its distances from the start, its view, and its place in that.
    file: [AtomicU64; 2],
    view: AtomicU32,
    place: AtomicU64,
}

static RANGE: [Range; RANGES] = [const {
    Range {
        state: AtomicU8::new(FREE),
        count: AtomicU32::new(0),
        start: AtomicU64::new(0),
        length: AtomicU64::new(0),
        file: [const { AtomicU64::new(0) }; 2],
        view: AtomicU32::new(0),
        place: AtomicU64::new(0),
    }
}; RANGES];

/// The bytes of known ranges.
static KEPT: AtomicU64 = AtomicU64::new(0);

/// A bit for each part of the addresses in which a range has been, of [`GRAIN`] bytes.
static TOUCHED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
const WORDS: usize = 16;
const GRAIN: u64 = 2 << 20;

/// Whether there has been a range.
static IS_USED: AtomicBool = AtomicBool::new(false);

impl Range {
    fn change(&self, from: u8, to: u8) -> bool {
        let length = self.length.load(Ordering::Relaxed);
        // The owner's fields are seen by those that find the new state.
        let is_changed = self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_changed && from == KNOWN {
            KEPT.fetch_sub(length, Ordering::Relaxed);
        }
        is_changed
    }

    /// Ends the change of a range that this thread has taken. Returns whether it has the new state.
    fn end(&self, to: u8) -> bool {
        let is_it = self.change(TAKEN, to);
        if !is_it {
            self.change(SPOILED, FREE);
        }
        is_it
    }

    fn is(&self, at: u64, length: u64) -> bool {
        self.start.load(Ordering::Relaxed) == at && self.length.load(Ordering::Relaxed) == length
    }
}

/// Drops the content of a range, if it is known. Returns whether it did. Otherwise the drop is the kernel's.
#[inline(never)]
pub fn drop(at: u64, length: u64) -> bool {
    let length = page_end(length);
    if !IS_ON.load(Ordering::Relaxed) || !at.is_multiple_of(PAGE) || !(PAGE..=MOST_LENGTH).contains(&length) {
        return false;
    }
    let first = (at / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let probed = || (0..PROBED).map(|next| &RANGE[(first as usize + next) % RANGES]);
    for range in probed() {
        // Acquire pairs with the release in `change`.
        let state = range.state.load(Ordering::Acquire);
        if matches!(state, FREE | TAKEN | SPOILED) || !range.is(at, length) {
            continue;
        }
        match state {
            KNOWN if make_fresh(range, at, length) => {
                CPU[current_cpu()].drops.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            COUNTED if range.count.fetch_add(1, Ordering::Relaxed) >= BEFORE => learn(range, at, length),
            _ => {}
        }
        return false;
    }
    let is_free = |range: &&Range| range.change(FREE, TAKEN) || range.change(COUNTED, TAKEN);
    if let Some(range) = probed().find(is_free) {
        range.start.store(at, Ordering::Relaxed);
        range.length.store(length, Ordering::Relaxed);
        range.count.store(1, Ordering::Relaxed);
        note(at, length);
        range.end(COUNTED);
    }
    false
}

/// Makes a known range what it is after a drop. Returns whether it is.
fn make_fresh(range: &Range, at: u64, length: u64) -> bool {
    let [start, end] = range.file.each_ref().map(|word| word.load(Ordering::Relaxed));
    let (view, place) = (range.view.load(Ordering::Relaxed) as usize, range.place.load(Ordering::Relaxed));
    // The fields are of the range that was found if that is known still.
    fence(Ordering::Acquire);
    range.is(at, length)
        && range.state.load(Ordering::Relaxed) == KNOWN
        && clear(at, start / PAGE)
        && clear(at + end, (length - end) / PAGE)
        && (start == end || views::copy(view, place, at + start, end - start))
}

/// Makes a counted range known, or refuses it.
fn learn(range: &Range, at: u64, length: u64) {
    if !range.change(COUNTED, TAKEN) {
        return;
    }
    let is_little = KEPT.fetch_add(length, Ordering::Relaxed) + length <= MOST_KEPT;
    if let Some((file, view, place)) = is_little.then(|| read_list(at, length)).flatten() {
        range.file[0].store(file.start, Ordering::Relaxed);
        range.file[1].store(file.end, Ordering::Relaxed);
        range.view.store(view as u32, Ordering::Relaxed);
        range.place.store(place, Ordering::Relaxed);
        if range.end(KNOWN) {
            return;
        }
    } else {
        range.end(REFUSED);
    }
    KEPT.fetch_sub(length, Ordering::Relaxed);
}

/// The part of a range that is of a file, its view, and its place in that.
type OfFile = (Part, usize, u64);

/// Returns the part of a file in a range of which the kernel lists nothing but plain memory beside that.
fn read_list(at: u64, length: u64) -> Option<OfFile> {
    let list = sys::open(c"/proc/self/maps".as_ptr() as u64, 0).ok()?;
    let found = find_in(list, at, at + length);
    sys::close(list);
    found
}

fn find_in(list: u64, at: u64, end: u64) -> Option<OfFile> {
    let (mut reader, mut bytes) = (Reader::default(), [0_u8; 512]);
    let (mut covered, mut of_file) = (at, None);
    loop {
        let length = harmless!(nr::READ, list, bytes.as_mut_ptr() as u64, bytes.len() as u64).ok()?;
        for byte in bytes.get(..length as usize).filter(|bytes| !bytes.is_empty())? {
            let Some(line) = reader.take(*byte) else { continue };
            if line.end <= at {
                continue;
            }
            if line.start > covered || line.rights != *b"rw-p" {
                return None;
            }
            let part = Part { start: covered - at, end: line.end.min(end) - at };
            if line.number != 0 {
                of_file = Some(view_of(&line, at, part).filter(|_| of_file.is_none())?);
            } else if line.is_named {
                return None;
            }
            covered = line.end;
            if covered >= end {
                return Some(of_file.unwrap_or_default());
            }
        }
    }
}

/// Returns the view of a mapping of a file.
fn view_of(line: &Line, at: u64, part: Part) -> Option<OfFile> {
    let place = line.offset + (at + part.start - line.start);
    let (view, place) = views::with(line.device, line.number, place, part.length())?;
    Some((part, view, place))
}

/// Notes that a range is used.
fn note(at: u64, length: u64) {
    IS_USED.store(true, Ordering::Relaxed);
    for grain in at / GRAIN..=(at + length - 1) / GRAIN {
        bit_of(grain).0.fetch_or(bit_of(grain).1, Ordering::Relaxed);
    }
}

fn bit_of(grain: u64) -> (&'static AtomicU64, u64) {
    (&TOUCHED[grain as usize / 64 % WORDS], 1 << (grain % 64))
}

/// Forgets the ranges that a call names which may change their mapping. It is made after that.
pub fn forget(at: u64, length: u64) {
    if IS_USED.load(Ordering::Relaxed) && length > 0 && is_touched(at, length) {
        forget_all(at, at.saturating_add(length));
    }
}

fn is_touched(at: u64, length: u64) -> bool {
    let (first, last) = (at / GRAIN, at.saturating_add(length - 1) / GRAIN);
    let has_bit = |grain| bit_of(grain).0.load(Ordering::Relaxed) & bit_of(grain).1 != 0;
    last - first >= 64 || (first..=last).any(has_bit)
}

#[inline(never)]
fn forget_all(start: u64, end: u64) {
    for range in &RANGE {
        let at = range.start.load(Ordering::Relaxed);
        if at < end && start < at.saturating_add(range.length.load(Ordering::Relaxed)) {
            let is_over = |state| matches!(state, FREE | SPOILED);
            while !is_over(range.state.load(Ordering::Acquire)) {
                let _ = range.change(TAKEN, SPOILED)
                    || [COUNTED, KNOWN, REFUSED].iter().any(|state| range.change(*state, FREE));
            }
        }
    }
}
