//! Lookups.
//!
//! A lookup goes down from the root and loads each pointer once. Its guarantees, while a writer works:
//!
//! - [`get`](Reader::get): there was a moment during the lookup in which the answer was right.
//! - `None` of [`floor`](Reader::floor), [`ceiling`](Reader::ceiling) and [`around`](Reader::around): the
//!   same.
//! - `Some` of them: the entry was there at one moment, and at a moment not before that no other entry lay
//!   between it and the key. If it was there all the time, or is still there, the answer was right at that
//!   moment. If it was removed meanwhile, another may have been the nearest. A caller that must be sure marks
//!   removed entries, and looks again with the writer's lock held. (A page fault does: the paper's section
//!   5.2.)

use core::cmp::Ordering;
use core::fmt;

use rcu::Guard;

use crate::Key;
use crate::node::{Found, Link, Side, Tree};

/// Looks entries up. The entries it finds live as long as the reader.
pub struct Reader<'a, K, T> {
    root: &'a Link<K, T>,
    _section: Guard<'a>,
}

impl<'a, K: Key, T> Reader<'a, K, T> {
    #[inline(always)]
    pub(crate) fn new(root: &'a Link<K, T>, section: Guard<'a>) -> Self {
        Self { root, _section: section }
    }

    /// Returns the tree as it is now.
    #[inline(always)]
    pub(crate) fn root(&self) -> Tree<'_, K, T> {
        // SAFETY: the root is in no node, and the section lasts as long as the borrow.
        unsafe { self.root.get() }
    }

    /// Returns the value of `key`.
    #[inline]
    pub fn get(&self, key: K) -> Option<&T> {
        let mut tree = self.root();
        while let Some(node) = tree {
            tree = match key.cmp(&node.key) {
                Ordering::Less => node.child(Side::Left),
                Ordering::Greater => node.child(Side::Right),
                Ordering::Equal => return Some(node.value()),
            };
        }
        None
    }

    /// Returns the entry with the greatest key that is not greater than `key`.
    #[inline]
    pub fn floor(&self, key: K) -> Option<(K, &T)> {
        self.nearest(key, Side::Right)
    }

    /// Returns the entry with the least key that is not less than `key`.
    #[inline]
    pub fn ceiling(&self, key: K) -> Option<(K, &T)> {
        self.nearest(key, Side::Left)
    }

    /// Returns the entry with the greatest key that is not greater than `key`, and that with the least key
    /// that is greater: one way down for both.
    #[inline]
    pub fn around(&self, key: K) -> [Option<(K, &T)>; 2] {
        let (mut tree, mut around): (_, [Option<Found<'_, K, T>>; 2]) = (self.root(), [None; 2]);
        while let Some(node) = tree {
            let (at, next) = if node.key <= key { (0, Side::Right) } else { (1, Side::Left) };
            around[at] = Some(node);
            tree = node.child(next);
        }
        around.map(|found| found.map(|node| (node.key, node.value())))
    }

    /// Returns the last node on the way from which it goes on to `side`, or the key's own.
    #[inline(always)]
    fn nearest(&self, key: K, side: Side) -> Option<(K, &T)> {
        let (mut tree, mut best): (_, Option<Found<'_, K, T>>) = (self.root(), None);
        while let Some(node) = tree {
            let next = match key.cmp(&node.key) {
                Ordering::Less => Side::Left,
                Ordering::Greater => Side::Right,
                Ordering::Equal => return Some((node.key, node.value())),
            };
            if next == side {
                best = Some(node);
            }
            tree = node.child(next);
        }
        best.map(|node| (node.key, node.value()))
    }
}

impl<K, T> fmt::Debug for Reader<'_, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Reader)")
    }
}
