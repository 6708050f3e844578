use alloc::boxed::Box;
use alloc::vec::Vec;

use sync::CachePadded;

use crate::{CoreId, Pinned};

/// One `T` for each core, each alone on its cache lines.
#[derive(Debug)]
pub struct PerCore<T>(Box<[CachePadded<T>]>);

impl<T> PerCore<T> {
    /// `make(core)` for each of `cores` cores.
    pub fn new(cores: usize, mut make: impl FnMut(CoreId) -> T) -> Self {
        Self((0..cores).map(|core| CachePadded::new(make(CoreId::new(core)))).collect())
    }

    /// The same; `None` if there is no memory for it.
    pub fn try_new(cores: usize, mut make: impl FnMut(CoreId) -> T) -> Option<Self> {
        let mut all = Vec::new();
        all.try_reserve_exact(cores).ok()?;
        all.extend((0..cores).map(|core| CachePadded::new(make(CoreId::new(core)))));
        Some(Self(all.into_boxed_slice()))
    }

    /// The caller's own.
    #[inline(always)]
    pub fn mine(&self, pin: &Pinned) -> &T {
        &self.0[pin.core().index()]
    }

    /// That of `core`: reading it moves a cache line if `core` writes it.
    #[inline(always)]
    pub fn of(&self, core: CoreId) -> &T {
        &self.0[core.index()]
    }

    /// All of them, core 0 first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &**padded)
    }

    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.0.len()
    }
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
}
