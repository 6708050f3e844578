//! What processes inherit from one another and never change: who forks and who ends on different cores do not meet in its
//! count.
//!
//! It is a [`Ref`] that may be dropped anywhere, also where a core has left the epochs. What it holds is dropped some epochs
//! after the last one went: nothing that somebody waits for.

use core::ops::Deref;

use abi::Errno;
use refcache::Ref;

use super::epoch;
use crate::sched;

/// See the module.
pub struct Common<T>(Ref<T>);

impl<T: Send + Sync + 'static> Common<T> {
    /// A value with one holder.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(value: T) -> Result<Self, Errno> {
        Ref::try_new(epoch::domain(), value).map(Self).ok_or(Errno::ENOMEM)
    }
}

impl<T> Clone for Common<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Common<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Common<T> {
    /// An idle core may be the last to let go of a task.
    fn drop(&mut self) {
        sched::come_online();
    }
}
