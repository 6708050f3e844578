use sync::UnsafeCell;

use crate::{CoreId, Pinned};

/// Data that only its owner core accesses, and only while pinned, so that it needs neither atomics nor locks.
#[derive(Debug)]
pub struct OwnerCell<T> {
    owner: CoreId,
    value: UnsafeCell<T>,
}

// SAFETY: `with` lets in only a caller pinned to the owner core, and there is one such caller at a time.
unsafe impl<T: Send> Sync for OwnerCell<T> {}

impl<T> OwnerCell<T> {
    /// Wraps data of `owner`.
    pub fn new(owner: CoreId, value: T) -> Self {
        Self { owner, value: UnsafeCell::new(value) }
    }

    /// Calls `f` with the data.
    ///
    /// # Panics
    /// Panics if the caller is pinned to another core.
    ///
    /// # Safety
    /// `f` must not access this cell again: the borrow that it gets is exclusive.
    #[inline(always)]
    pub unsafe fn with<R>(&self, pin: &Pinned, f: impl FnOnce(&mut T) -> R) -> R {
        assert!(pin.core() == self.owner, "an OwnerCell was used from another core");
        // SAFETY: pinned to the owner, so no other flow of control is inside. The caller rules out re-entry.
        self.value.with_mut(|value| f(unsafe { &mut *value }))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_gets_in() {
        let cell = OwnerCell::new(CoreId::new(1), 5);
        // SAFETY: this test is the only flow of control, and plays both cores.
        let (owner, other) = unsafe { (Pinned::assume(CoreId::new(1)), Pinned::assume(CoreId::new(2))) };
        // SAFETY: the closures do not use the cell.
        let read = |pin: &Pinned| unsafe { cell.with(pin, |value| *value) };
        assert_eq!(read(&owner), 5);
        let refused = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| read(&other)));
        assert!(refused.is_err(), "another core got in");
    }
}
