//! Refcache: reference counts that many cores change without sharing a cache line.
//!
//! # The problem
//!
//! A shared counter makes every `inc` and `dec` contend for one cache line. One counter per core ends the
//! contention but costs objects × cores of memory. Refcache avoids both: each core keeps a small cache of
//! *deltas*, and applies them to the objects' global counts once in an *epoch*. Space is objects + cores, and
//! a reference taken and dropped on one core never leaves it. The price is a delay: the true count of an
//! object is not known at any moment, and an object is released a few epochs after its last reference was
//! dropped.
//!
//! # How a zero is believed
//!
//! Every core flushes its cache once in each epoch, and the last core to do so turns the epoch. Flushes come
//! in any order, so a global count of zero may be false: the `-1` may have overtaken a `+1`. The core that
//! makes the count zero puts the object on its *review queue* and reviews it two epochs later. If no core has
//! touched the object since, then each core has flushed in between and had no delta for it, so no reference
//! is left.
//!
//! ```text
//!  epoch    1               2               3               4               5
//!  core 0   |--[-1]--F------|-----F---------|--R1--F--------|-----F---------|--R2--F---
//!  core 1   |[+1]--------F--|--[-1]------F--|----------F----|-------F-------|--------F-
//!  global   1        0   1                  0
//!                    Q                      dirty  again                       released
//!
//!  [+1] cached delta   F flush   Q put on core 0's review queue   R review
//!  R1: the count is zero, but core 1 changed it after Q. It is dirty and proves nothing: wait two epochs more.
//!  R2: no core touched the object for a whole epoch. It is released.
//! ```
//!
//! A cache entry whose delta has come back to zero is flushed like any other. It records that the core held
//! the object in this epoch. Without it a reference that travels from core to core, just ahead of the
//! flushes, would be seen by no flush, and its object would be released while in use. (The paper's figure 2
//! has that hole.)
//!
//! # Weak words
//! A [`WeakWord`] names an object without keeping it. When the count becomes zero the object's word is marked
//! [`DYING`]. A reader clears the mark ([`WeakWord::revive`]), and the reviewer takes the word away only if
//! the mark is still there. One compare-and-swap decides. A reader that stays pinned needs no `inc` at all:
//! its core cannot flush, so the epochs that a review must wait for cannot pass. `docs/design/refcache.md`
//! has the invariants and the proof.
//!
//! # Sole holders
//!
//! A one is believed like a zero: if no core has touched an object since its global count became 1, a whole
//! epoch ago, there is one reference. Its holder may ask ([`Header::is_sole`]), and write in place instead of
//! copying. Only that holder can make a second reference. It then records that in the header
//! ([`Refcache::add_references`]), once, before it changes its delta cache.
//!
//! # Use
//!
//! [`Ref`] and [`Weak`] are like `Arc` and its `Weak`. A data structure that lays out its own objects embeds
//! a [`Header`] and calls [`Refcache::adjust`]. Each core calls [`Refcache::tick`] now and then.
//!
//! | file | holds |
//! |---|---|
//! | `header.rs` | an object's count, and the decision of a review |
//! | `cache.rs` | one core's deltas |
//! | `local.rs` | one core's part: cache, queue, last flush |
//! | `epoch.rs` | the barrier word: coming online, going offline, flushing, forcing |
//! | `doze.rs` | the part of a dozing core that stays in the epochs |
//! | `review.rs` | review queues, orphans, `tick` |
//! | `weak.rs` | the word that readers and the reviewer race for, and `Weak` |
//! | `object.rs` | `Ref`: a value in a counted block |
//! | `domain.rs` | how a structure holds its domain |
#![cfg_attr(not(loom), no_std)]
#![warn(missing_debug_implementations)]

extern crate alloc;

mod cache;
mod domain;
mod doze;
mod epoch;
mod header;
mod local;
mod object;
mod review;
mod weak;

use core::ptr::NonNull;

use percore::{PerCore, Pinned};
use sync::CachePadded;
use sync::atomic::AtomicU64;

pub use domain::Domain;
pub use header::{Header, Release};
pub use local::Loan;
pub use object::Ref;
pub use review::Tick;
pub use weak::{DYING, KEPT, Weak, WeakWord};

/// The sizes of a [`Refcache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number of cores.
    pub cores: usize,
    /// Entries of each core's delta cache, a power of two, at 16 bytes each. More entries mean fewer
    /// conflicts and less sharing.
    pub cache_slots: usize,
    /// The largest number of objects that one [`Refcache::tick`] reviews.
    pub review_budget: usize,
}

/// One domain of counted objects: the delta caches and review queues of all cores, and their epoch.
///
/// Dropping it leaks the objects that still wait for review: [`drain`](Self::drain) it before.
#[derive(Debug)]
pub struct Refcache {
    cores: PerCore<local::Core>,
    barrier: CachePadded<epoch::Barrier>,
    /// Epochs below this one are to be forced.
    forced: CachePadded<AtomicU64>,
    orphans: CachePadded<review::Orphans>,
    review_budget: usize,
}

impl Refcache {
    /// Makes a domain with every core offline.
    ///
    /// # Panics
    /// Panics if there are no cores or more than [`percore::MAX_CORES`], `cache_slots` is no power of two, or
    /// `review_budget` is 0.
    pub fn new(config: Config) -> Self {
        assert!(config.cores > 0, "a domain needs a core");
        assert!(config.review_budget > 0, "a tick must be allowed to review something");
        Self {
            cores: PerCore::new(config.cores, |core| local::Core::new(core, config.cache_slots)),
            barrier: CachePadded::new(epoch::Barrier::new()),
            forced: CachePadded::new(AtomicU64::new(0)),
            orphans: CachePadded::new(review::Orphans::new()),
            review_budget: config.review_budget,
        }
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.cores.cores()
    }

    /// Adds `delta` to the object's count in this core's delta cache. This takes a few instructions and no
    /// shared line, unless other objects occupy the cache slots.
    ///
    /// # Panics
    /// Panics if this core is offline.
    ///
    /// # Safety
    /// The object lives: the caller holds a reference, or got the object from its weak word under a [`Loan`]
    /// that it still has. If the reference came from another core, it came by synchronisation. A negative
    /// delta drops references. A positive delta is for headers made by [`Header::new`] only. The pointer may
    /// be used for the whole object that the header begins.
    #[inline(always)]
    pub unsafe fn adjust(&self, pin: &Pinned, object: NonNull<Header>, delta: i64) {
        let core = self.cores.mine(pin);
        if !core.add(pin, object, delta) {
            core.with(pin, |local| local.miss(object, delta));
        }
    }

    /// Drops references on any thread, so that destructors can call it. On an online core this is
    /// [`adjust`](Self::adjust). A thread without a core of this domain, or on one that is offline, changes
    /// the object's global count itself, which takes a lock and the barrier's line.
    ///
    /// # Safety
    /// As for [`adjust`](Self::adjust), and the caller holds the references.
    #[inline]
    pub unsafe fn drop_references(&self, object: NonNull<Header>, references: u32) {
        let delta = -i64::from(references);
        let in_cache = percore::try_pin().is_some_and(|pin| {
            let core = self.cores.try_mine(&pin);
            // Going offline empties the cache, so only a miss needs to ask.
            core.is_some_and(|core| core.add(&pin, object, delta) || core.try_miss(&pin, object, delta))
        });
        if !in_cache {
            self.evict_from_outside((object, delta));
        }
    }

    /// Adds references to an object that may be [sole](Header::is_sole), as [`adjust`](Self::adjust) does. It
    /// reads the header, and writes there only if the header counts no other reference.
    ///
    /// # Panics
    /// Panics if this core is offline.
    ///
    /// # Safety
    /// As for [`adjust`](Self::adjust). No holder relies on [`Header::is_sole`] having returned true.
    #[inline]
    pub unsafe fn add_references(&self, pin: &Pinned, object: NonNull<Header>, references: u32) {
        // SAFETY: the caller's promises. The core does not flush between the two calls.
        unsafe {
            object.as_ref().touch_sole();
            self.adjust(pin, object, references.into());
        }
    }

    /// Lets the caller use objects that it finds by weak words, without counting them, until the loan is
    /// dropped.
    ///
    /// # Panics
    /// Panics if this core is offline.
    #[inline(always)]
    pub fn loan<'a>(&'a self, pin: &'a Pinned) -> Loan<'a> {
        Loan::new(self.cores.mine(pin), pin)
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
