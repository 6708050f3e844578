//! References to what many look at: to something that lives for ever, or counted.
//!
//! Nodes that boot makes are never taken away, except files in memory. Whoever walks through them on the way to a program
//! would otherwise meet everybody else in their counts.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::ops::Deref;
use core::ptr;

use abi::Errno;

use super::fallible;

/// See the module.
pub enum Kept<T: 'static> {
    /// Lives for ever.
    Forever(&'static T),
    /// Lives as long as somebody has it.
    Counted(Arc<T>),
}

/// Does not keep it.
pub enum Known<T: 'static> {
    /// Lives for ever.
    Forever(&'static T),
    /// May be gone.
    Counted(Weak<T>),
}

impl<T> Kept<T> {
    /// Whether both are of the same.
    pub fn is(&self, other: &Self) -> bool {
        ptr::eq::<T>(&**self, &**other)
    }

    /// A reference that does not keep it.
    pub fn known(&self) -> Known<T> {
        match self {
            Self::Forever(value) => Known::Forever(value),
            Self::Counted(value) => Known::Counted(Arc::downgrade(value)),
        }
    }

    /// The same, which lives for ever from now on.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn forever(self) -> Result<Self, Errno> {
        match self {
            Self::Forever(_) => Ok(self),
            Self::Counted(value) => Ok(Self::Forever(Box::leak(fallible::boxed(value)?))),
        }
    }

    /// The value, if this was the last that kept it.
    pub fn into_inner(self) -> Option<T> {
        match self {
            Self::Forever(_) => None,
            Self::Counted(value) => Arc::into_inner(value),
        }
    }
}

impl<T> From<Arc<T>> for Kept<T> {
    fn from(value: Arc<T>) -> Self {
        Self::Counted(value)
    }
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Forever(value) => Self::Forever(value),
            Self::Counted(value) => Self::Counted(value.clone()),
        }
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;
    fn deref(&self) -> &T {
        match self {
            Self::Forever(value) => value,
            Self::Counted(value) => value,
        }
    }
}

impl<T> Known<T> {
    /// To nothing.
    pub const fn nothing() -> Self {
        Self::Counted(Weak::new())
    }

    /// What it refers to, if that is still there.
    pub fn kept(&self) -> Option<Kept<T>> {
        match self {
            Self::Forever(value) => Some(Kept::Forever(value)),
            Self::Counted(value) => value.upgrade().map(Kept::Counted),
        }
    }
}
