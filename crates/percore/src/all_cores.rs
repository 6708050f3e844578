use sync::CachePadded;

use crate::{CoreId, MAX_CORES, Pinned};

/// One `T` for each core that a machine may have, each alone on its cache lines. Meant for statics.
#[derive(Debug)]
pub struct AllCores<T>([CachePadded<T>; MAX_CORES]);

impl<T> AllCores<T> {
    /// Wraps the values, core 0's first.
    pub const fn new(all: [CachePadded<T>; MAX_CORES]) -> Self {
        Self(all)
    }

    /// Returns the value of the caller's core.
    #[inline(always)]
    pub fn mine(&self, pin: &Pinned) -> &T {
        self.of(pin.core())
    }

    /// Returns the value of `core`. Reading it moves a cache line if `core` writes it.
    #[inline(always)]
    pub fn of(&self, core: CoreId) -> &T {
        &self.0[core.index()]
    }

    /// Returns all values, core 0's first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &**padded)
    }
}
