//! A lock around a value that at some point stops changing: from then on it is read without the lock.

use core::ops::Deref;

use crate::atomic::{AtomicBool, Ordering};
use crate::{SpinGuard, SpinLock};

/// A lock that can be frozen, see the module.
#[derive(Debug)]
pub struct FreezeLock<T> {
    lock: SpinLock<T>,
    /// Set with the lock held, never reset.
    frozen: AtomicBool,
}

/// Read access to the value.
#[derive(Debug)]
pub enum Look<'a, T> {
    /// The value does not change any more.
    Frozen(&'a T),
    /// The value does not change while the guard lives.
    Locked(SpinGuard<'a, T>),
}

impl<T> FreezeLock<T> {
    crate::const_unless_loom! {
        /// Returns a lock around `value`, which may change.
        pub fn new(value: T) -> Self {
            Self { lock: SpinLock::new(value), frozen: AtomicBool::new(false) }
        }
    }

    /// Gives read access to the value, under the lock as long as the value may change.
    #[inline]
    pub fn look(&self) -> Look<'_, T> {
        // Acquire pairs with the Release in `freeze`.
        if !self.frozen.load(Ordering::Acquire) {
            return Look::Locked(self.lock.lock());
        }
        // SAFETY: every writer of the value had the lock before `freeze` took it, and no writer gets it after
        // that.
        Look::Frozen(unsafe { self.lock.peek() })
    }

    /// Locks the value for a change. Returns `None` if the value is frozen.
    pub fn change(&self) -> Option<SpinGuard<'_, T>> {
        let guard = self.lock.lock();
        // Relaxed: the flag is set with the lock held.
        (!self.frozen.load(Ordering::Relaxed)).then_some(guard)
    }
}

impl<T: Sync> FreezeLock<T> {
    /// Freezes the value: it does not change any more. Many may then read it at once, so it must be `Sync`:
    ///
    /// ```compile_fail
    /// sync::FreezeLock::new(core::cell::Cell::new(0)).freeze();
    /// ```
    pub fn freeze(&self) {
        let _still = self.lock.lock();
        // Release pairs with the Acquire in `look`.
        self.frozen.store(true, Ordering::Release);
    }
}

impl<T> Deref for Look<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Frozen(value) => value,
            Self::Locked(guard) => guard,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn a_frozen_value_does_not_change() {
        let lock = FreezeLock::new(1);
        *lock.change().expect("it may change") += 1;
        lock.freeze();
        assert!(lock.change().is_none());
        assert_eq!(*lock.look(), 2);
    }

    #[test]
    fn many_look_at_once() {
        let lock = FreezeLock::new(1);
        lock.freeze();
        let (first, second) = (lock.look(), lock.look());
        assert_eq!(*first, *second);
    }

    /// A reader that sees the value frozen sees the last change: nothing comes after `freeze`.
    #[test]
    fn a_change_comes_before_the_frost_or_not_at_all() {
        for _ in 0..100 {
            let lock = FreezeLock::new(0);
            let changed = std::thread::scope(|scope| {
                let changes = scope.spawn(|| lock.change().map(|mut value| *value += 1).is_some());
                lock.freeze();
                let seen = *lock.look();
                let changed = changes.join().unwrap();
                assert_eq!(seen == 1, changed);
                changed
            });
            assert_eq!(*lock.look(), i32::from(changed));
        }
    }
}
