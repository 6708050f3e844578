/// The largest number of cores of a machine (8 bits name a core in a page's tracker).
pub const MAX_CORES: usize = 256;

/// A core's number, dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(u8);

impl CoreId {
    /// Makes the number of core `index`.
    ///
    /// # Panics
    /// Panics if `index` is not below [`MAX_CORES`].
    #[inline(always)]
    pub const fn new(index: usize) -> Self {
        assert!(index < MAX_CORES, "a machine has at most 256 cores");
        Self(index as u8)
    }

    /// Returns the number, for indexing.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
