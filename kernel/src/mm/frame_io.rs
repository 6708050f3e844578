//! Reads and writes frames that others may use at the same time: programs by their mappings, calls on the
//! same file. A read during a write gets a mixture of old and new bytes, and nothing worse.
//!
//! The caller keeps the frame: it holds a reference, or has been pinned since it found the frame where a
//! reference is held (see `page_tree.rs`).

use abi::Errno;
use vm::FrameNum;

use super::FRAME;
use super::{frames, user};
use crate::arch::{self, phys_to_virt};

/// Fills `into` with the frame's bytes from `offset` on.
pub fn read(frame: FrameNum, offset: usize, into: &mut [u8]) {
    let from = place(frame, offset, into.len());
    // SAFETY: the bytes are the frame's, which the caller keeps, and the slice is the caller's.
    unsafe { arch::copy_bytes(into.as_mut_ptr(), from, into.len()) };
}

/// Copies `len` bytes of the frame from `offset` on to the program at `to`.
///
/// # Errors
/// EFAULT if a page of the program's is missing, perhaps after some bytes were copied.
pub fn copy_out(frame: FrameNum, offset: usize, to: u64, len: usize) -> Result<(), Errno> {
    let from = place(frame, offset, len);
    // SAFETY: the bytes are the frame's, which the caller keeps.
    unsafe { user::copy_out_raw(to, from, len) }
}

/// Puts `from` into the frame at `offset`.
pub fn write(frame: FrameNum, offset: usize, from: &[u8]) {
    let to = place(frame, offset, from.len());
    // SAFETY: as in `read`.
    unsafe { arch::copy_bytes(to, from.as_ptr(), from.len()) };
}

/// Puts zeroes into the frame from `offset` up to `end`.
pub fn clear(frame: FrameNum, offset: usize, end: usize) {
    let to = place(frame, offset, end - offset);
    // SAFETY: as in `read`.
    unsafe { arch::clear_bytes(to, end - offset) };
}

/// # Panics
/// Unless `len` bytes from `offset` on lie in a frame of the machine.
fn place(frame: FrameNum, offset: usize, len: usize) -> *mut u8 {
    let inside = offset.checked_add(len).is_some_and(|end| end <= FRAME as usize);
    assert!(inside && frames::exists(frame), "bytes outside of a frame");
    phys_to_virt(frame.get() * FRAME + offset as u64)
}
