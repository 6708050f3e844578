//! References that are either static or counted.
//!
//! Standard input, output and error of the first process are open as long as the machine runs. If they were
//! counted, programs that write to them on different cores would write the cache lines of their counts.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Deref;
use core::ptr;

use abi::Errno;

use rcu::Counted;

use super::fallible;

/// A reference to a static value, or a counted one.
pub enum StaticOrArc<T: 'static> {
    /// The value lives for ever.
    Static(&'static T),
    /// The value lives as long as it has a reference.
    Arc(Arc<T>),
}

impl<T> StaticOrArc<T> {
    /// Returns whether both refer to the same value.
    pub fn is(&self, other: &Self) -> bool {
        ptr::eq::<T>(&**self, &**other)
    }

    /// Makes the value live for ever.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn into_static(self) -> Result<Self, Errno> {
        match self {
            Self::Static(_) => Ok(self),
            Self::Arc(value) => Ok(Self::Static(Box::leak(fallible::boxed(value)?))),
        }
    }
}

/// Set in a word that holds a static reference.
const STATIC: usize = 1;

// SAFETY: the word is the value's address, with a bit that tells the kinds apart. The value is aligned so
// that the lowest three bits are 0. A static reference is never counted.
unsafe impl<T: Send + Sync + 'static> Counted for StaticOrArc<T> {
    fn into_word(self) -> *mut () {
        const { assert!(align_of::<T>() >= 8) };
        match self {
            Self::Static(value) => {
                ptr::from_ref(value).cast_mut().cast::<()>().map_addr(|address| address | STATIC)
            }
            Self::Arc(value) => Arc::into_raw(value).cast_mut().cast(),
        }
    }

    unsafe fn from_word(word: *mut ()) -> Self {
        let value = Self::target(word);
        match word.addr() & STATIC {
            // SAFETY: the word of an `Arc`, which stands for a reference of the caller.
            0 => Self::Arc(unsafe { Arc::from_raw(value) }),
            // SAFETY: the address of a static value.
            _ => Self::Static(unsafe { &*value }),
        }
    }

    #[inline(always)]
    fn target(word: *mut ()) -> *const T {
        word.map_addr(|address| address & !STATIC).cast_const().cast()
    }
}

impl<T> From<Arc<T>> for StaticOrArc<T> {
    fn from(value: Arc<T>) -> Self {
        Self::Arc(value)
    }
}

impl<T> Clone for StaticOrArc<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Static(value) => Self::Static(value),
            Self::Arc(value) => Self::Arc(value.clone()),
        }
    }
}

impl<T> Deref for StaticOrArc<T> {
    type Target = T;
    fn deref(&self) -> &T {
        match self {
            Self::Static(value) => value,
            Self::Arc(value) => value,
        }
    }
}
