//! How many descriptors and calls keep one end of a stream open. The other end is told at once when there are
//! none left, though the memory of the end may stay for its readers.

use core::sync::atomic::{AtomicUsize, Ordering};

/// The count of an end that was closed, for good.
const CLOSED: usize = usize::MAX;

/// An exact count of the descriptors and calls that keep an end open.
pub struct Holders(AtomicUsize);

impl Holders {
    /// Counts none. The end is open until it has had one.
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Counts one more. Returns false if the end is closed.
    pub fn join(&self) -> bool {
        // Relaxed: the end's contents have a lock.
        let more = |count| (count != CLOSED).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Returns the count, or 0 if the end is closed.
    pub fn count(&self) -> usize {
        match self.0.load(Ordering::Relaxed) {
            CLOSED => 0,
            count => count,
        }
    }

    /// Returns whether the end is closed.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CLOSED
    }

    /// Counts one less. Returns whether it was the last, so that the end is closed.
    pub fn leave(&self) -> bool {
        // AcqRel: everything that the holders did with the end comes before its close.
        let less = |count| Some(if count == 1 { CLOSED } else { count - 1 });
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less) == Ok(1)
    }
}
