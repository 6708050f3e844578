//! A concurrent map from 36-bit keys to small values, made for address spaces: ranges are locked, filled and
//! cleared as a whole, and operations on ranges that do not overlap write no common cache line.
//!
//! The map is a radix tree, 4 levels of 512 slots of one word. A node is one frame, and a second one where
//! values have second words (see [`Value`]). Where the keys below a slot all have the same value or none, the
//! slot has that value and there is no node below it (it is *folded*). Each slot has a lock bit. A range is
//! locked slot by slot from left to right. A folded slot that sticks out of the range *expands*, and the lock
//! moves down to the keys. Unused nodes *collapse*: [Refcache](refcache) counts the used slots of each node
//! without shared writes, and frees a node when none was used for a whole epoch. A descent locks nothing and
//! counts nothing.
//!
//! ```
//! # #[derive(Clone, Copy, Debug, PartialEq)] struct Prot(u64);
//! # impl radixmap::Value for Prot {
//! #     fn to_words(self) -> (u64, u64) { (self.0, 0) }
//! #     fn from_words(main: u64, _: u64) -> Self { Self(main) }
//! # }
//! use radixmap::{Always, IfPresent, RadixMap};
//! use refcache::{Config, Refcache};
//!
//! let _core = percore::threads::enter_any(1); // this thread plays a core
//! let pin = percore::pin();
//! let refcache = Refcache::new(Config { cores: 1, cache_slots: 64, review_budget: 64 });
//! refcache.online(&pin);
//!
//! let map = RadixMap::new(&pin, &refcache)?;
//! map.lock_range(&pin, 0..1 << 18, Always)?.fill(Prot(3)); // a gigabyte: one slot
//! if let Some(mut page) = map.lock_key(&pin, 77)? {
//!     page.for_each(|entry| entry.set(Prot(1))); // expanded: three nodes more
//! }
//! let mut values = Vec::new();
//! map.lock_range(&pin, 76..79, IfPresent)?.for_each(|entry| values.push(entry.value()));
//! assert_eq!(values, [Some(Prot(3)), Some(Prot(1)), Some(Prot(3))]);
//! map.destroy(&pin);
//! refcache.drain(&pin); // the nodes go in the next epochs
//! # Ok::<(), radixmap::OutOfMemory>(())
//! ```
//!
//! Each file names only files above it in this list:
//!
//! - `levels` (the bits of a key), `slot` (the bits of a slot), `value` (the user's values), `expand` (the
//!   rights of a holder), `stats`
//! - `overlap` (detection of a core that waits for itself), `here` (the right to use nodes)
//! - `section` (runs of equal slots with one word), `allocate`, `side` (second words), `memory` (the fields
//!   of a node)
//! - `node` (from a key to its slot), `parts` (a range's slots in one node), `leaf` (leaves whose frames
//!   serve as page tables)
//! - `fold` (expansion, folding, collapse), then `lock` (the protocol of ranges), `look` (lookups without a
//!   lock)
//! - `entry` and `iter` (the actions of a holder), `map`, then `extent` (the keys that some slots cover) and
//!   `copy` (copying a whole map)
//!
//! The arguments are in `docs/design/radix.md`.
#![no_std]
#![warn(missing_debug_implementations)]

extern crate alloc;

mod allocate;
mod copy;
mod entry;
mod expand;
mod extent;
mod fold;
mod here;
mod iter;
mod leaf;
mod levels;
mod lock;
mod look;
mod map;
mod memory;
mod node;
mod overlap;
mod parts;
mod section;
mod side;
mod slot;
mod stats;
mod value;

pub use allocate::OutOfMemory;
pub use entry::{Entry, Run};
pub use expand::{Always, Expand, ExpandUsed, IfDiffering, IfPresent, Never};
pub use iter::RangeGuard;
pub use leaf::{Annex, Leaf};
pub use levels::{BLOCK, KEY_BITS, KEY_END};
pub use look::Peek;
pub use map::RadixMap;
#[cfg(loom)]
#[doc(hidden)]
pub use section::with_upper_sections;
pub use slot::TAGS;
pub use stats::{NodeCounters, Stats};
pub use value::Value;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
