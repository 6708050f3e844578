//! The right to use a map's nodes. Rule 7 of [`crate::lock`] says why the nodes stay.

use core::ops::Range;

use percore::Pinned;
use refcache::{Loan, Refcache};

use crate::overlap::{MapId, Record};
use crate::value::PartOf;

/// The right to use nodes: a pinned core that has a loan of its Refcache domain.
#[derive(Debug)]
pub(crate) struct Here<'p> {
    pub refcache: &'p Refcache,
    pub pin: &'p Pinned,
    /// Computes the value of a key of a folded block. Only the map knows the values.
    pub part: PartOf,
    map: MapId,
    _loan: Loan<'p>,
}

impl<'p> Here<'p> {
    #[inline(always)]
    pub fn new(refcache: &'p Refcache, pin: &'p Pinned, part: PartOf, map: MapId) -> Self {
        Self { refcache, pin, part, map, _loan: refcache.loan(pin) }
    }

    /// Waits one turn for the holder of a slot, which has the keys `span`.
    ///
    /// # Panics
    /// Panics in debug builds, if the holder is this core.
    #[inline(always)]
    pub fn wait(&self, span: impl FnOnce() -> Range<u64>) {
        self.map.assert_not_held(self.pin, span);
        percore::relax();
    }

    /// Records that this core holds `keys`.
    #[inline(always)]
    pub fn record(&self, keys: &Range<u64>) -> Record {
        Record::new(self.pin, self.map, keys)
    }
}
