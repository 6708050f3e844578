//! An `Arc` that is counted by Refcache, for directories, and for what processes inherit from one another and
//! never change: forks and exits on different cores, and calls in one directory, share no cache line of its
//! count.
//!
//! It is a [`Ref`] that may be dropped anywhere, also where a core has left the epochs. Its value is dropped
//! some epochs after the last reference, so no task may wait for that.

use core::ops::Deref;

use abi::Errno;
use refcache::{Ref, Weak};

use super::{Scheduler, epoch};
use crate::above::Above;

/// A reference counted by Refcache. See the module.
pub struct RefcacheArc<T>(Ref<T>);

impl<T: Send + Sync + 'static> RefcacheArc<T> {
    /// Creates a value with one holder.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(value: T) -> Result<Self, Errno> {
        Ref::try_new(epoch::domain(), value).map(Self).ok_or(Errno::ENOMEM)
    }
}

/// A reference that does not keep the value. It may be dropped anywhere, too.
pub struct RefcacheWeak<T>(Weak<T>);

impl<T> RefcacheArc<T> {
    /// Returns a reference that does not keep the value.
    pub fn downgrade(&self) -> RefcacheWeak<T> {
        RefcacheWeak(self.0.downgrade())
    }
}

impl<T> RefcacheWeak<T> {
    /// Returns a reference that keeps the value, if that is still there.
    pub fn upgrade(&self) -> Option<RefcacheArc<T>> {
        self.0.try_get().map(RefcacheArc)
    }
}

impl<T> Drop for RefcacheWeak<T> {
    fn drop(&mut self) {
        Above::come_online();
    }
}

impl<T> Clone for RefcacheArc<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for RefcacheArc<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for RefcacheArc<T> {
    /// Brings the core online: an idle core may drop the last reference to a task.
    fn drop(&mut self) {
        Above::come_online();
    }
}
