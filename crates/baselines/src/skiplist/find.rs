//! The two searches: one for readers, and one for writers.

use core::array;

use rcu::Handle;

use crate::SkipList;
use crate::skiplist::node::{Found, LEVELS, Next, Tower};

/// A place between two nodes, on every level.
pub(crate) struct Gap<'g, T> {
    pub before: [&'g Tower<T>; LEVELS],
    pub after: [Next<'g, T>; LEVELS],
}

impl<T> Tower<T> {
    /// Returns the last node with a key up to `key` that is not marked, searching down from the head. Writes
    /// nothing and never starts over.
    ///
    /// # Safety
    /// `'g` ends with a read section.
    #[inline(always)]
    pub unsafe fn floor<'g>(&'g self, key: u64) -> Next<'g, T> {
        let mut best: Next<'g, T> = None;
        for level in (0..LEVELS).rev() {
            // SAFETY: the head, or a node that was not marked on the level above, or on this one.
            let mut next = unsafe { best.map_or(self, |node| &node.node().tower).link(level).load() }.next;
            while let Some(node) = next.filter(|node| node.key <= key) {
                let seen = node.load(level);
                if !seen.marked {
                    best = Some(node);
                }
                next = seen.next;
            }
        }
        best
    }
}

impl<'g, T> Gap<'g, T> {
    /// Returns the node behind the gap, if it has this key.
    pub fn found(&self, key: u64) -> Option<Found<'g, T>> {
        self.after[0].filter(|node| node.key == key)
    }
}

impl<T: Send + Sync + 'static, D: Handle> SkipList<T, D> {
    /// Returns the gap before `key`. Nodes that are gone are taken out on the way.
    ///
    /// # Safety
    /// `'g` ends with a read section.
    pub(crate) unsafe fn find<'g>(&'g self, key: u64) -> Gap<'g, T> {
        // SAFETY: the caller's promise.
        unsafe { self.search(|here| here < key) }
    }

    /// Unlinks all nodes that are gone, on the way to `key` and with this key.
    ///
    /// # Safety
    /// The caller is in a read section.
    pub(crate) unsafe fn sweep(&self, key: u64) {
        // SAFETY: the caller's promise.
        unsafe { self.search(|here| here <= key) };
    }

    unsafe fn search<'g>(&'g self, is_before: impl Fn(u64) -> bool) -> Gap<'g, T> {
        loop {
            // SAFETY: the caller's promise.
            if let Some(gap) = unsafe { self.try_search(&is_before) } {
                return gap;
            }
        }
    }

    /// Searches once. Returns `None` if another core has changed the path.
    unsafe fn try_search<'g>(&'g self, is_before: impl Fn(u64) -> bool) -> Option<Gap<'g, T>> {
        let mut gap = Gap { before: array::from_fn(|_| &self.head), after: array::from_fn(|_| None) };
        let mut tower = &self.head;
        for level in (0..LEVELS).rev() {
            // SAFETY: the head, or a node that was not marked on the level above.
            let start = unsafe { tower.link(level).load() };
            let mut next = if start.marked { return None } else { start.next };
            while let Some(node) = next {
                let seen = node.load(level);
                if seen.marked {
                    if !tower.link(level).swing(next, seen.next) {
                        return None;
                    }
                } else if is_before(node.key) {
                    tower = &node.node().tower;
                } else {
                    break;
                }
                next = seen.next;
            }
            (gap.before[level], gap.after[level]) = (tower, next);
        }
        Some(gap)
    }
}
