//! One atomic word for all cores, as in most kernels.

use core::mem::size_of;

use percore::Pinned;
use sync::atomic::{AtomicU64, Ordering};

use crate::{OutOfMemory, Scheme, Zero};

/// Counts in one word that all cores change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shared;

impl Scheme<'_> for Shared {
    type Count = AtomicU64;
    type Token = ();

    const NAME: &'static str = "atomic";
    const ZERO: Zero = Zero::AtOnce;
    const FIRST: () = ();

    fn count(_cores: usize) -> Result<AtomicU64, OutOfMemory> {
        Ok(AtomicU64::new(1))
    }

    fn object_bytes(_cores: usize) -> usize {
        size_of::<AtomicU64>()
    }

    #[inline(always)]
    fn inc(&self, _pin: &Pinned, count: &AtomicU64) {
        // Relaxed: the caller's own reference keeps the count from zero.
        count.fetch_add(1, Ordering::Relaxed);
    }

    #[inline(always)]
    fn dec(&self, _pin: &Pinned, count: &AtomicU64, (): ()) -> bool {
        // AcqRel: partner of itself. The last core to drop sees all writes that the others did before they
        // dropped.
        count.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
