//! Counters that every core adds to without sharing a cache line.

use core::array;

use sync::atomic::{AtomicU64, Ordering};

use crate::{CoreId, LazyPerCore, Pinned};

/// `N` numbers. Each core adds to cells of its own, which are allocated when it first counts something.
///
/// All accesses are relaxed: the numbers synchronise nothing. They may lag, and are never torn.
#[derive(Debug)]
pub struct Counts<const N: usize> {
    own: LazyPerCore<Cells<N>>,
    /// Counts of cores that had no memory for cells of their own.
    common: Cells<N>,
}

type Cells<const N: usize> = [AtomicU64; N];

impl<const N: usize> Counts<N> {
    /// Returns zeroes for cores 0 to `cores - 1`, or `None` if there is no memory for that.
    pub fn try_new(cores: usize) -> Option<Self> {
        Some(Self { own: LazyPerCore::try_new(cores)?, common: zeroes() })
    }

    /// Adds to number `at`.
    #[inline(always)]
    pub fn add(&self, pin: &Pinned, at: usize, more: u64) {
        self.add_all(pin, [(at, more)]);
    }

    /// Adds to several numbers, modulo 2^64: a number may be one that counts down as well.
    #[inline(always)]
    pub fn add_all<const M: usize>(&self, pin: &Pinned, more: [(usize, u64); M]) {
        match self.own.mine(pin) {
            Some(own) => more.into_iter().for_each(|(at, more)| add_to(&own[at], more)),
            None => more.into_iter().for_each(|(at, more)| self.begin(pin, at, more)),
        }
    }

    #[cold]
    fn begin(&self, pin: &Pinned, at: usize, more: u64) {
        match self.own.mine_or_new(pin, |_| zeroes()) {
            Some(own) => add_to(&own[at], more),
            None => _ = self.common[at].fetch_add(more, Ordering::Relaxed),
        }
    }

    /// Returns the counts of `core` in cells of its own.
    pub fn of(&self, core: CoreId) -> [u64; N] {
        self.own.of(core).map_or([0; N], read)
    }

    /// Returns the sums of all counts.
    pub fn sum(&self) -> [u64; N] {
        self.own
            .iter()
            .fold(read(&self.common), |sum, own| array::from_fn(|at| sum[at].wrapping_add(value(&own[at]))))
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.own.cores()
    }
}

fn zeroes<const N: usize>() -> Cells<N> {
    array::from_fn(|_| AtomicU64::new(0))
}

fn read<const N: usize>(cells: &Cells<N>) -> [u64; N] {
    array::from_fn(|at| value(&cells[at]))
}

fn value(cell: &AtomicU64) -> u64 {
    cell.load(Ordering::Relaxed)
}

/// Adds to a cell. Only the owner core writes its cells, so no read-modify-write is needed.
#[inline(always)]
fn add_to(cell: &AtomicU64, more: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_core_counts_for_itself() {
        let counts = Counts::<2>::try_new(3).unwrap();
        for (core, at, more) in [(0, 0, 5), (2, 0, 1), (2, 1, 7), (2, 1, 7)] {
            // SAFETY: this test is the only flow of control, and plays all cores.
            counts.add(&unsafe { Pinned::assume(CoreId::new(core)) }, at, more);
        }
        let of = |core| counts.of(CoreId::new(core));
        assert_eq!((of(0), of(1), of(2)), ([5, 0], [0, 0], [1, 14]));
        assert_eq!(counts.sum(), [6, 14]);
        // SAFETY: as above.
        counts.add_all(&unsafe { Pinned::assume(CoreId::new(1)) }, [(0, 2), (1, 15_u64.wrapping_neg())]);
        assert_eq!(counts.sum().map(|sum| sum as i64), [8, -1]);
    }
}
