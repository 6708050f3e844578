//! No count at all: the difference from this is the cost of counting.

use percore::Pinned;

use crate::{OutOfMemory, Scheme, Zero};

/// Counts nothing, so objects are never freed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uncounted;

impl Scheme<'_> for Uncounted {
    type Count = ();
    type Token = ();

    const NAME: &'static str = "none";
    const ZERO: Zero = Zero::Never;
    const FIRST: () = ();

    fn count(_cores: usize) -> Result<(), OutOfMemory> {
        Ok(())
    }

    fn object_bytes(_cores: usize) -> usize {
        0
    }

    #[inline(always)]
    fn inc(&self, _pin: &Pinned, _count: &()) {}

    #[inline(always)]
    fn dec(&self, _pin: &Pinned, _count: &(), _place: ()) -> bool {
        false
    }
}
