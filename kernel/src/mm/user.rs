//! The program's memory, which may not be there: every access can fail with EFAULT and nothing else.
//!
//! Addresses are checked against the end of user space first; a fault in between is resolved like the
//! program's own (see `process::fault::from_kernel`), or the copy stops and the call fails.

use alloc::vec::Vec;

use abi::{Errno, Pod};

/// One past the last address a program may use.
pub const USER_END: u64 = 0x7fff_ffff_f000;

/// Copies `dst.len()` bytes in from `from`.
pub fn copy_in(_dst: &mut [u8], _from: u64) -> Result<(), Errno> {
    Err(Errno::EFAULT)
}

/// Copies `src` out to `to`.
pub fn copy_out(_to: u64, _src: &[u8]) -> Result<(), Errno> {
    Err(Errno::EFAULT)
}

/// Reads a `T` at `from`.
pub fn read<T: Pod>(from: u64) -> Result<T, Errno> {
    let mut value = T::new_zeroed();
    copy_in(abi::zerocopy::IntoBytes::as_mut_bytes(&mut value), from)?;
    Ok(value)
}

/// Writes `value` to `to`.
pub fn write<T: Pod>(to: u64, value: &T) -> Result<(), Errno> {
    copy_out(to, abi::zerocopy::IntoBytes::as_bytes(value))
}

/// Fills `length` bytes at `to` with zeroes.
pub fn zero(_to: u64, _length: u64) -> Result<(), Errno> {
    Err(Errno::EFAULT)
}

/// The NUL-terminated string at `from`, without the NUL: ENAMETOOLONG if `max` bytes hold none.
pub fn read_cstr(_from: u64, _max: usize) -> Result<Vec<u8>, Errno> {
    Err(Errno::EFAULT)
}

/// The word at `at` (futex), which must be aligned: EINVAL otherwise.
pub fn load_u32(_at: u64) -> Result<u32, Errno> {
    Err(Errno::EFAULT)
}

/// Replaces the word at `at` by `new` if it is `old`; says what it was.
pub fn compare_exchange_u32(_at: u64, _old: u32, _new: u32) -> Result<u32, Errno> {
    Err(Errno::EFAULT)
}
