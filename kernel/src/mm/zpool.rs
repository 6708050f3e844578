//! The pool of compressed pages (Linux's zpool): objects of a few sizes, packed into frames.
//!
//! ```text
//!   a frame of the class of 9 units (of 64 bytes):
//!   | Header | object | object |   -    | object | object | object | object |     `used`: which of them are
//!                │
//!                └ | holders, length, class | bytes ... |
//! ```
//!
//! 1. An object's number is its address in units, so no table is needed to find it.
//! 2. The list of a class has exactly the frames of the class that have room. A frame without objects goes
//!    back to the pool. Lists and headers are read and written with the class's lock held.
//! 3. An object's `length`, `class` and bytes are written before its number is known to any other core, and
//!    never change, so a holder reads them without a lock. The last holder frees the object.
//! 4. Making an object needs no memory: the caller brings a frame of its own, which is used if no other has
//!    room.

use core::sync::atomic::{AtomicU32, Ordering};

use percore::Pinned;
use sync::{CachePadded, SpinLock};
use vm::{CompressedNum, FrameNum};

use super::FRAME;
use super::frames;
use crate::arch::phys_to_virt;
use crate::counters::{self, Counter};

const UNIT: usize = 64;
/// Units of an object by class: the largest sizes of which the same number fits in a frame behind its header.
const CLASSES: [usize; 13] = [1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 15, 21, 31];
const UNITS: usize = FRAME as usize / UNIT - 1;
const _: () = assert!(size_of::<Header>() <= UNIT && size_of::<Object>() == 8);

/// Bytes that an object can hold.
pub(super) const MOST: usize = CLASSES[CLASSES.len() - 1] * UNIT - size_of::<Object>();
/// Frames from here on have objects whose numbers would be too long: beyond 256 GiB.
const END: u64 = (1 << u32::BITS) * UNIT as u64 / FRAME;

/// The first unit of a frame.
struct Header {
    /// The objects in use: a bit for each.
    used: u64,
    /// The frames before and after it in its class's list, if it has room. 0 is none.
    before: u64,
    after: u64,
}

/// The header of an object, before its bytes.
struct Object {
    holders: AtomicU32,
    length: u16,
    class: u16,
}

/// By class, the first of the frames that have room. 0 is none.
static ROOMY: [CachePadded<SpinLock<u64>>; CLASSES.len()] =
    [const { CachePadded::new(SpinLock::new(0)) }; CLASSES.len()];

fn number(frame: u64, class: usize, at: u32) -> CompressedNum {
    let unit = 1 + at as usize * CLASSES[class];
    CompressedNum::new((frame as usize * (UNITS + 1) + unit) as u32)
}

fn frame_of(number: CompressedNum) -> u64 {
    u64::from(number.get()) / (UNITS as u64 + 1)
}

fn address(number: CompressedNum) -> *mut u8 {
    phys_to_virt(u64::from(number.get()) * UNIT as u64)
}

/// Returns the `used` bits of a full frame.
fn full(class: usize) -> u64 {
    (1 << (UNITS / CLASSES[class])) - 1
}

/// # Safety
/// The frame is of a class whose lock the caller holds, and has no other reference to the header.
unsafe fn header<'a>(frame: u64) -> &'a mut Header {
    // SAFETY: the caller's promise. A frame of a class begins with its header.
    unsafe { &mut *phys_to_virt(frame * FRAME) }
}

/// # Safety
/// The caller holds the object.
unsafe fn object<'a>(number: CompressedNum) -> &'a Object {
    // SAFETY: it was written before the number was known, and stays as long as it is held.
    unsafe { &*address(number).cast() }
}

/// Puts `bytes`, at most [`MOST`], into an object with one holder: the caller. Its frame `spare` is used for
/// the object, or goes back to the pool. Returns `None` if `spare` lies too high.
pub(super) fn put(pin: &Pinned, bytes: &[u8], spare: FrameNum) -> Option<CompressedNum> {
    if spare.get() >= END {
        return None;
    }
    let class = CLASSES.iter().position(|units| units * UNIT >= bytes.len() + size_of::<Object>())?;
    let (frame, at) = take(class, spare.get());
    counters::add(pin, Counter::FramesUsed, -1);
    match frame == spare.get() {
        true => counters::add(pin, Counter::CompressedFrames, 1),
        false => frames::free_raw(pin, spare.get()),
    }
    let number = number(frame, class, at);
    let head = Object { holders: AtomicU32::new(1), length: bytes.len() as u16, class: class as u16 };
    // SAFETY: the object was free, it is large enough for its class, and no other core knows it.
    unsafe {
        address(number).cast::<Object>().write(head);
        address(number).add(size_of::<Object>()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    }
    Some(number)
}

/// Takes a free object of `class`: its frame, `spare` if no other has room, and which it is.
fn take(class: usize, spare: u64) -> (u64, u32) {
    let mut first = ROOMY[class].lock();
    if *first == 0 {
        // SAFETY: the caller's own frame.
        unsafe { phys_to_virt::<Header>(spare * FRAME).write(Header { used: 0, before: 0, after: 0 }) };
        *first = spare;
    }
    let frame = *first;
    // SAFETY: locked, and the only reference.
    let header = unsafe { header(frame) };
    let at = (!header.used).trailing_zeros();
    header.used |= 1 << at;
    if header.used == full(class) {
        unlink(&mut first, frame);
    }
    (frame, at)
}

/// Returns the bytes of an object.
///
/// # Safety
/// The caller holds it as long as it reads them.
pub(super) unsafe fn bytes<'a>(number: CompressedNum) -> &'a [u8] {
    // SAFETY: the caller's promise.
    let length = unsafe { object(number) }.length.into();
    // SAFETY: they were written before the number was known.
    unsafe { core::slice::from_raw_parts(address(number).add(size_of::<Object>()), length) }
}

/// Adds `by` references to an object, and frees it when the count reaches zero. The caller holds one
/// reference.
pub(super) fn adjust(pin: &Pinned, number: CompressedNum, by: i64) {
    // SAFETY: the caller holds it until the last line.
    let object = unsafe { object(number) };
    let class = usize::from(object.class);
    // Release: reads of the bytes come before the object is used again. Acquire: the reads of all holders.
    let before = object.holders.fetch_add(by as u32, Ordering::AcqRel);
    if before.wrapping_add(by as u32) == 0 {
        give_back(pin, class, number);
    }
}

/// Frees an object that has no holder.
fn give_back(pin: &Pinned, class: usize, number: CompressedNum) {
    let frame = frame_of(number);
    let unit = number.get() as usize % (UNITS + 1);
    if leave(class, frame, (unit - 1) / CLASSES[class]) {
        counters::add(pin, Counter::CompressedFrames, -1);
        frames::free_raw(pin, frame);
    }
}

/// Frees object `at` of `frame`. Returns whether the frame is now empty, and out of its class.
fn leave(class: usize, frame: u64, at: usize) -> bool {
    let mut first = ROOMY[class].lock();
    // SAFETY: locked, and the only reference.
    let header = unsafe { header(frame) };
    let was_full = header.used == full(class);
    header.used &= !(1 << at);
    let is_empty = header.used == 0;
    match (was_full, is_empty) {
        (true, false) => link(&mut first, frame),
        (false, true) => unlink(&mut first, frame),
        _ => {}
    }
    is_empty
}

/// Adds a frame to the list that begins with `first` and is locked.
fn link(first: &mut u64, frame: u64) {
    let after = core::mem::replace(first, frame);
    // SAFETY: locked, and one reference at a time.
    unsafe {
        (header(frame).before, header(frame).after) = (0, after);
        if after != 0 {
            header(after).before = frame;
        }
    }
}

/// Takes a frame off the list that begins with `first` and is locked.
fn unlink(first: &mut u64, frame: u64) {
    // SAFETY: locked, and one reference at a time.
    unsafe {
        let (before, after) = (header(frame).before, header(frame).after);
        match before {
            0 => *first = after,
            _ => header(before).after = after,
        }
        if after != 0 {
            header(after).before = before;
        }
    }
}
