//! Regions: what is mapped, for lists of mappings and sums over them.

use core::fmt;
use core::mem;
use core::ops::ControlFlow;

use crate::{FrameNum, Mapping, PageNum, PageRange};

/// Pages side by side that are of one mapping, as many as there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The pages of the region.
    pub pages: PageRange,
    /// The mapping that they have in common.
    pub mapping: Mapping,
    /// How many of them are in memory.
    pub resident: Resident,
}

/// How much is told of regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The pages of each mapping. [`Region::resident`] says nothing.
    Mappings,
    /// How many of them are in memory, too: what costs a look at each of those.
    Resident,
}

/// Number of pages that have frames, by the other holders that these may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Pages whose frames no other page has.
    pub alone: u64,
    /// Pages of those above that are in huge pages.
    pub huge: u64,
    /// Pages whose frames other spaces may have too, since a fork.
    pub counted: u64,
    /// Pages whose frames are the backing's.
    pub shown: u64,
    /// Pages without a frame, whose contents are in compressed memory: not among the [`total`](Self::total).
    pub compressed: u64,
}

impl Resident {
    /// All that have frames.
    pub fn total(self) -> u64 {
        self.alone + self.counted + self.shown
    }

    /// All that are the space's own and no backing's, with or without frames.
    pub fn own(self) -> u64 {
        self.alone + self.counted + self.compressed
    }

    fn join(&mut self, other: Self) {
        self.alone += other.alone;
        self.counted += other.counted;
        self.shown += other.shown;
        self.huge += other.huge;
        self.compressed += other.compressed;
    }
}

/// Pages side by side whose frames are side by side too: a page, or pages of one huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRun {
    /// The pages.
    pub pages: PageRange,
    /// The frame of the first one.
    pub first: FrameNum,
    /// Whether the frames are the backing's.
    pub is_shown: bool,
}

impl FrameRun {
    /// Returns the frame of each page.
    pub fn frames(self) -> impl Iterator<Item = FrameNum> {
        let first = self.first.get();
        (first..first + self.pages.pages()).map(FrameNum::new)
    }
}

impl Region {
    /// Returns as much of the region as `detail` asks for.
    pub(crate) fn told(self, detail: Detail) -> Self {
        match detail {
            Detail::Mappings => Self { resident: Resident::default(), ..self },
            Detail::Resident => self,
        }
    }

    /// Returns the region with the one that follows, if it is of the same mapping.
    pub fn joined(mut self, next: Self) -> Option<Self> {
        if self.pages.end() != next.pages.start() || self.mapping != next.mapping {
            return None;
        }
        self.pages = PageRange::between(self.start(), next.pages.end());
        self.resident.join(next.resident);
        Some(self)
    }

    fn start(&self) -> PageNum {
        self.pages.start()
    }
}

/// Regions on their way to a visitor, from the left: those that go together are joined.
pub struct Joining<'v> {
    open: Option<Region>,
    visit: &'v mut dyn FnMut(&Region) -> ControlFlow<()>,
}

impl<'v> Joining<'v> {
    /// Begins without regions.
    pub fn new(visit: &'v mut dyn FnMut(&Region) -> ControlFlow<()>) -> Self {
        Self { open: None, visit }
    }

    /// Adds the next region. Shows the one before to the visitor if this one is not joined to it, and returns
    /// what the visitor says.
    pub fn add(&mut self, next: Region) -> ControlFlow<()> {
        let joined = self.open.and_then(|region| region.joined(next));
        let done = if joined.is_some() { None } else { self.open };
        self.open = joined.or(Some(next));
        done.as_ref().map_or(ControlFlow::Continue(()), &mut *self.visit)
    }

    /// Shows the last region.
    pub fn end(self) {
        if let Some(last) = self.open {
            let _ = (self.visit)(&last);
        }
    }
}

/// Checks that runs of pages, from the left, leave none out.
pub(crate) struct Unbroken {
    end: PageNum,
    has_gaps: bool,
}

impl Unbroken {
    /// Begins at page `start` with no runs.
    #[inline(always)]
    pub(crate) fn from(start: PageNum) -> Self {
        Self { end: start, has_gaps: false }
    }

    /// Adds the next run. Returns whether no page is left out so far.
    #[inline(always)]
    pub(crate) fn add(&mut self, pages: PageRange) -> bool {
        self.has_gaps |= pages.start() != self.end;
        self.end = pages.end();
        !self.has_gaps
    }

    /// Returns whether the runs cover all pages up to `end`.
    #[inline(always)]
    pub(crate) fn reaches(&self, end: PageNum) -> bool {
        !self.has_gaps && self.end == end
    }
}

/// Runs of pages on their way to a visitor, from the left.
pub struct Runs<'v> {
    run: PageRange,
    visit: &'v mut dyn FnMut(PageRange),
}

impl<'v> Runs<'v> {
    /// Begins without runs.
    pub fn new(visit: &'v mut dyn FnMut(PageRange)) -> Self {
        Self { run: PageRange::EMPTY, visit }
    }

    /// Adds the next pages, which join the run before them if they follow it.
    pub fn add(&mut self, pages: PageRange) {
        if self.run.end() != pages.start() {
            self.show();
        }
        self.run = self.run.hull(pages);
    }

    /// Shows the last run.
    pub fn end(mut self) {
        self.show();
    }

    fn show(&mut self) {
        let run = mem::replace(&mut self.run, PageRange::EMPTY);
        if !run.is_empty() {
            (self.visit)(run);
        }
    }
}

impl fmt::Debug for Joining<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joining").field("open", &self.open).finish_non_exhaustive()
    }
}

impl fmt::Debug for Runs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs").field("run", &self.run).finish_non_exhaustive()
    }
}
