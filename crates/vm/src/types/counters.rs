//! Counts events on the core where they happen: each core writes its own cache lines only.

use core::array;
use core::ops::{AddAssign, Index};

use percore::{CoreId, Counts, Pinned};

use super::usage::Change;
use crate::Usage;

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

/// Index of the first number of a [`Change`], behind those of the events.
const MAPPED: usize = NAMES.len();
const OWN: usize = MAPPED + 1;
const SHOWN: usize = OWN + 1;

/// The per-core cells behind [`Counters`] and [`Usage`].
#[derive(Debug)]
pub struct EventCounts(Counts<{ SHOWN + 1 }>);

impl EventCounts {
    /// Returns zeroes for `cores` cores, or `None` if there is no memory.
    pub fn try_new(cores: usize) -> Option<Self> {
        Counts::try_new(cores).map(Self)
    }

    /// Counts `times` events.
    #[inline]
    pub fn add(&self, pin: &Pinned, event: Event, times: u64) {
        self.0.add(pin, event as usize, times);
    }

    /// Counts a call that mapped `pages` pages.
    #[inline]
    pub(crate) fn map(&self, pin: &Pinned, pages: u64) {
        self.0.add_all(pin, [(Event::Mmap as usize, 1), (MAPPED, pages)]);
    }

    /// Counts `calls` calls that unmapped pages.
    #[inline(always)]
    pub(crate) fn unmap(&self, pin: &Pinned, change: &Change, calls: u64) {
        let Change { mapped, own, shown } = *change;
        self.0.add_all(pin, [(Event::Munmap as usize, calls), (MAPPED, mapped as u64), (OWN, own as u64)]);
        if shown != 0 {
            self.0.add(pin, SHOWN, shown as u64);
        }
    }

    /// Counts a change.
    #[inline]
    pub fn change(&self, pin: &Pinned, change: &Change) {
        self.unmap(pin, change, 0);
    }

    /// Returns the counts of `core`.
    pub fn of(&self, core: CoreId) -> Counters {
        split(self.0.of(core)).0
    }

    /// Returns the sums over all cores.
    pub fn sum(&self) -> Counters {
        split(self.0.sum()).0
    }

    /// Returns the pages that the space has.
    pub fn usage(&self) -> Usage {
        let (counters, changes) = split(self.0.sum());
        Usage::new(changes, &counters)
    }
}

fn split(cells: [u64; SHOWN + 1]) -> (Counters, Change) {
    let [mapped, own, shown] = [MAPPED, OWN, SHOWN].map(|at| cells[at] as i64);
    (Counters(array::from_fn(|at| cells[at])), Change { mapped, own, shown })
}
