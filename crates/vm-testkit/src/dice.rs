//! A generator of numbers (xorshift), so that every run of a test does the same.

/// The generator, whose state is not zero.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// Returns the next number, below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
