//! Insertion and removal.

use percore::Pinned;
use rcu::{Handle, OutOfMemory, Owned};

use crate::SkipList;
use crate::skiplist::find::Gap;
use crate::skiplist::node::{Found, Node, height};

impl<T: Send + Sync + 'static, D: Handle> SkipList<T, D> {
    /// Inserts `key`, unless it is there. Returns whether it did.
    ///
    /// # Errors
    /// [`OutOfMemory`]: nothing has changed, and `value` is dropped.
    ///
    /// # Panics
    /// If this core is offline.
    pub fn insert(&self, pin: &Pinned, key: u64, value: T) -> Result<bool, OutOfMemory> {
        let _section = self.domain.read(pin);
        let node = Found::made(Owned::try_new(Node::new(key, value))?);
        // SAFETY: in the section.
        let mut gap = unsafe { self.find(key) };
        while gap.found(key).is_none() {
            if lead(node, 0, &gap) && gap.before[0].link(0).swing(gap.after[0], Some(node)) {
                self.raise(node, gap);
                self.finish(pin, node);
                return Ok(true);
            }
            // SAFETY: in the section.
            gap = unsafe { self.find(key) };
        }
        // SAFETY: no other core has seen it.
        drop(unsafe { node.into_owned() });
        Ok(false)
    }

    /// Links a node on its upper levels, from below, until it is removed.
    fn raise<'g>(&'g self, node: Found<'g, T>, mut gap: Gap<'g, T>) {
        let mut level = 1;
        while level < height(node.key) && lead(node, level, &gap) {
            if gap.before[level].link(level).swing(gap.after[level], Some(node)) {
                level += 1;
            } else {
                // SAFETY: the caller is in a section that outlives `node`.
                gap = unsafe { self.find(node.key) };
            }
        }
    }

    /// Removes `key`, and drops its value after a grace period. Returns whether it was there. Needs no
    /// memory.
    ///
    /// # Panics
    /// If this core is offline.
    pub fn remove(&self, pin: &Pinned, key: u64) -> bool {
        let _section = self.domain.read(pin);
        // SAFETY: in the section.
        let Some(node) = (unsafe { self.find(key) }).found(key) else { return false };
        (1..height(key)).rev().for_each(|level| _ = node.tower.link(level).mark());
        let removed = node.tower.link(0).mark();
        if removed {
            self.finish(pin, node);
        }
        removed
    }

    /// Records that one party is done with a node. The second party unlinks and retires it.
    fn finish(&self, pin: &Pinned, node: Found<'_, T>) {
        if node.is_last_party() {
            // SAFETY: the caller is in a section.
            unsafe { self.sweep(node.key) };
            // SAFETY: swept, and there are only two parties.
            self.domain.retire(pin, unsafe { node.into_owned() });
        }
    }
}

/// Points a node's own link at the node after the gap. Returns false if the node was removed.
fn lead<'g, T>(node: Found<'g, T>, level: usize, gap: &Gap<'g, T>) -> bool {
    let seen = node.load(level);
    // Only marking comes in between.
    !seen.marked && node.tower.link(level).swing(seen.next, gap.after[level])
}
