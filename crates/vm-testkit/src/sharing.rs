//! State that several spaces of a machine share: files, and memory since a fork.

use std::collections::BTreeMap;

use percore::Pinned;
use vm::{
    Access, AddressSpace, BackingNum, Copies, ForkBacking, Mapping, Others, PageNum, PageRange, Placement,
    Progress, Prot, Region, Relocation, Remap, VmError,
};

use crate::World;

/// The contents that a new mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Zeroes.
    Zeroes,
    /// A file from a page on. Writes are private.
    Private(usize, u64),
    /// A file from a page on. Writes go to the file.
    Shared(usize, u64),
    /// A file from a page on, never to be written here.
    Sealed(usize, u64),
}

impl Shows {
    /// File and page, if it shows one.
    pub(crate) fn file_page(self) -> Option<(usize, u64)> {
        match self {
            Self::Zeroes => None,
            Self::Private(file, page) | Self::Shared(file, page) | Self::Sealed(file, page) => {
                Some((file, page))
            }
        }
    }

    /// Returns what is shown `by` pages further on.
    pub(crate) fn further(self, by: u64) -> Self {
        match self {
            Self::Zeroes => Self::Zeroes,
            Self::Private(file, page) => Self::Private(file, page + by),
            Self::Shared(file, page) => Self::Shared(file, page + by),
            Self::Sealed(file, page) => Self::Sealed(file, page + by),
        }
    }

    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Self::Shared(..) | Self::Sealed(..))
    }
}

/// The ways to fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forks {
    /// As a copy of one moment.
    AtOnce,
    /// Piece by piece.
    InPieces(Others),
}

impl Forks {
    /// All of them.
    pub const ALL: [Forks; 3] =
        [Forks::AtOnce, Forks::InPieces(Others::None), Forks::InPieces(Others::Freeze)];

    /// Makes `child` a copy of `space`.
    ///
    /// # Errors
    /// Returns the errors of [`AddressSpace::fork`].
    pub fn fork(
        self,
        space: &dyn AddressSpace,
        pin: &Pinned,
        child: &dyn AddressSpace,
        fork_backing: &mut ForkBacking<'_>,
    ) -> Result<(), VmError> {
        let Forks::InPieces(others) = self else { return space.fork(pin, child, fork_backing) };
        let mut from = Some(PageNum::new(0));
        while let Some(at) = from {
            from = space.fork_piece(pin, child, at, others, fork_backing)?;
        }
        Ok(())
    }
}

impl World {
    /// Maps as a kernel does: with a backing of the mapping's own, if it shows a file.
    pub fn map(
        &self,
        pin: &Pinned,
        place: Placement,
        pages: u64,
        prot: Prot,
        shows: Shows,
    ) -> Result<PageNum, VmError> {
        let backing = |file, offset| self.machine.files.view(file, offset, pages);
        let mapping = match shows {
            Shows::Zeroes => Mapping::anonymous(prot),
            Shows::Private(file, offset) => Mapping::private(prot, backing(file, offset)),
            Shows::Shared(file, offset) => Mapping::shared(prot, backing(file, offset)),
            Shows::Sealed(file, offset) => Mapping::shared(prot, backing(file, offset)).sealed(),
        };
        let answer = self.space.map(pin, place, pages, mapping);
        self.let_go(mapping.backing());
        answer
    }

    /// Moves a mapping.
    pub fn remap(&self, pin: &Pinned, what: &Remap) -> Result<PageNum, VmError> {
        let mut made = None;
        let answer = self.space.remap(pin, what, &mut |backing, from, to| {
            made = Some(self.machine.files.moved(backing, from, to));
            made
        });
        self.let_go(made);
        answer
    }

    /// Remaps in pieces of at most `most` pages, with a call of `between` after each, or in one step if the
    /// design cannot. A piece that finds no memory ends the move.
    ///
    /// # Errors
    /// Returns the errors of the space.
    pub fn remap_in_pieces(
        &self,
        pin: &Pinned,
        what: &Remap,
        most: u64,
        mut between: impl FnMut(),
    ) -> Result<PageNum, VmError> {
        let Some(mut relocation) = Relocation::begin(&*self.space, *what, most) else {
            return self.remap(pin, what);
        };
        let mut made = None;
        let mut remap_backing = |backing, from, to| {
            Some(*made.get_or_insert_with(|| self.machine.files.moved(backing, from, to)))
        };
        let answer = loop {
            match relocation.step(pin, &mut remap_backing) {
                Ok(Progress::Over(answer)) => break answer,
                Ok(Progress::More) => between(),
                Err(_) => relocation.abort(pin),
            }
        };
        self.let_go(made);
        answer
    }

    /// Forks a child of the space, which the test ends.
    ///
    /// # Errors
    /// Returns the errors of `AddressSpace::fork`. Then there is no child.
    pub fn fork(&self, pin: &Pinned) -> Result<World, VmError> {
        self.fork_as(pin, Forks::AtOnce)
    }

    /// Forks a child of the space by one of the ways to fork.
    ///
    /// # Errors
    /// Returns the errors of `AddressSpace::fork`. Then there is no child.
    pub fn fork_as(&self, pin: &Pinned, forks: Forks) -> Result<World, VmError> {
        self.fork_by(pin, |child, fork_backing| forks.fork(&*self.space, pin, child, fork_backing))
    }

    fn fork_by(
        &self,
        pin: &Pinned,
        fork: impl FnOnce(&dyn AddressSpace, &mut ForkBacking<'_>) -> Result<(), VmError>,
    ) -> Result<World, VmError> {
        let child = self.sibling(pin).ok_or(VmError::OutOfMemory)?;
        let mut child_backings = BTreeMap::new();
        let answer = fork(&*child.space, &mut |backing| {
            Some(*child_backings.entry(backing).or_insert_with(|| self.machine.files.again(backing)))
        });
        self.let_go(child_backings.into_values());
        match answer {
            Ok(()) => Ok(child),
            Err(error) => {
                child.end();
                Err(error)
            }
        }
    }

    /// Everything that is mapped.
    pub fn regions(&self, pin: &Pinned, pages: PageRange) -> Vec<Region> {
        let mut regions = Vec::new();
        self.space.regions(pin, pages, &mut |region| {
            regions.push(*region);
            std::ops::ControlFlow::Continue(())
        });
        regions
    }

    /// Pages of the space show page `first` of `file` or a later one no longer.
    pub fn zap(&self, pin: &Pinned, user: PageRange, file: usize, first: u64, copies: Copies) {
        for region in self.regions(pin, user) {
            let Some(backing) = region.mapping.backing() else { continue };
            let (shown, index) = self.machine.files.shown(backing, region.pages.start());
            let skipped = first.saturating_sub(index);
            if shown == file && skipped < region.pages.pages() {
                let start = PageNum::new(region.pages.start().get() + skipped);
                self.space.zap(pin, PageRange::between(start, region.pages.end()), backing, copies);
            }
        }
    }

    /// Does `access` as a program on this core, and returns what it finds in the first word.
    pub fn glance(&self, pin: &Pinned, page: PageNum) -> u64 {
        let frame = self.reach(pin, page, Access::Read).expect("the page can be read");
        self.frames().read(frame, 0)
    }

    fn let_go(&self, made: impl IntoIterator<Item = BackingNum>) {
        made.into_iter().for_each(|backing| self.machine.files.adjust(backing, -1));
    }
}
