/// A generator of random numbers (SplitMix64): the same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Creates a generator. Every seed is good.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let once = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let twice = (once ^ (once >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        twice ^ (twice >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next_u64() % end as u64) as usize
    }

    /// Returns true once in `times` on average.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Creates a generator for another thread.
    pub fn split(&mut self) -> Self {
        Self(self.next_u64())
    }
}
