//! A mapping moves piece by piece, and other threads find it whole: at the old place, or at the new one.
//!
//! ```text
//!            check          claim            carry (and grow)          finish
//!   old:   a mapping      a mapping      pages, then held pages     unmapped, or untouched
//!   new:                  held pages     pages, then held pages     the mapping
//!                                              │ failure
//!                                              ▼
//!                          back, open, clear, release: as before (what was mapped at a fixed new place is gone)
//! ```
//!
//! 1. A *held* page is mapped, has no contents, and may not be accessed. So nothing else is mapped there, and
//!    a fault fails: the caller lets it wait for the end of the move, and tries again.
//! 2. Each step is one operation of the space: it locks a piece at both places, and does all of it or
//!    nothing.
//! 3. The old place keeps its nodes and its second words until the move is sure, so the way back needs no
//!    memory.
//! 4. Other threads may unmap held pages, or map over them. A step that finds a page changed ends the move,
//!    and the pages go back where their places are still held. To the other threads, their own operation came
//!    first. A page that has moved and got other rights or another mapping since stays at the new place, with
//!    its contents.
//!
//! The caller does one move at a time in a space, and no fork meanwhile.

use percore::Pinned;

use super::address_space::RemapBacking;
use crate::{AddressSpace, Mapping, PageNum, PageRange, Placement, Remap, VmError};

/// The steps of a move, of a design that can do it piece by piece. See the module.
pub trait MovePieces {
    /// Returns whether all of `pages` may be mapped.
    fn has(&self, pages: PageRange) -> bool;

    /// Returns the first part of `pages` that one step moves.
    fn piece_to_move(&self, pin: &Pinned, pages: PageRange) -> PageRange;

    /// Returns the mapping of all of `pages`.
    ///
    /// # Errors
    /// `NotMapped`; `Mixed`, also if a page is held.
    fn mapping_of(&self, pin: &Pinned, pages: PageRange) -> Result<Mapping, VmError>;

    /// Maps `pages` held pages, and says where.
    ///
    /// # Errors
    /// As [`AddressSpace::map`].
    fn claim(&self, pin: &Pinned, place: Placement, pages: u64) -> Result<PageNum, VmError>;

    /// Moves `from`, pages of `mapping`, to `to`, where all is held. They leave held pages behind. Returns
    /// their mapping at the new place.
    ///
    /// # Errors
    /// `NotMapped` or `Mixed` if either is not so; `OutOfMemory`.
    fn carry(
        &self,
        pin: &Pinned,
        mapping: Mapping,
        from: PageRange,
        to: PageNum,
        remap_backing: &mut RemapBacking<'_>,
    ) -> Result<Mapping, VmError>;

    /// Moves the contents of `from`, as far as they are pages of `mapping`, back to `to`, as far as that is
    /// held. Both places are held then.
    ///
    /// # Errors
    /// `OutOfMemory`, if a page has become part of a huge one meanwhile.
    fn carry_back(&self, pin: &Pinned, mapping: Mapping, from: PageRange, to: PageNum)
    -> Result<(), VmError>;

    /// Turns the held pages of `pages` into untouched ones of `mapping`, or unmaps them.
    ///
    /// # Errors
    /// `OutOfMemory`
    fn settle(&self, pin: &Pinned, pages: PageRange, mapping: Option<Mapping>) -> Result<(), VmError>;

    /// Counts a move that is done.
    fn count_move(&self, pin: &Pinned);
}

/// The phase of a move.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Check,
    Claim,
    Carry,
    Grow,
    Finish,
    Back(VmError),
    Open(VmError),
    Clear(VmError),
    Release(VmError),
}

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is another step.
    More,
    /// It is over: where the pages are, or why they are where they were.
    Over(Result<PageNum, VmError>),
}

/// A move on its way. Dropped half-way, it leaves the pages at both places.
pub struct Relocation<'s> {
    space: &'s dyn AddressSpace,
    parts: &'s dyn MovePieces,
    what: Remap,
    /// Pages of a piece at most.
    most: u64,
    phase: Phase,
    /// The rest of the phase: pages of the old place, or of the new one.
    rest: PageRange,
    /// The mappings of the pages at both places, as far as they are known.
    old: Option<Mapping>,
    new: Option<Mapping>,
    /// The new place, as far as it is claimed.
    to: PageRange,
    /// After a failure: how many pages of the new place are no longer held.
    moved: u64,
}

impl<'s> Relocation<'s> {
    /// Begins the move `what` in pieces of at most `most` pages. Returns none if the design does it in one
    /// step ([`AddressSpace::remap`]).
    ///
    /// # Panics
    /// If there is less room than pages.
    pub fn begin(space: &'s dyn AddressSpace, what: Remap, most: u64) -> Option<Self> {
        assert!(what.from.pages() <= what.pages, "there is no room for the pages");
        let parts = space.moves_in_pieces()?;
        let (rest, to) = (what.from, PageRange::EMPTY);
        Some(Self { space, parts, what, most, phase: Phase::Check, rest, old: None, new: None, to, moved: 0 })
    }

    /// Does one step.
    ///
    /// # Errors
    /// `OutOfMemory`: the step did nothing. It may be tried again, or [aborted](Self::abort).
    pub fn step(&mut self, pin: &Pinned, remap_backing: &mut RemapBacking<'_>) -> Result<Progress, VmError> {
        match self.advance(pin, remap_backing) {
            Err(VmError::OutOfMemory) => Err(VmError::OutOfMemory),
            Err(error) => {
                self.fail(error);
                Ok(Progress::More)
            }
            progress => progress,
        }
    }

    /// Aborts the move, since the next step does not find the memory it needs: the pages go back. If they
    /// were on their way back, or all was done but to release the old place, one piece is left as it is.
    pub fn abort(&mut self, pin: &Pinned) {
        match self.phase {
            Phase::Check | Phase::Claim | Phase::Carry | Phase::Grow => self.fail(VmError::OutOfMemory),
            _ => {
                let piece = self.piece(pin);
                self.rest = PageRange::between(piece.end(), self.rest.end());
            }
        }
    }

    fn fail(&mut self, error: VmError) {
        self.moved = match self.phase {
            Phase::Carry => self.rest.start().get() - self.what.from.start().get(),
            Phase::Grow => self.what.pages,
            _ => 0,
        };
        self.begin_phase(Phase::Back(error), self.part_of_new(0, self.moved.min(self.what.from.pages())));
    }

    fn advance(&mut self, pin: &Pinned, remap_backing: &mut RemapBacking<'_>) -> Result<Progress, VmError> {
        match self.phase {
            Phase::Check => self.check(pin),
            Phase::Claim => self.claim(pin),
            Phase::Carry => self.carry(pin, remap_backing),
            Phase::Grow => self.grow(pin),
            Phase::Finish => self.finish(pin),
            Phase::Back(error) => self.go_back(pin, error),
            Phase::Open(error) => self.open(pin, error),
            Phase::Clear(error) => self.clear(pin, error),
            Phase::Release(error) => self.release(pin, error),
        }
    }

    fn check(&mut self, pin: &Pinned) -> Result<Progress, VmError> {
        if !self.parts.has(self.rest) {
            return Err(VmError::OutOfRange);
        }
        let piece = self.piece(pin);
        let found = self.parts.mapping_of(pin, piece);
        // The leftmost page that is wrong says how, as in one step: not a hole behind a page of another
        // mapping.
        if let (Some(old), Err(_)) = (self.old, found)
            && self.parts.mapping_of(pin, PageRange::one(piece.start())).is_ok_and(|first| first != old)
        {
            return Err(VmError::Mixed);
        }
        let found = found?;
        if *self.old.get_or_insert(found) != found {
            return Err(VmError::Mixed);
        }
        if self.next(piece) {
            let fixed = match self.what.to {
                Placement::Fixed(start) => {
                    PageRange::new(start, self.what.pages).ok_or(VmError::OutOfRange)?
                }
                _ => PageRange::EMPTY,
            };
            if !self.parts.has(fixed) {
                return Err(VmError::OutOfRange);
            }
            if !fixed.common(self.what.from).is_empty() {
                return Err(VmError::Exists);
            }
            self.begin_phase(Phase::Claim, fixed);
        }
        Ok(Progress::More)
    }

    /// Replaces what is mapped at a fixed place piece by piece. None of it is ever free.
    fn claim(&mut self, pin: &Pinned) -> Result<Progress, VmError> {
        if let Placement::Fixed(start) = self.what.to {
            let piece = self.piece(pin);
            self.parts.claim(pin, Placement::Fixed(piece.start()), piece.pages())?;
            self.to = PageRange::between(start, piece.end());
            if !self.next(piece) {
                return Ok(Progress::More);
            }
        } else {
            let start = self.parts.claim(pin, self.what.to, self.what.pages)?;
            self.to = PageRange::new(start, self.what.pages).ok_or(VmError::OutOfRange)?;
        }
        self.begin_phase(Phase::Carry, self.what.from);
        Ok(Progress::More)
    }

    fn carry(&mut self, pin: &Pinned, remap_backing: &mut RemapBacking<'_>) -> Result<Progress, VmError> {
        let mapping = self.old.ok_or(VmError::NotMapped)?;
        let piece = self.bounded(self.parts.piece_to_move(pin, self.rest));
        let at = self.to.start().get() + piece.start().get() - self.what.from.start().get();
        self.new = Some(self.parts.carry(pin, mapping, piece, PageNum::new(at), remap_backing)?);
        if self.next(piece) {
            self.begin_phase(Phase::Grow, self.part_of_new(self.what.from.pages(), self.what.pages));
        }
        Ok(Progress::More)
    }

    fn grow(&mut self, pin: &Pinned) -> Result<Progress, VmError> {
        let piece = self.piece(pin);
        if !piece.is_empty() {
            self.parts.settle(pin, piece, self.new)?;
        }
        if self.next(piece) {
            self.begin_phase(Phase::Finish, self.what.from);
        }
        Ok(Progress::More)
    }

    fn finish(&mut self, pin: &Pinned) -> Result<Progress, VmError> {
        let piece = self.piece(pin);
        if !piece.is_empty() {
            self.parts.settle(pin, piece, self.old.filter(|_| self.what.keep))?;
        }
        if !self.next(piece) {
            return Ok(Progress::More);
        }
        self.parts.count_move(pin);
        Ok(Progress::Over(Ok(self.to.start())))
    }

    fn go_back(&mut self, pin: &Pinned, error: VmError) -> Result<Progress, VmError> {
        let piece = self.piece(pin);
        if let Some(mapping) = self.new.filter(|_| !piece.is_empty()) {
            let at = self.what.from.start().get() + piece.start().get() - self.to.start().get();
            self.parts.carry_back(pin, mapping, piece, PageNum::new(at))?;
        }
        if self.next(piece) {
            let from = self.what.from;
            let end = PageNum::new(from.start().get() + self.moved.min(from.pages()));
            self.begin_phase(Phase::Open(error), PageRange::between(from.start(), end));
        }
        Ok(Progress::More)
    }

    /// Lets the pages of the old place be accessed again.
    fn open(&mut self, pin: &Pinned, error: VmError) -> Result<Progress, VmError> {
        let piece = self.piece(pin);
        if !piece.is_empty() {
            self.parts.settle(pin, piece, self.old)?;
        }
        if self.next(piece) {
            let pages = self.what.from.pages();
            self.begin_phase(Phase::Clear(error), self.part_of_new(pages, self.moved.max(pages)));
        }
        Ok(Progress::More)
    }

    /// Unmaps the pages by which the mapping has grown.
    fn clear(&mut self, pin: &Pinned, error: VmError) -> Result<Progress, VmError> {
        let piece = self.piece(pin);
        if !piece.is_empty() {
            self.space.unmap(pin, piece)?;
        }
        if self.next(piece) {
            self.begin_phase(Phase::Release(error), self.part_of_new(0, self.what.pages));
        }
        Ok(Progress::More)
    }

    /// Stops holding the new place. Pages that other threads have changed since stay there.
    fn release(&mut self, pin: &Pinned, error: VmError) -> Result<Progress, VmError> {
        let piece = self.piece(pin);
        if !piece.is_empty() {
            self.parts.settle(pin, piece, None)?;
        }
        Ok(if self.next(piece) { Progress::Over(Err(error)) } else { Progress::More })
    }

    /// Pages `from` to `to` of the new place, as far as they are claimed.
    fn part_of_new(&self, from: u64, to: u64) -> PageRange {
        let at = |page: u64| PageNum::new(self.to.start().get() + page).min(self.to.end());
        PageRange::between(at(from), at(to))
    }

    fn begin_phase(&mut self, phase: Phase, pages: PageRange) {
        (self.phase, self.rest) = (phase, pages);
    }

    /// Returns the first piece of the rest, which is empty if nothing is left. On the way back it ends where
    /// a slot of its place does, so that nothing has to be expanded.
    fn piece(&self, pin: &Pinned) -> PageRange {
        let piece = if self.rest.is_empty() { self.rest } else { self.space.piece(pin, self.rest) };
        match self.phase {
            Phase::Check | Phase::Claim | Phase::Carry | Phase::Grow => self.bounded(piece),
            _ => piece,
        }
    }

    fn bounded(&self, piece: PageRange) -> PageRange {
        let end = piece.start().get().saturating_add(self.most);
        PageRange::between(piece.start(), piece.end().min(PageNum::new(end)))
    }

    /// Records that `piece` is done. Returns whether it was the last of the phase.
    fn next(&mut self, piece: PageRange) -> bool {
        self.rest = PageRange::between(piece.end(), self.rest.end());
        self.rest.is_empty()
    }
}
