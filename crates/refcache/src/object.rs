//! [`Ref`]: a counted value, like `Arc`.
//!
//! The value lies in a block with two headers. The strong one counts `Ref`s. When it dies, the value is
//! dropped, and so is the reference of the strong side to the weak one. The weak header counts `Weak`s, plus
//! one for all `Ref`s together. When it dies, the block is deallocated.

use alloc::alloc::{alloc, handle_alloc_error};
use alloc::boxed::Box;
use core::alloc::Layout;
use core::fmt;
use core::mem::{ManuallyDrop, offset_of};
use core::ops::Deref;
use core::ptr::NonNull;

use percore::Pinned;
use sync::UnsafeCell;
use sync::atomic::AtomicU64;

use crate::Refcache;
use crate::header::Header;
use crate::weak::{DYING, KEPT, Weak, WeakWord};

/// The content of a block's weak word while the value is there. It is no pointer, since no reader finds the
/// block by it.
const THERE: u64 = 1 << 2;
const _: () = assert!(THERE & (DYING | KEPT) == 0, "nothing of it stays when the value is gone");

/// The memory that `Ref`s and `Weak`s point to. Aligned so that no two blocks share a cache line.
#[repr(C, align(64))]
struct Block<T> {
    strong: Header,
    weak: Header,
    word: WeakWord,
    domain: &'static Refcache,
    value: UnsafeCell<ManuallyDrop<T>>,
}

/// A pointer to a block that lives, because the handle's owner has a count of one of the headers.
pub(crate) struct Handle<T>(NonNull<Block<T>>);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T: Send + Sync + 'static> Handle<T> {
    /// Allocates a block. Returns `None` if there is no memory.
    fn try_new(domain: &'static Refcache, value: T) -> Option<Self> {
        // SAFETY: a block has headers, so its size is not 0.
        let block = NonNull::new(unsafe { alloc(Layout::new::<Block<T>>()) })?.cast::<Block<T>>();
        let handle = Self(block);
        let init = Block {
            strong: Header::new(1, Some(handle.word_pointer()), release_value::<T>),
            weak: Header::new(1, None, release_block::<T>),
            word: WeakWord(AtomicU64::new(THERE)),
            domain,
            value: UnsafeCell::new(ManuallyDrop::new(value)),
        };
        // SAFETY: the allocation is ours, has this type's layout and is not initialised yet.
        unsafe { block.write(init) }
        Some(handle)
    }
}

impl<T> Handle<T> {
    pub(crate) fn domain(self) -> &'static Refcache {
        // SAFETY: the block lives.
        unsafe { self.0.as_ref() }.domain
    }

    /// Adds to the number of `Ref`s.
    ///
    /// # Safety
    /// The value lives, by a reference or a loan.
    pub(crate) unsafe fn add_strong(self, pin: &Pinned) {
        // SAFETY: the strong header begins the block, and the pointer is good for all of it. The caller
        // promises the rest.
        unsafe { self.domain().adjust(pin, self.0.cast(), 1) }
    }

    /// Drops the count of a `Ref`, on any thread.
    ///
    /// # Safety
    /// The caller has that count.
    pub(crate) unsafe fn drop_strong(self) {
        // SAFETY: as in `add_strong`.
        unsafe { self.domain().drop_references(self.0.cast(), 1) }
    }

    /// Adds to the number of `Weak`s.
    pub(crate) fn add_weak(self, pin: &Pinned) {
        // SAFETY: the block lives.
        unsafe { self.domain().adjust(pin, self.weak_header(), 1) }
    }

    /// Drops the count of a `Weak`, on any thread.
    ///
    /// # Safety
    /// The caller has that count.
    pub(crate) unsafe fn drop_weak(self) {
        // SAFETY: the block lives, and the caller has the count.
        unsafe { self.domain().drop_references(self.weak_header(), 1) }
    }

    fn weak_header(self) -> NonNull<Header> {
        // SAFETY: the block lives, and the pointer is made from one that is good for all of it.
        unsafe { NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).weak) }
    }

    /// Returns whether the value is there. It then stays while the caller keeps its loan of the domain.
    pub(crate) fn revive(self, pin: &Pinned) -> bool {
        // SAFETY: the block lives.
        unsafe { self.0.as_ref() }.word.revive(pin) != 0
    }

    fn word_pointer(self) -> NonNull<WeakWord> {
        // SAFETY: the offset lies within the block.
        unsafe { self.0.byte_add(offset_of!(Block<T>, word)).cast() }
    }
}

/// Drops the value when the last `Ref` is gone.
///
/// # Safety
/// Called once, by the domain, with the strong header of a `Block<T>`.
unsafe fn release_value<T>(_: &Refcache, _: &Pinned, strong: NonNull<Header>) {
    let handle = Handle(strong.cast::<Block<T>>());
    // The weak count that all `Ref`s had together keeps the block. It is dropped after the value, even if the
    // value's drop panics.
    let _keeps_block = Weak::from_counted(handle);
    // SAFETY: no `Ref` is left, and no `Weak` can make one, so this call has the value alone.
    unsafe { handle.0.as_ref().value.with_mut(|value| ManuallyDrop::drop(&mut *value)) }
}

/// Frees the block when the last `Weak` is gone too.
///
/// # Safety
/// Called once, by the domain, with the weak header of a `Block<T>` made by [`Handle::try_new`].
unsafe fn release_block<T>(_: &Refcache, _: &Pinned, weak: NonNull<Header>) {
    // SAFETY: the header lies in a block that `try_new` allocated as a `Box` does. The pointer is good for
    // all of it, and no reference is left.
    unsafe {
        let block = weak.byte_sub(offset_of!(Block<T>, weak)).cast::<Block<T>>();
        drop(Box::from_raw(block.as_ptr()));
    }
}

/// A counted value, like `Arc`: cloning and dropping touch nothing that other cores write.
///
/// Cloning needs a thread that plays an online core of the domain ([`percore::pin`]). Reading and dropping do
/// not: a `Ref` that is dropped elsewhere changes the object's global count itself, which takes a lock. The
/// value is dropped by a [`tick`](Refcache::tick) on some core, epochs after the last `Ref` was dropped. Its
/// `Drop` must not tick, drain or go offline.
pub struct Ref<T>(Handle<T>);

// SAFETY: a `Ref` gives `&T` to its thread, and the thread's core may be the one that drops the value.
unsafe impl<T: Send + Sync> Send for Ref<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send + Sync> Sync for Ref<T> {}

impl<T: Send + Sync + 'static> Ref<T> {
    /// Makes a value counted by `domain`.
    pub fn new(domain: &'static Refcache, value: T) -> Self {
        Self::try_new(domain, value).unwrap_or_else(|| handle_alloc_error(Layout::new::<Block<T>>()))
    }

    /// Makes a value counted by `domain`, or returns `None` if there is no memory for it.
    pub fn try_new(domain: &'static Refcache, value: T) -> Option<Self> {
        Handle::try_new(domain, value).map(Self)
    }
}

impl<T> Ref<T> {
    /// Takes over a count of the strong header.
    pub(crate) fn from_counted(handle: Handle<T>) -> Self {
        Self(handle)
    }

    /// Makes a `Weak`, which does not keep the value.
    ///
    /// # Panics
    /// Panics if this thread plays no core, or one that is offline.
    pub fn downgrade(&self) -> Weak<T> {
        self.0.add_weak(&percore::pin());
        Weak::from_counted(self.0)
    }

    /// Returns whether both refer to the same value, not just to equal ones.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.0 == other.0.0
    }
}

impl<T> Clone for Ref<T> {
    /// # Panics
    /// Panics if this thread plays no core, or one that is offline.
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: `self` keeps the value. This adds one reference, for the clone.
        unsafe { self.0.add_strong(&percore::pin()) };
        Self(self.0)
    }
}

impl<T> Drop for Ref<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: drops the count that this `Ref` has.
        unsafe { self.0.drop_strong() }
    }
}

impl<T> Deref for Ref<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this `Ref` keeps the value, and nothing writes the value until all are dropped.
        unsafe { self.0.0.as_ref().value.with(|value| &**value) }
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
