//! The operations of FUTEX_WAKE_OP: changing a word, and comparing its old value.

use abi::Errno;

use crate::mm::user;

/// Sign-extends an operand field of FUTEX_WAKE_OP, which has 12 bits.
fn signed_12(bits: u32) -> i32 {
    (bits << 20) as i32 >> 20
}

/// Changes the word at `at` and returns its old value.
///
/// # Errors
/// ENOSYS (unknown operation), EFAULT.
pub fn update(at: u64, operation: u32) -> Result<u32, Errno> {
    let argument = match operation >> 31 {
        0 => signed_12(operation >> 12) as u32,
        _ => 1u32.wrapping_shl(operation >> 12 & 31),
    };
    let mut old = user::load_u32(at)?;
    loop {
        let new = match operation >> 28 & 7 {
            0 => argument,
            1 => old.wrapping_add(argument),
            2 => old | argument,
            3 => old & !argument,
            4 => old ^ argument,
            _ => return Err(Errno::ENOSYS),
        };
        let found = user::compare_exchange_u32(at, old, new)?;
        if found == old {
            return Ok(old);
        }
        old = found;
    }
}

/// Returns whether `old` satisfies the operation's comparison.
///
/// # Errors
/// ENOSYS (unknown comparison).
pub fn compare(old: i32, operation: u32) -> Result<bool, Errno> {
    let argument = signed_12(operation);
    match operation >> 24 & 15 {
        0 => Ok(old == argument),
        1 => Ok(old != argument),
        2 => Ok(old < argument),
        3 => Ok(old <= argument),
        4 => Ok(old > argument),
        5 => Ok(old >= argument),
        _ => Err(Errno::ENOSYS),
    }
}
