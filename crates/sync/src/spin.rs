//! A test-and-test-and-set lock for short, rarely contended sections.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use crate::UnsafeCell;
use crate::atomic::{AtomicBool, Ordering};

/// Mutual exclusion by spinning. The holder must not block.
#[derive(Debug)]
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is only reached through a guard, and at most one guard exists at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}
// SAFETY: the lock owns its value, and moving it moves the value.
unsafe impl<T: Send> Send for SpinLock<T> {}

impl<T> SpinLock<T> {
    crate::const_unless_loom! {
        /// Returns an unlocked lock around `value`.
        pub fn new(value: T) -> Self {
            Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }
    }

    /// Spins until the lock is ours.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            crate::spin_loop();
        }
    }

    /// Takes the lock if it is free. Acquire pairs with the Release in the guard's drop.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        if self.held.load(Ordering::Relaxed) {
            return None;
        }
        self.held
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| SpinGuard { lock: self, _value: PhantomData })
    }

    /// Returns the value, without the lock.
    ///
    /// # Safety
    /// No thread changes it any more, and the caller sees its last change.
    #[inline]
    pub(crate) unsafe fn peek(&self) -> &T {
        // SAFETY: the caller's promise.
        self.value.with(|p| unsafe { &*p })
    }
}

/// Unlocks when dropped.
///
/// A shared guard is a shared value, so a guard of a value that threads must not share stays where it is:
///
/// ```compile_fail
/// let lock = sync::SpinLock::new(core::cell::Cell::new(0));
/// let guard = lock.lock();
/// std::thread::scope(|scope| scope.spawn(|| guard.set(1)));
/// ```
#[derive(Debug)]
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    /// A shared guard shares the value: it is `Sync` only if `T` is.
    _value: PhantomData<&'a mut T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard proves that the lock is held, so no other thread writes the value.
        self.lock.value.with(|p| unsafe { &*p })
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard proves that the lock is held, and it is borrowed exclusively.
        self.lock.value.with_mut(|p| unsafe { &mut *p })
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `try_lock`.
        self.lock.held.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let lock = SpinLock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 400);
    }

    #[test]
    fn try_lock_refuses_what_is_held() {
        let lock = SpinLock::new(());
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
    }
}
