//! A node: one cache line that readers read, and one that only the writer uses.
//!
//! ```text
//!   readers' line:  key | value ─▶ T | left ─▶ node | right ─▶ node
//!   writer's line:  size of the subtree | room for rcu's callback
//! ```
//! The sizes of a whole path change with each insertion. On a line of their own they disturb no lookup: a
//! line that readers read is written only if a pointer in it changes.
//!
//! 1. The key never changes. The value and the children are changed by the one writer, by single stores, and
//!    only while the node is linked.
//! 2. A node that is unlinked stays as it was. It is freed after a grace period, and so is a value.
//!
//! Orderings: a pointer is stored with Release once what it leads to is complete, and loaded with Acquire.
//! The writer loads its own stores.

use core::marker::PhantomData;
use core::ops::{Deref, Not};
use core::ptr::{self, NonNull};

use rcu::Owned;
use sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// One of the two children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Smaller keys.
    Left,
    /// Greater keys.
    Right,
}

impl Side {
    /// Returns the children of a node that has `this` on this side and `that` on the other, left one first.
    pub fn pair<A>(self, this: A, that: A) -> [A; 2] {
        match self {
            Side::Left => [this, that],
            Side::Right => [that, this],
        }
    }
}

/// The other side.
impl Not for Side {
    type Output = Self;
    fn not(self) -> Self {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Node<K, T> {
    pub key: K,
    value: AtomicPtr<T>,
    children: [Link<K, T>; 2],
    size: WritersLine<AtomicUsize>,
}

#[derive(Debug)]
#[repr(align(64))]
struct WritersLine<T>(T);

/// A place where a pointer to a node is published.
#[derive(Debug)]
pub(crate) struct Link<K, T>(AtomicPtr<Node<K, T>>);

/// A node that a reader or the writer has found: it lives for `'g`, the rest of a read section.
pub(crate) struct Found<'g, K, T> {
    node: NonNull<Node<K, T>>,
    _section: PhantomData<&'g Node<K, T>>,
}

/// A subtree: none is an empty one.
pub(crate) type Tree<'g, K, T> = Option<Found<'g, K, T>>;

impl<K, T> Node<K, T> {
    pub fn new(key: K, value: *mut T, [left, right]: [Tree<'_, K, T>; 2]) -> Self {
        let size = 1 + size(left) + size(right);
        let children = [Link::new(left), Link::new(right)];
        Self { key, value: AtomicPtr::new(value), children, size: WritersLine(AtomicUsize::new(size)) }
    }
}

impl<K, T> Link<K, T> {
    pub fn new(tree: Tree<'_, K, T>) -> Self {
        Self(AtomicPtr::new(to_pointer(tree)))
    }

    /// Returns the node that is linked here now.
    ///
    /// # Safety
    /// `'g` ends with a read section that began before the node that this link is in, if it is in one, was
    /// unlinked.
    #[inline(always)]
    pub unsafe fn get<'g>(&self) -> Tree<'g, K, T> {
        // Acquire: partner of the Release in `set`.
        NonNull::new(self.0.load(Ordering::Acquire)).map(|node| Found { node, _section: PhantomData })
    }

    /// Publishes a subtree, unless it is what is linked here already. By the writer only.
    pub fn set(&self, tree: Tree<'_, K, T>) {
        let new = to_pointer(tree);
        // Relaxed: the writer's own store.
        if self.0.load(Ordering::Relaxed) != new {
            // Release: partner of the Acquire in `get`. The nodes of the subtree are complete.
            self.0.store(new, Ordering::Release);
        }
    }
}

impl<K, T> Clone for Found<'_, K, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, T> Copy for Found<'_, K, T> {}

impl<K, T> Deref for Found<'_, K, T> {
    type Target = Node<K, T>;
    #[inline(always)]
    fn deref(&self) -> &Node<K, T> {
        // SAFETY: the node lives for `'g`, and is changed by atomic stores only.
        unsafe { self.node.as_ref() }
    }
}

impl<'g, K, T> Found<'g, K, T> {
    /// Returns a node that the writer has just made.
    pub fn made(node: Owned<Node<K, T>>) -> Self {
        Self { node: node.into_raw(), _section: PhantomData }
    }

    /// Returns the subtree on a side.
    #[inline(always)]
    pub fn child(self, side: Side) -> Tree<'g, K, T> {
        // SAFETY: this node was found in the section, so it was linked after that began.
        unsafe { self.children[side as usize].get() }
    }

    /// Hangs a subtree in, with which there are `size` entries from here on. By the writer only.
    pub fn set_child(self, side: Side, tree: Tree<'_, K, T>, size: usize) {
        self.children[side as usize].set(tree);
        // Relaxed: only the writer uses it.
        self.size.0.store(size, Ordering::Relaxed);
    }

    /// Returns the value.
    #[inline(always)]
    pub fn value(self) -> &'g T {
        // SAFETY: it is not null once the node is linked, and was this node's after the section began: it is
        // freed later.
        unsafe { &*self.value_pointer() }
    }

    #[inline(always)]
    pub fn value_pointer(self) -> *mut T {
        // Acquire: partner of the Release in `replace_value`, or of the one that linked the node.
        self.value.load(Ordering::Acquire)
    }

    /// Publishes another value and returns the old one, which readers may be using. Called by the writer
    /// only.
    pub fn replace_value(self, value: Owned<T>) -> NonNull<T> {
        let before = self.value_pointer();
        // Release: partner of the Acquire in `value_pointer`.
        self.value.store(value.into_raw().as_ptr(), Ordering::Release);
        NonNull::new(before).expect("a linked node has a value")
    }

    pub fn pointer(self) -> NonNull<Node<K, T>> {
        self.node
    }
}

/// Returns how many entries a subtree has. For the writer only.
pub(crate) fn size<K, T>(tree: Tree<'_, K, T>) -> usize {
    // Relaxed: only the writer uses it.
    tree.map_or(0, |node| node.size.0.load(Ordering::Relaxed))
}

fn to_pointer<K, T>(tree: Tree<'_, K, T>) -> *mut Node<K, T> {
    tree.map_or(ptr::null_mut(), |found| found.node.as_ptr())
}

/// Frees all nodes and values under a link.
///
/// # Safety
/// They are the caller's alone, and not used again.
pub(crate) unsafe fn free_subtree<K, T>(link: &Link<K, T>) {
    // SAFETY: no thread writes, and only this one reads.
    let Some(found) = (unsafe { link.get() }) else { return };
    // SAFETY: as the caller promises, all of it is ours, and a value belongs to one linked node. Each is
    // dropped, also if the drop of another's value panics.
    unsafe {
        let _node = Owned::from_raw(found.node);
        let _value = NonNull::new(found.value_pointer()).map(|value| Owned::from_raw(value));
        let _children = found.children.each_ref().map(Doomed);
    }
}

/// A subtree that is freed with this.
struct Doomed<'a, K, T>(&'a Link<K, T>);

impl<K, T> Drop for Doomed<'_, K, T> {
    fn drop(&mut self) {
        // SAFETY: made by `free_subtree` only, whose caller promised it.
        unsafe { free_subtree(self.0) }
    }
}
