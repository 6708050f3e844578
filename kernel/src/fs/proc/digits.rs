//! Lines of numbers as `/proc` writes them. `core::fmt` takes some hundred instructions for each number, and a list of
//! mappings is little else.

use alloc::vec::Vec;
use core::fmt;

use crate::fs::fallible::Text;

/// The most bytes of a [`Line`], and more than its numbers take besides while they are made.
const ROOM: usize = 160;
/// The most digits of a hexadecimal number.
const HEX: usize = 16;
/// The most digits of a decimal number.
const DECIMAL: usize = 20;
/// The most spaces that are added at once.
const SPACES: usize = 48;

/// A line at the end of a text. There is room for all that it may have but what [`end`](Self::end) adds, so that numbers are
/// copied whole and then shortened: a length that is known costs a few stores.
pub struct Line<'t> {
    bytes: &'t mut Vec<u8>,
    start: usize,
}

impl<'t> Line<'t> {
    /// An empty one.
    ///
    /// # Errors
    /// No memory.
    pub fn begin(text: &'t mut Text) -> Result<Self, fmt::Error> {
        text.0.try_reserve(ROOM).map_err(|_| fmt::Error)?;
        Ok(Self { start: text.0.len(), bytes: &mut text.0 })
    }

    /// Adds `value` in hexadecimal, with zeroes in front if it has less than `width` digits.
    pub fn hex(&mut self, value: u64, width: usize) {
        let digits = (HEX - value.leading_zeros() as usize / 4).clamp(width, HEX);
        let aligned = value << (4 * (HEX - digits));
        let [high, low] = [aligned >> 32, aligned].map(|half| u128::from(ascii(half as u32)));
        self.add(&(high << 64 | low).to_be_bytes());
        self.bytes.truncate(self.bytes.len() - (HEX - digits));
    }

    /// Adds `value`, with spaces in front if it has less than `width` digits.
    pub fn decimal(&mut self, value: u64, width: usize) {
        let (mut digits, mut rest, mut left) = ([b' '; DECIMAL], value, DECIMAL);
        for place in digits.iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
            left -= 1;
            if rest == 0 {
                break;
            }
        }
        let start = left.min(DECIMAL.saturating_sub(width));
        self.add(digits.get(start..).unwrap_or_default());
    }

    /// Adds `more`.
    #[inline(always)]
    pub fn add(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
    }

    /// Adds spaces until it has `width` bytes, if these are not too many.
    pub fn pad(&mut self, width: usize) {
        let end = self.bytes.len().max(self.start + width);
        self.add(&[b' '; SPACES]);
        self.bytes.truncate(end);
    }

    /// Adds `rest`, and the end of the line.
    ///
    /// # Errors
    /// No memory.
    pub fn end(self, rest: &[u8]) -> fmt::Result {
        self.bytes.try_reserve(rest.len() + 1).map_err(|_| fmt::Error)?;
        self.bytes.extend_from_slice(rest);
        self.bytes.push(b'\n');
        Ok(())
    }
}

/// The eight digits of `value`, the first in the highest byte: all at once.
fn ascii(value: u32) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let pairs = u64::from(value) << 16 & 0xffff_0000_0000 | u64::from(value) & 0xffff;
    let quads = (pairs << 8 | pairs) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (quads << 4 | quads) & (0x0f * EACH);
    // 16 where a nibble is more than 9.
    let letters = (nibbles + 6 * EACH) >> 4 & EACH;
    let skipped = u64::from(b'a' - b'9' - 1);
    nibbles + u64::from(b'0') * EACH + letters * skipped
}
