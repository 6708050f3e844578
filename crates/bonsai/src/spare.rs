//! Nodes allocated before anything changes, so that a change that has begun cannot fail.
//!
//! An operation first works out how many nodes it may need, and has them put here. Unused nodes stay for the
//! writer's next operation, and are freed with the writer.

use core::ptr;

use rcu::{OutOfMemory, Owned};

use crate::node::{Found, Link, Node, Side, Tree, free_subtree, size};

/// A chain through left children: a tree like any other, whose size says how many there are.
pub(crate) struct Spares<K, T>(Link<K, T>);

impl<K, T> Spares<K, T> {
    pub fn new() -> Self {
        Self(Link::new(None))
    }

    /// Makes sure that there are `count`. `key` is any key.
    pub fn reserve(&mut self, count: usize, key: K) -> Result<(), OutOfMemory>
    where
        K: Copy,
    {
        while size(self.chain()) < count {
            let node = Node::new(key, ptr::null_mut(), [self.chain(), None]);
            self.0.set(Some(Found::made(Owned::try_new(node)?)));
        }
        Ok(())
    }

    /// Returns one of those that were reserved.
    pub fn take(&mut self) -> Owned<Node<K, T>> {
        let first = self.chain().expect("more nodes were used than reserved");
        self.0.set(first.child(Side::Left));
        // SAFETY: off the chain, so it is ours alone.
        unsafe { Owned::from_raw(first.pointer()) }
    }

    fn chain(&self) -> Tree<'_, K, T> {
        // SAFETY: no other code has a pointer to these nodes.
        unsafe { self.0.get() }
    }
}

impl<K, T> Drop for Spares<K, T> {
    fn drop(&mut self) {
        // SAFETY: no other code has a pointer to these nodes.
        unsafe { free_subtree(&self.0) }
    }
}
