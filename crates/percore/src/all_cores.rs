use core::ops::Range;

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

    /// Returns the values of the first `cores` cores.
    pub fn first(&self, cores: usize) -> impl Iterator<Item = &T> {
        self.0.iter().take(cores).map(|padded| &**padded)
    }

    /// Returns the addresses of the values of all cores but the first `cores`.
    pub fn beyond(&self, cores: usize) -> Range<usize> {
        let all = self.0.as_ptr_range();
        all.start.addr() + cores.min(MAX_CORES) * size_of::<CachePadded<T>>()..all.end.addr()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_missing_cores_are_behind_the_others() {
        static ALL: AllCores<u8> = AllCores::new([const { CachePadded::new(7) }; MAX_CORES]);
        assert_eq!(ALL.first(3).count(), 3);
        let beyond = ALL.beyond(3);
        assert_eq!(beyond.start, core::ptr::from_ref(ALL.of(CoreId::new(3))).addr());
        assert_eq!(beyond.len(), (MAX_CORES - 3) * size_of::<CachePadded<u8>>());
        assert!(ALL.beyond(MAX_CORES).is_empty());
    }
}
