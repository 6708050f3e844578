//! What happened, counted where it happened: each core writes its own cache lines only.

use core::ops::{AddAssign, Index};

use percore::{CoreId, PerCore, Pinned};
use sync::atomic::{AtomicU64, Ordering};

/// Something worth counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A mapping was made.
    Mmap,
    /// An unmap.
    Munmap,
    /// A change of rights.
    Mprotect,
    /// A mapping that moved.
    Mremap,
    /// A copy of the whole space.
    Fork,
    /// A fault that allocated a frame.
    AllocFault,
    /// A fault that allocated the frames of a huge page.
    HugeFault,
    /// Pages that became a huge one.
    Promotion,
    /// A fault that found one.
    FillFault,
    /// A write that copied what was not its page's alone.
    CowCopy,
    /// A write that found it the page's alone after all.
    CowReuse,
    /// A page whose contents went to compressed memory.
    PageOut,
    /// A fault that fetched them back.
    PageIn,
    /// An operation that had to reach at least one other core.
    Shootdown,
    /// A core interrupted by a shootdown.
    IpiTarget,
    /// A core that a shootdown could leave alone.
    AvoidedIpi,
    /// A look at the map in search of a hole.
    Look,
}

const NAMES: [&str; 17] = [
    "mmap",
    "munmap",
    "mprotect",
    "mremap",
    "forks",
    "alloc_faults",
    "huge_faults",
    "promotions",
    "fill_faults",
    "cow_copies",
    "cow_reuses",
    "page_outs",
    "page_ins",
    "shootdowns",
    "ipi_targets",
    "avoided_ipis",
    "looks",
];

/// One number for each [`Event`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters([u64; NAMES.len()]);

impl Counters {
    /// Name and number of each event.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(self.0)
    }

    /// Relaxed: a number may lag, and is never torn.
    fn add(&mut self, cells: &[AtomicU64; NAMES.len()]) {
        self.0.iter_mut().zip(cells).for_each(|(sum, cell)| *sum += cell.load(Ordering::Relaxed));
    }
}

impl Index<Event> for Counters {
    type Output = u64;
    fn index(&self, event: Event) -> &u64 {
        &self.0[event as usize]
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// The cells behind [`Counters`].
#[derive(Debug)]
pub(crate) struct Tally(PerCore<[AtomicU64; NAMES.len()]>);

impl Tally {
    pub(crate) fn try_new(cores: usize) -> Option<Self> {
        PerCore::try_new(cores, |_| Default::default()).map(Self)
    }

    /// Counts `times` events. Relaxed, and not read-modify-write: only this core writes the cell.
    #[inline]
    pub(crate) fn add(&self, pin: &Pinned, event: Event, times: u64) {
        let cell = &self.0.mine(pin)[event as usize];
        cell.store(cell.load(Ordering::Relaxed) + times, Ordering::Relaxed);
    }

    /// The counts of `core`.
    pub(crate) fn of(&self, core: CoreId) -> Counters {
        let mut counts = Counters::default();
        counts.add(self.0.of(core));
        counts
    }

    /// How often `event` happened.
    pub(crate) fn total(&self, event: Event) -> u64 {
        self.0.iter().map(|cells| cells[event as usize].load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn sum(&self) -> Counters {
        let mut sum = Counters::default();
        self.0.iter().for_each(|cells| sum.add(cells));
        sum
    }
}
