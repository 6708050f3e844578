//! Loom's atomics, with a second access that makes loom explore more orders.
//!
//! Loom tries another order of two accesses only if it sees that they conflict, and it remembers one access
//! of each atomic: a thread's own load hides the load of another thread before it. In "A loads, B loads and
//! then swaps" it never tries B first, and nearly every compare-and-swap comes after a load of the same word.
//! (tokio-rs/loom, issues 166 and 392.) So every load here is announced by a read-modify-write of a second
//! atomic, which loom sees as a conflict. Those are relaxed, so they order nothing and do not restrict the
//! values that the load may return.

pub use loom::sync::atomic::{Ordering, fence};

macro_rules! announced {
    ($($name:ident $value:ty),*) => {$(
        /// Loom's type of this name, in which every load is a place where another thread may come in between.
        #[derive(Debug)]
        pub struct $name {
            inner: loom::sync::atomic::$name,
            loads: loom::sync::atomic::AtomicUsize,
        }

        impl $name {
            /// Returns an atomic that holds `value`.
            pub fn new(value: $value) -> Self {
                Self { inner: loom::sync::atomic::$name::new(value), loads: loom::sync::atomic::AtomicUsize::new(0) }
            }

            /// Returns the value, or an older one if `order` allows it.
            pub fn load(&self, order: Ordering) -> $value {
                self.loads.fetch_add(1, Ordering::Relaxed);
                self.inner.load(order)
            }
        }

        /// Gives access to all functions except `load`.
        impl core::ops::Deref for $name {
            type Target = loom::sync::atomic::$name;
            fn deref(&self) -> &Self::Target {
                &self.inner
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(Default::default())
            }
        }
    )*};
}

/// Loom's `AtomicPtr`, in which every load is a place where another thread may come in between.
#[derive(Debug)]
pub struct AtomicPtr<T> {
    inner: loom::sync::atomic::AtomicPtr<T>,
    loads: loom::sync::atomic::AtomicUsize,
}

impl<T> AtomicPtr<T> {
    /// Returns an atomic that holds `value`.
    pub fn new(value: *mut T) -> Self {
        Self {
            inner: loom::sync::atomic::AtomicPtr::new(value),
            loads: loom::sync::atomic::AtomicUsize::new(0),
        }
    }

    /// Returns the pointer, or an older one if `order` allows it.
    pub fn load(&self, order: Ordering) -> *mut T {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.inner.load(order)
    }
}

/// Gives access to all functions except `load`.
impl<T> core::ops::Deref for AtomicPtr<T> {
    type Target = loom::sync::atomic::AtomicPtr<T>;
    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

announced!(AtomicBool bool, AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64, AtomicUsize usize);
