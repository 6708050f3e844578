//! A skip list: sorted lists above each other, each with a fourth of the nodes below. Lookups write nothing.
//!
//! After Fraser (Practical lock-freedom, 2004), Herlihy and Shavit (The Art of Multiprocessor Programming,
//! 14.4).
//!
//! ```text
//!   level 2   head ───────────────────────▶ 21 ────────────────────▶ end
//!   level 1   head ─────────▶ 8 ──────────▶ 21 ─────────▶ 40 ──────▶ end
//!   level 0   head ──▶ 5 ───▶ 8 ──▶ 13 ───▶ 21 ──▶ 34 ──▶ 40 ──────▶ end       what the map holds
//! ```
//!
//! A link is a pointer with a *mark*, which says that the node which the link is **in** was removed.
//!
//! | a node | its links | it is in the map |
//! |---|---|---|
//! | new | none leads to it, and its own are not marked | no |
//! | there | one leads to it at level 0, then at 1 and so on, and none is marked | yes |
//! | going | marked from the top down to 1 | yes |
//! | gone | all marked, and a writer that passes takes it out of the level | no |
//! | retired | no node that a new search passes leads to it | no |
//!
//! 1. A marked link never changes again. A link is changed only by compare-and-swap from an unmarked pointer,
//!    so no node is linked after a node that is gone.
//! 2. Marking the bottom link removes the node. One core does, and it is the one that removed the key.
//! 3. A search goes down only from nodes that it saw unmarked on the level above. Such a node was there at
//!    that moment, and is on every level below. The node that its link below leads to, even if it has been
//!    marked since, was linked after the search began.
//! 4. A node is retired once, by the later one of its two *parties*: the inserter, when it is done linking
//!    the node, and the remover. First it sweeps: one search that passes all nodes with keys **up to and
//!    including** its own. Another node with the same key may have been linked before the one that is gone,
//!    and a search that stops there would leave that one linked.
//! 5. After the sweep no core links the node again. A link to it is made by its inserter, which is done, or
//!    by a core that inserts a new node before it or takes a node out before it. Both need a link that leads
//!    to it already.
//!
//! From 3 and 5: a node that a search finds was not retired before the search began, so [`rcu`] keeps it
//! until the search is over. Lookups are wait-free as long as no core keeps inserting just ahead of them.
//! Insertion and removal are lock-free: a search starts over only because another change succeeded.
//!
//! Orderings: a link is loaded by Acquire, and changed by Release, partners of each other: a node is complete
//! when it is found, and a core that finds a node linked on a level sees it linked below. A party's decrement
//! is AcqRel, partner of the other party's: the sweep sees all links and marks.

mod change;
mod find;
mod node;

use core::fmt;

use percore::Pinned;
use rcu::{Guard, Handle};

use crate::skiplist::node::{Node, Tower, free_all};

/// A map from `u64` to `T`, in order, freed by the domain that `D` leads to.
pub struct SkipList<T: Send + Sync + 'static, D: Handle> {
    head: Tower<T>,
    domain: D,
}

impl<T: Send + Sync + 'static, D: Handle> SkipList<T, D> {
    /// Returns an empty map.
    pub fn new(domain: D) -> Self {
        Self { head: Tower::empty(), domain }
    }

    /// Begins a read section of the domain.
    ///
    /// # Panics
    /// If this core is offline.
    #[inline]
    pub fn read<'a>(&'a self, pin: &'a Pinned) -> Reader<'a, T> {
        Reader { head: &self.head, _section: self.domain.read(pin) }
    }

    /// Returns the bytes of an entry.
    pub const fn entry_bytes() -> usize {
        size_of::<Node<T>>() + size_of::<rcu::Head>()
    }
}

impl<T: Send + Sync + 'static, D: Handle> Drop for SkipList<T, D> {
    fn drop(&mut self) {
        // SAFETY: readers and writers borrow the list, so there are none. Nodes that are gone were retired.
        unsafe { free_all(&self.head) }
    }
}

impl<T: Send + Sync + 'static, D: Handle> fmt::Debug for SkipList<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(SkipList)")
    }
}

/// Looks entries up. The entries it finds live as long as the reader.
pub struct Reader<'a, T: Send + Sync + 'static> {
    head: &'a Tower<T>,
    _section: Guard<'a>,
}

impl<T: Send + Sync + 'static> Reader<'_, T> {
    /// Returns the value of `key`. There was a moment during the lookup in which the answer was right.
    #[inline]
    pub fn get(&self, key: u64) -> Option<&T> {
        self.floor(key).and_then(|(found, value)| (found == key).then_some(value))
    }

    /// Returns the entry with the greatest key that is not greater than `key`.
    ///
    /// Finds an entry that is there all the time, or one closer to the key. The entry found was there at some
    /// moment. If it was removed meanwhile, or another was inserted behind it, the floor may have been
    /// another all along. A caller that must be sure looks again with writers kept out.
    #[inline]
    pub fn floor(&self, key: u64) -> Option<(u64, &T)> {
        // SAFETY: the section lasts as long as the borrow.
        unsafe { self.head.floor(key) }.map(|node| (node.key, node.value()))
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Reader<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Reader)")
    }
}
