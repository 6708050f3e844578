//! What the tests of the map share.

use percore::Pinned;
use radixmap::Value;
use refcache::{Config, Refcache};

/// Test threads of one binary play different cores of this many.
pub const CORES: usize = 32;

/// A value in which both words matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin(pub u64);

impl Value for Twin {
    fn to_words(self) -> (u64, u64) {
        (self.0, !self.0)
    }
    fn from_words(low: u64, high: u64) -> Self {
        assert_eq!(low, !high, "a value was torn");
        Self(low)
    }
}

pub fn domain() -> Refcache {
    Refcache::new(Config { cores: CORES, cache_slots: 64, review_budget: 64 })
}

/// Enough epochs for a whole path of empty nodes to go, one level after the other. No other core is online.
pub fn settle(refcache: &Refcache, pin: &Pinned) {
    for _ in 0..32 {
        refcache.tick(pin);
    }
}
