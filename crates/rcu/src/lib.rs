//! RCU: readers that write nothing, and memory that waits for them.
//!
//! # The problem
//!
//! A reader follows pointers without a lock, so a writer that takes an object out of a structure may not free it:
//! somebody may have found it a moment ago. It must wait until every reader that could have is done, for a *grace
//! period*. A count of readers would tell when, and would be the shared line that the reader's lock was.
//!
//! # How a grace period is known
//!
//! Readers are not counted; cores tell when they are *quiescent*, in no read section. A kernel core is quiescent on
//! its way to user mode and in its idle loop, a host thread where it says so ([`Domain::quiesce`]). When all cores
//! have been quiescent once, all sections that were open are closed, and what was unlinked before is out of reach.
//!
//! ```text
//!  epoch    5                6                  7                  8
//!  core 0   ---[unlink A; defer A]----q-------------q----------------q run A
//!  core 1   q----[read A ....]-----------q---------------q-------------
//!  core 2   offline                          [read]--q-----------------
//!
//!  q  the core is quiescent, and says which epoch it saw: one store to its own line, once in an epoch
//!  When every core that is online has said 6, somebody turns the epoch to 7.
//! ```
//!
//! An epoch is turned only by somebody who waits for it. In a domain in which nothing is deferred the epoch stands
//! still, and to be quiescent is one load of a line that nobody writes.
//!
//! # Use
//!
//! A reader takes a [`Guard`]. A writer unlinks an [`Owned`] value and hands it to [`Domain::retire`]; nothing is
//! allocated for that, the room is in the block. A structure that lays out its own objects embeds a [`Head`] and
//! calls [`Domain::defer`].
//!
//! ```
//! use std::sync::atomic::{AtomicPtr, Ordering};
//! use rcu::{Config, Domain, Owned};
//!
//! let domain = Domain::new(Config { cores: 1, batch: 16, bound: 1000 });
//! let _core = percore::threads::enter_any(1);
//! let pin = percore::pin();
//! domain.online(&pin);
//!
//! let config = AtomicPtr::new(Owned::try_new(String::from("old")).unwrap().into_raw().as_ptr());
//! let reader = domain.read(&pin);
//! // SAFETY: published above, and retired by nobody before `reader` began.
//! let seen = unsafe { &*config.load(Ordering::Acquire) };
//!
//! let new = Owned::try_new(String::from("new")).unwrap().into_raw();
//! let old = config.swap(new.as_ptr(), Ordering::AcqRel);
//! // SAFETY: the swap made this flow its only owner; readers that found it before are waited for.
//! domain.retire(&pin, unsafe { Owned::from_raw(std::ptr::NonNull::new(old).unwrap()) });
//! assert_eq!(seen, "old");
//!
//! drop(reader);
//! assert_eq!(domain.quiesce(&pin), 1, "the only core was quiescent, so the old value went");
//! # unsafe { drop(Owned::from_raw(new)) };
//! # domain.offline(&pin);
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `epoch.rs` | the protocol: what cores tell, who turns the epoch; online and offline |
//! | `local.rs` | one core's part: its sections, its queue |
//! | `queue.rs` | callbacks that wait for their epoch; orphans |
//! | `reclaim.rs` | deferring, running, forcing, waiting |
//! | `owned.rs` | a value in a block with room for its callback |
//! | `handle.rs` | how a structure holds on to its domain |
#![cfg_attr(not(loom), no_std)]
#![warn(missing_debug_implementations)]

extern crate alloc;

mod epoch;
mod handle;
mod local;
mod owned;
mod queue;
mod reclaim;

use percore::PerCore;
use sync::CachePadded;
use sync::atomic::AtomicU64;

pub use handle::Handle;
pub use local::Guard;
pub use owned::{OutOfMemory, Owned};
pub use queue::{Callback, Head};

/// The sizes of a [`Domain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How many cores there are.
    pub cores: usize,
    /// The most callbacks that one [`Domain::quiesce`] runs.
    pub batch: usize,
    /// A core on which more callbacks wait than this asks all others to hurry.
    pub bound: usize,
}

/// The cores that wait for each other's readers.
///
/// Dropping it runs the callbacks that still wait.
#[derive(Debug)]
pub struct Domain {
    cores: PerCore<local::Core>,
    epoch: CachePadded<AtomicU64>,
    /// Epochs below this one are wanted at once.
    forced: CachePadded<AtomicU64>,
    orphans: CachePadded<queue::Orphans>,
    batch: usize,
    bound: usize,
}

impl Domain {
    /// A domain with every core offline.
    ///
    /// # Panics
    /// If there are no cores or more than [`percore::MAX_CORES`], or `batch` is 0.
    pub fn new(config: Config) -> Self {
        assert!(config.cores > 0, "a domain needs a core");
        assert!(config.batch > 0, "a quiescent core must be allowed to run something");
        Self {
            cores: PerCore::new(config.cores, local::Core::new),
            epoch: CachePadded::new(AtomicU64::new(epoch::FIRST)),
            forced: CachePadded::new(AtomicU64::new(0)),
            orphans: CachePadded::new(queue::Orphans::new()),
            batch: config.batch,
            bound: config.bound,
        }
    }

    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.cores.cores()
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
