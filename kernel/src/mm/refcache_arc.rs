//! An `Arc` that is counted by Refcache, for what processes inherit from one another and never change: forks
//! and exits on different cores share no cache line of its count.
//!
//! It is a [`Ref`] that may be dropped anywhere, also where a core has left the epochs. Its value is dropped
//! some epochs after the last reference, so no task may wait for that.

use core::ops::Deref;

use abi::Errno;
use refcache::Ref;

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
