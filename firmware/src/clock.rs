//! Estimates the distance of two counters that run at the same speed.

/// The number to add to one counter to get the other, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Offset {
    low: i64,
    high: i64,
}

impl Offset {
    /// Returns an offset of which nothing is known.
    pub fn unknown() -> Self {
        Self { low: i64::MIN, high: i64::MAX }
    }

    /// Narrows the offset: the other counter showed `theirs` when this one was between `before` and `after`.
    pub fn narrow(&mut self, before: u64, theirs: u64, after: u64) {
        let (low, high) = (theirs.wrapping_sub(after) as i64, theirs.wrapping_sub(before) as i64);
        let both = Self { low: self.low.max(low), high: self.high.min(high) };
        // If both ranges are disjoint, the counters do not keep their distance, and the last exchange is
        // nearest.
        *self = if both.low <= both.high { both } else { Self { low, high } };
    }

    /// Returns the number to add. It is 0 for counters that may be the same.
    pub fn value(self) -> i64 {
        if self.low <= 0 && 0 <= self.high { 0 } else { self.low.midpoint(self.high) }
    }
}
