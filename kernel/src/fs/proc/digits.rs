//! Numbers as `/proc` writes them. `core::fmt` takes some hundred instructions for each, and a list of
//! mappings is little else.

use core::fmt;

use crate::fs::fallible::Text;

/// The most digits that a number has.
const DIGITS: usize = 20;

/// Writes `value` in hexadecimal, with zeroes in front if it has less than `width` digits.
pub fn hex(text: &mut Text, value: u64, width: usize) -> fmt::Result {
    number::<16>(text, value, width, b'0')
}

/// Writes `value`, with spaces in front if it has less than `width` digits.
pub fn decimal(text: &mut Text, value: u64, width: usize) -> fmt::Result {
    number::<10>(text, value, width, b' ')
}

fn number<const BASE: u64>(text: &mut Text, value: u64, width: usize, fill: u8) -> fmt::Result {
    let (mut digits, mut rest, mut left) = ([fill; DIGITS], value, DIGITS);
    for place in digits.iter_mut().rev() {
        *place = digit(rest % BASE);
        rest /= BASE;
        left -= 1;
        if rest == 0 {
            break;
        }
    }
    let start = left.min(DIGITS.saturating_sub(width));
    bytes(text, digits.get(start..).unwrap_or_default())
}

fn digit(value: u64) -> u8 {
    let value = value as u8;
    if value < 10 { b'0' + value } else { b'a' + value - 10 }
}

/// Writes `more`.
pub fn bytes(text: &mut Text, more: &[u8]) -> fmt::Result {
    text.0.try_reserve(more.len()).map_err(|_| fmt::Error)?;
    text.0.extend_from_slice(more);
    Ok(())
}

/// Writes spaces until what begins at `start` has `width` bytes.
pub fn pad(text: &mut Text, start: usize, width: usize) -> fmt::Result {
    let padding = (start + width).saturating_sub(text.0.len());
    text.0.try_reserve(padding).map_err(|_| fmt::Error)?;
    text.0.resize(text.0.len() + padding, b' ');
    Ok(())
}
