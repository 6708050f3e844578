//! The baselines that RadixVM is measured against, implemented as well as we can.
//!
//! The RadixVM paper compares Refcache with a shared counter and with SNZI (its figure 8), and the radix map
//! with a skip list (figures 6 and 7). These are the same, together with earlier and later counters, behind
//! one trait:
//!
//! | counter | inc and dec write | zero is reported to | bytes for each object on n cores |
//! |---|---|---|---|
//! | [`Uncounted`] | nothing | no caller | 0 |
//! | [`Shared`] | the object's line | the last `dec`, at once | 8 |
//! | [`Locked`] | the object's line, twice | the last `dec`, at once | 16 |
//! | [`Snzi`] | the core's leaf, and if that was or becomes 0, its parent, and so on up | the last `dec`, at once | 128 n and a third more |
//! | [`Sloppy`] | the core's spare references, or the object's line if there are none, or too many | a call of [`settle`](Scheme::settle) | 128 n |
//! | [`PayGo`] | an entry in a table of the core's, or of the core where the reference was taken | a call of `settle` | 16 |
//! | [`Deltas`] | an entry in a table of the core's | a call of `settle`, some epochs later | 48 |
//!
//! [`EmbeddedCount`] is LODIC's: a few bits of a word of the host's, as long as the host leaves it alone.
//! [`ClaimedCount`] is the same counter with a word of its own, which objects claim one after the other, or
//! one of a [`ClaimedSet`]. [`Slots`] is a table of the blocks that hold such words. [`SharedPart`] counts
//! the references that are in no word, and asks for the sum of all while references are taken.
//!
//! [`SkipList`] is a map from numbers to values with wait-free lookups, for the figures that show lookups in
//! the radix map and Bonsai beside writers. `docs/design/baselines.md` names the source paper of each part.
//!
//! Unsafe code is in `skiplist/`, because nodes that are found without a lock are freed, and in one line of
//! `counters/deltas.rs`, because Refcache is told addresses.
//!
//! | file | holds |
//! |---|---|
//! | `scheme.rs` | the trait of all counters |
//! | `counters/` | one file for each |
//! | `skiplist/` | `node.rs` towers and marks, `find.rs` the searches, `change.rs` insertion and removal |
#![cfg_attr(not(loom), no_std)]
#![warn(missing_debug_implementations)]

extern crate alloc;

mod counters;
mod scheme;
mod skiplist;

pub use counters::claimed::{ClaimedCount, ClaimedSet};
pub use counters::deltas::{DeltaCount, Deltas};
pub use counters::embedded::{EmbeddedCount, Shown, Taken};
pub use counters::locked::Locked;
pub use counters::paygo::{PayGo, PayGoCount, PayGoToken};
pub use counters::queried::{Question, SharedPart};
pub use counters::shared::Shared;
pub use counters::sloppy::{Sloppy, SloppyCount};
pub use counters::slots::{Asked, Slots, Tenant};
pub use counters::snzi::{Snzi, SnziCount, SnziToken};
pub use counters::uncounted::Uncounted;
pub use rcu::OutOfMemory;
pub use scheme::{Scheme, Zero};
pub use skiplist::{Reader, SkipList};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
