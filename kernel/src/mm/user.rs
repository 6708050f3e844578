//! The program's memory, which may not be there: every access can fail with EFAULT and nothing else.
//!
//! Addresses are checked against the end of user space first. A fault below it is resolved like the program's
//! own (see `process::fault::from_kernel`), or the copy stops and the call fails.

use alloc::vec::Vec;

use abi::{Errno, Pod};

pub use crate::arch::USER_END;
use crate::arch::user_copy;
use crate::bytes::{prefix, prefix_mut};

const PAGE: u64 = 4096;
/// Number of bytes of a string that are read at a time.
const CHUNK: usize = 256;

fn check(at: u64, bytes: usize) -> Result<(), Errno> {
    let end = at.checked_add(bytes as u64);
    if end.is_some_and(|end| end <= USER_END) { Ok(()) } else { Err(Errno::EFAULT) }
}

fn ok(done: bool) -> Result<(), Errno> {
    if done { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Copies `dst.len()` bytes in from `from`.
#[inline]
pub fn copy_in(dst: &mut [u8], from: u64) -> Result<(), Errno> {
    check(from, dst.len())?;
    // SAFETY: the destination is a slice, and the source was checked to be the user's.
    ok(unsafe { user_copy::copy(dst.as_mut_ptr(), from as *const u8, dst.len()) })
}

/// Copies `src` out to `to`.
#[inline]
pub fn copy_out(to: u64, src: &[u8]) -> Result<(), Errno> {
    // SAFETY: the source is a slice.
    unsafe { copy_out_raw(to, src.as_ptr(), src.len()) }
}

/// Copies `len` bytes out to `to`. Others may write them meanwhile.
///
/// # Safety
/// The bytes at `from` can be read until the copy is done.
#[inline]
pub(super) unsafe fn copy_out_raw(to: u64, from: *const u8, len: usize) -> Result<(), Errno> {
    check(to, len)?;
    // SAFETY: the caller's promise, and the destination was checked to be the user's.
    ok(unsafe { user_copy::copy(to as *mut u8, from, len) })
}

/// Puts `len` zeroes out to `to`, at most a page.
pub fn clear(to: u64, len: usize) -> Result<(), Errno> {
    copy_out(to, prefix(&[0; PAGE as usize], len as u64))
}

/// Reads a `T` at `from`.
#[inline]
pub fn read<T: Pod>(from: u64) -> Result<T, Errno> {
    let mut value = T::new_zeroed();
    copy_in(value.as_mut_bytes(), from)?;
    Ok(value)
}

/// Writes `value` to `to`.
#[inline]
pub fn write<T: Pod>(to: u64, value: &T) -> Result<(), Errno> {
    copy_out(to, value.as_bytes())
}

/// Reads the NUL-terminated string at `from`, without the NUL: ENAMETOOLONG if `max` bytes hold none.
pub fn read_cstr(from: u64, max: usize) -> Result<Vec<u8>, Errno> {
    let mut string = Vec::new();
    while string.len() < max {
        let at = from.checked_add(string.len() as u64).ok_or(Errno::EFAULT)?;
        let mut chunk = [0; CHUNK];
        let chunk = prefix_mut(&mut chunk, (PAGE - at % PAGE).min((max - string.len()) as u64));
        copy_in(chunk, at)?;
        let end = chunk.iter().position(|&byte| byte == 0);
        let part = prefix(chunk, end.unwrap_or(chunk.len()) as u64);
        string.try_reserve(part.len()).map_err(|_| Errno::ENOMEM)?;
        string.extend_from_slice(part);
        if end.is_some() {
            return Ok(string);
        }
    }
    Err(Errno::ENAMETOOLONG)
}

fn check_u32(at: u64) -> Result<(), Errno> {
    if !at.is_multiple_of(4) { Err(Errno::EINVAL) } else { check(at, 4) }
}

/// Reads the word at `at` (futex), which must be aligned: EINVAL otherwise.
pub fn load_u32(at: u64) -> Result<u32, Errno> {
    check_u32(at)?;
    // SAFETY: checked to be the user's, and aligned.
    unsafe { user_copy::load_u32(at as *const u32) }.ok_or(Errno::EFAULT)
}

/// Replaces the word at `at` by `new` if it is `old`, and returns its former value.
pub fn compare_exchange_u32(at: u64, old: u32, new: u32) -> Result<u32, Errno> {
    check_u32(at)?;
    // SAFETY: checked to be the user's, and aligned.
    unsafe { user_copy::compare_exchange_u32(at as *mut u32, old, new) }.ok_or(Errno::EFAULT)
}
