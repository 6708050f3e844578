//! Sloppy counters: unused references stay with the core where they were dropped.
//!
//! After Boyd-Wickizer et al. (An analysis of Linux scalability to many cores, OSDI 2010). A core that drops
//! a reference keeps it as a *spare*, and takes from its spares when it needs one. Only a core without spares
//! adds to the central count, and only a core with more than a threshold gives its spares back.
//!
//! ```text
//!    central 7  =  4 in use  +  spares: core 0: 1   core 1: 0   core 2: 2
//! ```
//!
//! 1. The central count is the number of references in use and of all spares, at any moment. (A reference
//!    that is being given back is still counted.)
//! 2. So a central zero is exact: no reference is in use, there are no spares, and no core can make either.
//!    The one subtraction that finds it releases the object.
//! 3. But while there are spares the central count says nothing about zero. [`settle`](Scheme::settle) gives
//!    back the spares of all cores to find out. The paper does so for objects that are rarely freed.
//!
//! The paper's cores change their spares under a lock of their own. Ours change them atomically, in a line
//! that no other core uses until a core settles.
//!
//! Orderings: `give_back` takes spares by Acquire, partner of the Release with which they were dropped, and
//! subtracts by AcqRel, partner of itself on other cores: the last subtraction happens after all use. To take
//! a spare or add to the central count is Relaxed: the caller has another reference, which is counted.

use core::mem::size_of;

use percore::{PerCore, Pinned};
use sync::CachePadded;
use sync::atomic::{AtomicU64, Ordering};

use crate::{OutOfMemory, Scheme, Zero};

/// Counts centrally, with spare references for each core.
#[derive(Clone, Copy, Debug)]
pub struct Sloppy {
    /// The largest number of spares that a core keeps of an object.
    pub threshold: u64,
}

/// The central count, and the spares.
#[derive(Debug)]
pub struct SloppyCount {
    central: AtomicU64,
    spares: PerCore<AtomicU64>,
}

impl SloppyCount {
    /// Gives back a core's spares. Returns whether no reference is left.
    fn give_back(&self, spares: &AtomicU64) -> bool {
        let many = spares.swap(0, Ordering::Acquire);
        many > 0 && self.central.fetch_sub(many, Ordering::AcqRel) == many
    }
}

/// Takes a spare, if there is one.
fn take(spares: &AtomicU64) -> bool {
    let mut seen = spares.load(Ordering::Relaxed);
    while seen > 0 {
        match spares.compare_exchange(seen, seen - 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

impl Scheme<'_> for Sloppy {
    type Count = SloppyCount;
    type Token = ();

    const NAME: &'static str = "sloppy";
    const ZERO: Zero = Zero::WhenAsked;
    const FIRST: () = ();

    fn count(cores: usize) -> Result<SloppyCount, OutOfMemory> {
        let spares = PerCore::try_new(cores, |_| AtomicU64::new(0)).ok_or(OutOfMemory)?;
        Ok(SloppyCount { central: AtomicU64::new(1), spares })
    }

    fn object_bytes(cores: usize) -> usize {
        size_of::<SloppyCount>() + cores * size_of::<CachePadded<AtomicU64>>()
    }

    #[inline]
    fn inc(&self, pin: &Pinned, count: &SloppyCount) {
        if !take(count.spares.mine(pin)) {
            count.central.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn dec(&self, pin: &Pinned, count: &SloppyCount, (): ()) -> bool {
        let spares = count.spares.mine(pin);
        let before = spares.fetch_add(1, Ordering::Release);
        before >= self.threshold && count.give_back(spares)
    }

    fn settle(&self, _pin: &Pinned, count: &SloppyCount) -> bool {
        count.spares.iter().any(|spares| count.give_back(spares))
    }
}
