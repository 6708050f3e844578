//! A value that is set once, before it is used.

use crate::UnsafeCell;
use crate::atomic::{AtomicBool, Ordering};

/// A cell that is empty until [`set`](Self::set), and from then on gives shared references to the value.
/// Reading is a load and a branch.
#[derive(Debug)]
pub struct SetOnce<T> {
    taken: AtomicBool,
    ready: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is written once, by the winner of `taken`, before `ready`, and only shared after it.
unsafe impl<T: Send + Sync> Sync for SetOnce<T> {}

impl<T> SetOnce<T> {
    /// Returns an empty cell.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { taken: AtomicBool::new(false), ready: AtomicBool::new(false), value: UnsafeCell::new(None) }
    }

    /// Sets the value.
    ///
    /// # Panics
    /// Panics if it was set before.
    pub fn set(&self, value: T) {
        // Relaxed: only one caller may win. The value it writes is published by `ready`.
        assert!(!self.taken.swap(true, Ordering::Relaxed), "a SetOnce was set twice");
        // SAFETY: the winner is alone, and no thread reads before `ready`.
        self.value.with_mut(|place| unsafe { *place = Some(value) });
        // Release pairs with the Acquire in `get`.
        self.ready.store(true, Ordering::Release);
    }

    /// Returns the value, once it is set.
    #[inline(always)]
    pub fn get(&self) -> Option<&T> {
        if !self.ready.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: `ready` came after the only write.
        self.value.with(|place| unsafe { (*place).as_ref() })
    }
}

#[cfg(not(loom))]
impl<T> Default for SetOnce<T> {
    fn default() -> Self {
        Self::new()
    }
}
