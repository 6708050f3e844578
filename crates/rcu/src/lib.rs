//! RCU: readers that write nothing shared, and memory that is freed after they have finished.
//!
//! # The problem
//!
//! A reader follows pointers without a lock, so a writer that takes an object out of a structure may not free
//! it at once: a reader may have found it a moment ago. The writer must wait until every such reader has
//! finished, for a *grace period*. A count of readers would tell when, and would be as shared a line as the
//! readers' lock.
//!
//! # How a grace period is known
//!
//! Readers are not counted. Each core announces when it is *quiescent*, that is, in no read section. A kernel
//! core is quiescent on its way to user mode and in its idle loop, and a host thread where it says so
//! ([`Domain::quiesce`]). When all cores have been quiescent once, all sections that were open are closed,
//! and no reader can reach an object that was unlinked before.
//!
//! ```text
//!  epoch    5                6                  7                  8
//!  core 0   ---[unlink A; defer A]----q-------------q----------------q run A
//!  core 1   q----[read A ....]-----------q---------------q-------------
//!  core 2   offline                          [read]--q-----------------
//!
//!  q  the core is quiescent, and says which epoch it saw: one store to its own line, once in an epoch
//!  When every core that is online has said 6, one of them turns the epoch to 7.
//! ```
//!
//! Only a core that waits for an epoch turns it. In a domain in which nothing is deferred the epoch stands
//! still, and being quiescent costs one load of a line that no core writes.
//!
//! # Use
//!
//! A reader takes a [`Guard`]. A writer unlinks an [`Owned`] value and hands it to [`Domain::retire`]. That
//! allocates nothing, since the block has room for the callback. A structure that lays out its own objects
//! embeds a [`Head`] and calls [`Domain::defer`].
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
//! | `epoch.rs` | the protocol: the announcements, turning the epoch, online and offline |
//! | `local.rs` | one core's part: its sections, its queue |
//! | `queue.rs` | callbacks that wait for their epoch, and orphans |
//! | `reclaim.rs` | deferring, running, forcing, waiting |
//! | `owned.rs` | a value in a block with room for its callback |
//! | `word.rs` | words with counted references, which readers use without counting them |
//! | `trie.rs` | values by hash, which readers search without a lock |
//! | `handle.rs` | how a structure holds its domain |
#![cfg_attr(not(loom), no_std)]
#![warn(missing_debug_implementations)]

extern crate alloc;

mod epoch;
mod handle;
mod local;
mod owned;
mod queue;
mod reclaim;
mod trie;
mod word;

use percore::PerCore;
use sync::CachePadded;
use sync::atomic::AtomicU64;

pub use epoch::GRACE;
pub use handle::Handle;
pub use local::Guard;
pub use owned::{OutOfMemory, Owned};
pub use queue::{Callback, Head};
pub use trie::{Change, Moving, NotInserted, NotLocked, Spare, Trie, Values};
pub use word::{Counted, Found, Frozen, LoanCell, Loaned, Removed, Word, lowest_free};

/// The sizes of a [`Domain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number of cores.
    pub cores: usize,
    /// The largest number of callbacks that one [`Domain::quiesce`] runs.
    pub batch: usize,
    /// A core with more waiting callbacks than this asks all others for a grace period at once.
    pub bound: usize,
}

/// The cores that wait for each other's readers.
///
/// Dropping it runs the callbacks that still wait.
#[derive(Debug)]
pub struct Domain {
    cores: PerCore<local::Core>,
    epoch: CachePadded<AtomicU64>,
    /// Epochs below this one are to be forced.
    forced: CachePadded<AtomicU64>,
    orphans: CachePadded<queue::Orphans>,
    batch: usize,
    bound: usize,
}

impl Domain {
    /// Makes a domain with every core offline.
    ///
    /// # Panics
    /// Panics if there are no cores or more than [`percore::MAX_CORES`], or `batch` is 0.
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

    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.cores.cores()
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
