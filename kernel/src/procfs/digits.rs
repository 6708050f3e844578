//! Lines of numbers as `/proc` writes them. `core::fmt` takes several hundred instructions for each number,
//! and a list of mappings consists mostly of numbers.

use core::fmt;

use crate::bytes::{after_mut, copy_prefix, prefix};
use crate::mm::fallible::Text;

/// Bytes of a line, more than its numbers and separators take.
const ROOM: usize = 160;
/// The most digits of a hexadecimal number.
const HEX: usize = 16;
/// The most digits of a decimal number.
const DECIMAL: usize = 20;
/// The most spaces that are added at once.
const SPACES: usize = 48;

/// A line that is being made. An addition is copied as a whole and then shortened, because a copy of constant
/// length costs a few stores. Text that does not fit is dropped.
pub struct Line {
    bytes: [u8; ROOM],
    len: usize,
}

impl Default for Line {
    /// Returns an empty line.
    fn default() -> Self {
        Self { bytes: [0; ROOM], len: 0 }
    }
}

impl Line {
    /// Returns the line so far.
    pub fn bytes(&self) -> &[u8] {
        prefix(&self.bytes, self.len as u64)
    }

    /// Empties the line.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds `value` in hexadecimal, padded with zeroes to `width` digits.
    pub fn hex(&mut self, value: u64, width: usize) {
        let digits = (HEX - value.leading_zeros() as usize / 4).clamp(width, HEX);
        let aligned = value << (4 * (HEX - digits));
        let [high, low] = [aligned >> 32, aligned].map(|half| u128::from(ascii(half as u32)));
        self.add_some(&(high << 64 | low).to_be_bytes(), digits);
    }

    /// Adds `value` in decimal, padded with spaces to `width`.
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
        self.add_name(digits.get(start..).unwrap_or_default());
    }

    /// Adds `more`.
    #[inline(always)]
    pub fn add<const N: usize>(&mut self, more: &[u8; N]) {
        self.add_some(more, N);
    }

    /// Adds the first `len` bytes of `more`.
    #[inline(always)]
    fn add_some<const N: usize>(&mut self, more: &[u8; N], len: usize) {
        if let Some(room) = after_mut(&mut self.bytes, self.len).first_chunk_mut::<N>() {
            *room = *more;
            self.len += len;
        }
    }

    /// Adds a name, or as much of it as fits.
    pub fn add_name(&mut self, name: &[u8]) {
        self.len += copy_prefix(after_mut(&mut self.bytes, self.len), name);
    }

    /// Adds spaces until the line has `width` bytes, but not more than 48 at once.
    pub fn pad(&mut self, width: usize) {
        self.add_some(&[b' '; SPACES], width.saturating_sub(self.len).min(SPACES));
    }

    /// Appends the line to `text`, followed by `rest` and a newline.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub fn end(&self, rest: &[u8], text: &mut Text) -> fmt::Result {
        text.0.try_reserve(self.len + rest.len() + 1).map_err(|_| fmt::Error)?;
        text.0.extend_from_slice(self.bytes());
        text.0.extend_from_slice(rest);
        text.0.push(b'\n');
        Ok(())
    }
}

/// Returns the eight hexadecimal digits of `value`, the first in the highest byte, computed all at once.
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
