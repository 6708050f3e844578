//! Bonsai: a balanced tree whose lookups take no lock, write nothing, and never try again.
//!
//! # The problem
//!
//! A page fault asks which region holds an address, and asks often. `mmap` and `munmap` change the regions
//! now and then. A reader-writer lock around the tree makes every fault write to the lock's line. Without
//! one, a lookup that meets a rotation may be led into the wrong subtree, and miss a key that is there all
//! the time.
//!
//! # How a lookup is never misled
//!
//! After Clements, Kaashoek and Zeldovich (ASPLOS 2012). No node that readers can reach is ever *moved*: a
//! rotation builds new nodes beside the old ones and swings one pointer. A reader at an old node finds there
//! the tree as it was a moment ago. The old nodes are freed by [`rcu`], when no such reader is left.
//!
//! ```text
//!        p                     p                   right side too heavy at a: two copies, one store
//!        |                     | <- the store
//!        a           a         b'                  a reader at the old a still finds X, and b, and all below them
//!       / \         / \       / \
//!      X   b   ->  .   b     a'  Z
//!         / \         / \   / \
//!        Y   Z       .   . X   Y
//! ```
//!
//! A purely functional tree would copy the whole path to the root for each change. Where nothing is rotated
//! that is not needed. The new subtree is linked by one store into the existing node (the paper's section
//! 3.3), and an insertion allocates one node, plus two or three for each rotation. [`Update`] chooses, and
//! [`Stats::avoided`] counts the copies saved.
//!
//! `docs/design/bonsai.md` has the invariants and the argument.
//!
//! # Use
//!
//! [`Bonsai::read`] gives a [`Reader`], [`Bonsai::write`] the one [`Writer`]. A writer works under a spin
//! lock of the tree's own, which a caller that has a lock already never waits for.
//!
//! ```
//! use bonsai::Bonsai;
//! use rcu::{Config, Domain};
//!
//! let domain = Domain::new(Config { cores: 1, batch: 16, bound: 1000 });
//! let _core = percore::threads::enter_any(1);
//! let pin = percore::pin();
//! domain.online(&pin);
//!
//! let regions = Bonsai::new(&domain);
//! let mut writer = regions.write(&pin);
//! writer.insert(0x1000_u64, "text").unwrap();
//! writer.insert(0x8000, "heap").unwrap();
//! drop(writer);
//!
//! let reader = regions.read(&pin);
//! assert_eq!(reader.get(0x8000), Some(&"heap"));
//! assert_eq!(reader.floor(0x7fff), Some((0x1000, &"text")));
//! assert_eq!(reader.ceiling(0x7fff), Some((0x8000, &"heap")));
//! assert_eq!(reader.floor(0xfff), None);
//! # drop(reader);
//! # domain.offline(&pin);
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `node.rs` | a node: what readers read, what the writer keeps |
//! | `read.rs` | lookups |
//! | `balance.rs` | when a node is out of balance, and what to do about it |
//! | `edit.rs` | new nodes for old: rotation, copying, updating in place |
//! | `write.rs` | insertion and removal |
//! | `one_writer.rs` | the lock that a writer holds |
//! | `path.rs` | the way down to a key |
//! | `iter.rs` | keys in order, and the check of all invariants |
//! | `spare.rs` | nodes allocated before anything changes |
//! | `stats.rs` | what was allocated and what was not |
#![cfg_attr(not(loom), no_std)]
#![warn(missing_debug_implementations)]

mod balance;
mod edit;
mod iter;
mod node;
mod one_writer;
mod path;
mod read;
mod spare;
mod stats;
mod write;

use core::fmt;

use percore::Pinned;
use rcu::Handle;

use crate::node::{Link, free_subtree};
use crate::one_writer::WriteLock;
use crate::stats::EventCounts;

pub use edit::Update;
pub use iter::{Broken, Iter};
pub use rcu::OutOfMemory;
pub use read::Reader;
pub use stats::Stats;
pub use write::Writer;

/// A key, which orders the entries of a tree.
pub trait Key: Ord + Copy + Send + Sync + 'static {}
impl<K: Ord + Copy + Send + Sync + 'static> Key for K {}

/// A map from `K` to `T`, in order, freed by the domain that `D` leads to.
pub struct Bonsai<K: Key, T: Send + Sync + 'static, D: Handle> {
    root: Link<K, T>,
    writing: WriteLock,
    events: EventCounts,
    update: Update,
    domain: D,
}

impl<K: Key, T: Send + Sync + 'static, D: Handle> Bonsai<K, T, D> {
    /// Returns an empty map, updated in place where that may be.
    pub fn new(domain: D) -> Self {
        Self::with_update(domain, Update::InPlace)
    }

    /// Returns an empty map, updated in place where that may be.
    ///
    /// # Errors
    /// No memory for what there is one of for each core.
    pub fn try_new(domain: D) -> Result<Self, OutOfMemory> {
        let events = EventCounts::try_new(domain.cores()).ok_or(OutOfMemory)?;
        Ok(Self::with_events(domain, Update::InPlace, events))
    }

    /// Returns an empty map.
    ///
    /// # Panics
    /// If there is no memory for what there is one of for each core.
    pub fn with_update(domain: D, update: Update) -> Self {
        let events = EventCounts::try_new(domain.cores()).expect("memory for a word for each core");
        Self::with_events(domain, update, events)
    }

    fn with_events(domain: D, update: Update, events: EventCounts) -> Self {
        Self { root: Link::new(None), writing: WriteLock::new(), events, update, domain }
    }

    /// Begins a read section of the domain.
    ///
    /// # Panics
    /// If this core is offline.
    #[inline]
    pub fn read<'a>(&'a self, pin: &'a Pinned) -> Reader<'a, K, T> {
        Reader::new(&self.root, self.domain.read(pin))
    }

    /// Waits until no other writer is in, and begins to write. Reading goes on meanwhile, here and elsewhere.
    ///
    /// # Panics
    /// If this core is offline, or has a writer of this tree already: that would wait for itself. (A
    /// comparison of keys may try it, or what the host runs in a wait.)
    pub fn write<'a>(&'a self, pin: &'a Pinned) -> Writer<'a, K, T> {
        Writer::new(self, pin, self.writing.lock(pin))
    }

    /// Returns what the writers have done so far.
    pub fn stats(&self) -> Stats {
        self.events.sum()
    }
}

impl<K: Key, T: Send + Sync + 'static, D: Handle> Drop for Bonsai<K, T, D> {
    fn drop(&mut self) {
        // SAFETY: readers and writers borrow the tree, so there are none, and what is linked is the tree's
        // alone.
        unsafe { free_subtree(&self.root) }
    }
}

impl<K: Key, T: Send + Sync + 'static, D: Handle> fmt::Debug for Bonsai<K, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bonsai")
            .field("update", &self.update)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
