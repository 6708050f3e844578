use alloc::boxed::Box;
use alloc::vec::Vec;

use sync::CachePadded;

use crate::{CoreId, Pinned};

/// One `T` for each core, each alone on its cache lines.
#[derive(Debug)]
pub struct PerCore<T>(Box<[CachePadded<T>]>);

impl<T> PerCore<T> {
    /// Calls `make(core)` for each of `cores` cores and keeps the results.
    pub fn new(cores: usize, mut make: impl FnMut(CoreId) -> T) -> Self {
        Self((0..cores).map(|core| CachePadded::new(make(CoreId::new(core)))).collect())
    }

    /// As `new`, but returns `None` if there is no memory for it.
    pub fn try_new(cores: usize, mut make: impl FnMut(CoreId) -> T) -> Option<Self> {
        let mut all = Vec::new();
        all.try_reserve_exact(cores).ok()?;
        all.extend((0..cores).map(|core| CachePadded::new(make(CoreId::new(core)))));
        Some(Self(all.into_boxed_slice()))
    }

    /// Returns the value of the caller's core.
    ///
    /// # Panics
    /// Panics if there are values for fewer cores only.
    #[inline(always)]
    pub fn mine(&self, pin: &Pinned) -> &T {
        self.of(pin.core())
    }

    /// Returns the value of the caller's core, unless there are values for fewer cores only.
    #[inline(always)]
    pub fn try_mine(&self, pin: &Pinned) -> Option<&T> {
        self.0.get(pin.core().index()).map(|padded| &**padded)
    }

    /// Returns the value of `core`. Reading it moves a cache line if `core` writes it.
    ///
    /// # Panics
    /// Panics if there are values for fewer cores only.
    #[inline(always)]
    pub fn of(&self, core: CoreId) -> &T {
        match self.0.get(core.index()) {
            Some(padded) => padded,
            None => made_for_fewer(core, self.cores()),
        }
    }

    /// Returns all values, core 0's first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &**padded)
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.0.len()
    }
}

/// Panics because a core asked for a value that does not exist.
#[cold]
#[inline(never)]
pub(crate) fn made_for_fewer(core: CoreId, cores: usize) -> ! {
    panic!("core {} used what was made for {cores} cores, numbered from 0", core.index())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_core_has_its_own_lines() {
        let cores = PerCore::new(3, CoreId::index);
        assert_eq!(cores.iter().copied().sum::<usize>(), 3);
        // SAFETY: this test is the only flow of control, and plays core 2.
        assert_eq!(*cores.mine(&unsafe { Pinned::assume(CoreId::new(2)) }), 2);
        let address = |core| core::ptr::from_ref(cores.of(CoreId::new(core))).addr();
        assert_eq!((address(0) % 128, address(1) - address(0)), (0, 128));
    }

    #[test]
    fn a_core_too_many_is_named() {
        let cores = PerCore::new(3, CoreId::index);
        // SAFETY: this test is the only flow of control, and plays core 3.
        let fourth = unsafe { Pinned::assume(CoreId::new(3)) };
        assert!(cores.try_mine(&fourth).is_none());
        let refused = fuzzing::attempt(|| *cores.mine(&fourth)).unwrap_err();
        assert_eq!(refused, "core 3 used what was made for 3 cores, numbered from 0");
    }
}
