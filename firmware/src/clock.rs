//! How far two counters that run at the same speed are apart.

/// What is to be added to one counter to have the other, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Offset {
    low: i64,
    high: i64,
}

impl Offset {
    /// Nothing is known.
    pub fn unknown() -> Self {
        Self { low: i64::MIN, high: i64::MAX }
    }

    /// The other counter showed `theirs` when ours was between `before` and `after`.
    pub fn narrow(&mut self, before: u64, theirs: u64, after: u64) {
        let (low, high) = (theirs.wrapping_sub(after) as i64, theirs.wrapping_sub(before) as i64);
        let both = Self { low: self.low.max(low), high: self.high.min(high) };
        // Counters that do not keep their distance: what was seen last is nearest.
        *self = if both.low <= both.high { both } else { Self { low, high } };
    }

    /// What to add. Counters that may be the same are.
    pub fn value(self) -> i64 {
        if self.low <= 0 && 0 <= self.high { 0 } else { self.low.midpoint(self.high) }
    }
}
