//! A number under a lock, as before atomics.

use core::mem::size_of;

use percore::Pinned;
use sync::SpinLock;

use crate::{OutOfMemory, Scheme, Zero};

/// Counts in a word under a spin lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Locked;

impl Scheme<'_> for Locked {
    type Count = SpinLock<u64>;
    type Token = ();

    const NAME: &'static str = "locked";
    const ZERO: Zero = Zero::AtOnce;
    const FIRST: () = ();

    fn count(_cores: usize) -> Result<SpinLock<u64>, OutOfMemory> {
        Ok(SpinLock::new(1))
    }

    fn object_bytes(_cores: usize) -> usize {
        size_of::<SpinLock<u64>>()
    }

    #[inline]
    fn inc(&self, _pin: &Pinned, count: &SpinLock<u64>) {
        *count.lock() += 1;
    }

    #[inline]
    fn dec(&self, _pin: &Pinned, count: &SpinLock<u64>, (): ()) -> bool {
        let mut references = count.lock();
        *references -= 1;
        *references == 0
    }
}
