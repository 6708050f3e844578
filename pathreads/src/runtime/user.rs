//! Access to memory by addresses that the program gave. A wrong address is an error and not a crash:
//! the copy is one instruction, and the handler of SIGSEGV ends it there (`sigaction`).

use abi::Errno;

use crate::entry::{user_clear, user_copy, user_touch};
use crate::sys::Result;

/// Copies from `address`, as many bytes as can be read.
pub fn read_some(address: u64, to: &mut [u8]) -> usize {
    // SAFETY: a byte that cannot be read ends the copy, and the bytes fit.
    to.len() - unsafe { user_copy(to.as_mut_ptr() as u64, address, to.len()) }
}

/// Copies a string, or its first bytes. A page after the string's end is not touched.
pub fn read_text(address: u64, to: &mut [u8]) -> usize {
    let in_page = to.len().min((pathreads::PAGE - address % pathreads::PAGE) as usize);
    let (first, rest) = to.split_at_mut(in_page);
    let length = read_some(address, first);
    if length < first.len() || first.contains(&0) {
        return length;
    }
    length + read_some(address + length as u64, rest)
}

/// Copies all bytes of `to` from `address`.
pub fn read(address: u64, to: &mut [u8]) -> Result<()> {
    let length = to.len();
    (read_some(address, to) == length).then_some(()).ok_or(Errno::EFAULT)
}

/// Reads words.
pub fn words<const N: usize>(address: u64) -> Result<[u64; N]> {
    let mut words = [0_u64; N];
    words_into(address, &mut words)?;
    Ok(words)
}

/// Reads as many words as there is room for.
pub fn words_into(address: u64, words: &mut [u64]) -> Result<()> {
    // SAFETY: the bytes of these words, and any bytes make words.
    let bytes = unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) };
    read(address, bytes)
}

/// Writes bytes to an address of the program.
pub fn write(address: u64, from: &[u8]) -> Result<()> {
    // SAFETY: a byte that cannot be written ends the copy. The program gave the address to be written
    // to by the kernel.
    let left = unsafe { user_copy(address, from.as_ptr() as u64, from.len()) };
    if left == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Writes to a byte without changing it, if it can be written.
pub fn write_same(address: u64) {
    // SAFETY: one instruction reads and writes the byte, so what another thread writes there is not lost. A
    // byte that cannot be written ends this.
    unsafe { user_touch(address) };
}

/// Copies from an address to another. A byte that cannot be read or written ends that. Returns whether all
/// are copied.
///
/// # Safety
/// The memory that is written to must be the program's.
pub unsafe fn copy(from: u64, to: u64, length: u64) -> bool {
    // SAFETY: the caller answers for what is written to.
    unsafe { user_copy(to, from, length as usize) == 0 }
}

/// Writes zeroes to memory that the program has unmapped, or drops. A fault ends it, and maps nothing.
/// Returns whether all are written.
pub fn clear(address: u64, length: u64) -> bool {
    // SAFETY: nothing of the memory is used any more, and a byte that cannot be written ends this.
    unsafe { user_clear(address, length) == 0 }
}

/// Writes words to an address of the program.
pub fn write_words(address: u64, words: &[u64]) -> Result<()> {
    // SAFETY: the bytes of these words.
    write(address, unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) })
}
