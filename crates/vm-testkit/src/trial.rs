//! Spaces and their models do the same steps, and every answer and every translation is compared.

use percore::Pinned;
use vm::{
    Access, Copies, FaultError, Flags, HUGE_PAGES, PageNum, PageRange, Placement, Prot, Remap, VmError,
};

use crate::judge::{filled, judge_regions, shot};
use crate::step::{Step, StepPlacement, Target};
use crate::{Design, Disk, Forks, Model, Setup, Shows, World};

/// Files of every trial.
pub const FILES: usize = 2;
const FILE_PAGES: u64 = 40;
/// Number of spaces at which no space gets another child.
const SPACES: usize = 4;

/// Spaces, and the models of them.
pub struct Trial {
    spaces: Vec<(World, Model)>,
    /// The index of the space whose steps these are.
    at: usize,
    /// True if memory may run out now. If not, no answer may say that it did.
    pub short: bool,
    disk: Disk,
    user: PageRange,
    /// Pages of all models, when there were most.
    most: usize,
    /// Targets of shootdowns, and translations filled, in spaces that have ended.
    shot: u64,
    filled: u64,
}

impl Trial {
    /// Returns one space and its model, both empty.
    pub fn new(setup: Setup, design: Design) -> Self {
        let (world, disk) = (World::new(setup, design), Disk::default());
        for file in (0..FILES).map(|_| world.machine.files.create(FILE_PAGES)) {
            disk.set_len(file, FILE_PAGES);
        }
        let model = Model::new(setup.user, &disk);
        Self {
            spaces: vec![(world, model)],
            at: 0,
            short: false,
            disk,
            user: setup.user,
            most: 0,
            shot: 0,
            filled: 0,
        }
    }

    /// Returns the space whose steps these are.
    pub fn world(&self) -> &World {
        &self.spaces[self.at].0
    }

    fn model(&mut self) -> &mut Model {
        &mut self.spaces[self.at].1
    }

    /// Does `step` on `core`.
    ///
    /// # Panics
    /// If a space and its model disagree, or a core could use a stale translation afterwards.
    pub fn step(&mut self, core: usize, step: &Step) {
        let machine = self.world().machine.clone();
        machine.on(core, |pin| match *step {
            Step::Map(place, pages, prot, shows) => self.map(pin, place, pages, prot, shows),
            Step::Unmap(target) => self.unmap(pin, self.range(target)),
            Step::Protect(target, prot) => self.protect(pin, self.range(target), prot),
            Step::Advise(target, set, clear) => self.advise(pin, self.range(target), set, clear),
            Step::Discard(target) => self.discard(pin, self.range(target)),
            Step::Collapse(at) => self.collapse(pin, self.page(at)),
            Step::Remap(target, more, place, keep, most) => {
                let (from, to) = (self.range(target), self.place(place));
                let what = Remap { from, pages: from.pages().saturating_add(more), to, keep };
                self.remap(pin, &what, most);
            }
            Step::Extend(target, more) => self.extend(pin, self.range(target), more),
            Step::Load(at, word) => self.load(pin, self.page(at), word),
            Step::Store(at, word, value) => self.store(pin, self.page(at), word, value),
            Step::Fork(forks) => self.fork(pin, forks),
            Step::Switch(to) => self.at = to % self.spaces.len(),
            Step::End => self.end(),
            Step::Truncate(file, len) => self.truncate(pin, file, len),
            Step::Reclaim(file) => {
                self.spaces.iter().for_each(|(world, _)| world.zap(pin, self.user, file, 0, Copies::Keep))
            }
            Step::PageOut(from) => _ = self.world().space.page_out(pin, self.page(from)),
            Step::Unsure(unsure) => machine.frames.set_unsure(unsure),
            Step::OfferHuge(offered) => machine.frames.offer_huge(offered),
            Step::Tick => _ = machine.tick(pin),
            Step::Idle(idle) => machine.set_idle(core, idle),
            Step::Leave => self.world().mmu.leave(pin),
            Step::Outside(at) => self.outside(pin, self.page(at)),
            Step::DropTables => self.world().drop_tables(pin),
        });
        self.audit();
    }

    /// Checks all that can be seen of every space against its model, and the reports of this one.
    fn audit(&mut self) {
        let machine = self.world().machine.clone();
        self.spaces.iter().for_each(|(world, model)| world.audit(model));
        let (world, model) = &self.spaces[self.at];
        machine.on(0, |pin| {
            judge_regions(world, model, pin, self.user);
            self.spaces.iter().for_each(|(world, _)| world.audit_usage(pin));
        });
        self.most = self.most.max(self.spaces.iter().map(|(_, model)| model.len()).sum());
        let cached = FILES * FILE_PAGES as usize;
        assert!(machine.frames.used() <= self.most + cached, "more frames than pages");
    }

    /// Ends the trial: nothing is lost, and no core was shot at more often than it could have had a
    /// translation.
    pub fn finish(mut self) {
        let machine = self.world().machine.clone();
        machine.on(0, |_| (1..self.spaces.len()).for_each(|_| self.end()));
        let (world, _) = self.spaces.remove(0);
        let faults = self.filled + filled(&world);
        let shot = self.shot + shot(&world);
        assert!(!world.is_exact() || shot <= faults, "{shot} targets for {faults} filled translations");
        world.finish();
    }

    fn map(&mut self, pin: &Pinned, place: StepPlacement, pages: u64, prot: Prot, shows: Shows) {
        let place = self.place(place);
        let answer = self.world().map(pin, place, pages, prot, shows);
        if !self.short || answer != Err(VmError::OutOfMemory) {
            self.model().map(place, pages, prot, shows, answer);
        }
    }

    fn unmap(&mut self, pin: &Pinned, range: PageRange) {
        let answer = self.world().space.unmap(pin, range);
        self.judge(answer, |model| model.unmap(range));
    }

    fn protect(&mut self, pin: &Pinned, range: PageRange, prot: Prot) {
        let answer = self.world().space.protect(pin, range, prot);
        self.judge(answer, |model| model.protect(range, prot));
    }

    fn advise(&mut self, pin: &Pinned, range: PageRange, set: Flags, clear: Flags) {
        let answer = self.world().space.advise(pin, range, set, clear);
        self.judge(answer, |model| model.advise(range, set, clear));
    }

    fn discard(&mut self, pin: &Pinned, range: PageRange) {
        let answer = self.world().space.discard(pin, range);
        self.judge(answer, |model| model.discard(range));
        let mapped = self.world().space.mapped(pin, range);
        assert_eq!(mapped, self.model().is_mapped(range));
    }

    fn collapse(&mut self, pin: &Pinned, page: PageNum) {
        let block = PageNum::new(page.get() / HUGE_PAGES * HUGE_PAGES);
        let answer = self.world().space.collapse(pin, block);
        self.model().judge_collapse(range_of(block, HUGE_PAGES), answer);
    }

    /// Remaps. A move in pieces that fails half-way would lose what was at a fixed place, but none does here.
    fn remap(&mut self, pin: &Pinned, what: &Remap, most: Option<u64>) {
        let may_fail = self.short && matches!(what.to, Placement::Fixed(_));
        let answer = match most.filter(|_| !may_fail) {
            Some(most) => self.world().remap_in_pieces(pin, what, most, || ()),
            None => self.world().remap(pin, what),
        };
        if !self.short || answer != Err(VmError::OutOfMemory) {
            self.model().remap(what, answer);
        }
    }

    fn extend(&mut self, pin: &Pinned, range: PageRange, more: u64) {
        let answer = self.world().space.extend(pin, range, more);
        self.judge(answer, |model| model.extend(range, more));
    }

    fn fork(&mut self, pin: &Pinned, forks: Forks) {
        if self.spaces.len() == SPACES {
            return;
        }
        match self.world().fork_as(pin, forks) {
            Ok(child) => {
                let model = self.model().fork();
                self.spaces.push((child, model));
                self.at = self.spaces.len() - 1;
            }
            Err(error) => assert!(self.short && error == VmError::OutOfMemory, "{error:?}"),
        }
    }

    fn end(&mut self) {
        if self.spaces.len() > 1 {
            let (world, _) = self.spaces.remove(self.at);
            self.at = 0;
            self.filled += filled(&world);
            self.shot += shot(&world);
            world.end();
        }
    }

    /// Truncates as a kernel does: the length, then the mappings that show the pages, then the pages.
    fn truncate(&mut self, pin: &Pinned, file: usize, len: u64) {
        let machine = self.world().machine.clone();
        self.disk.set_len(file, len);
        machine.files.set_len(file, len);
        for (world, model) in &mut self.spaces {
            world.zap(pin, self.user, file, len, Copies::Drop);
            model.zap(file, len);
        }
        machine.files.drop_beyond(pin, &machine.frames, file);
    }

    fn load(&mut self, pin: &Pinned, page: PageNum, word: usize) {
        let answer = self.world().load(pin, page, word);
        self.judge(answer, |model| model.load(page, word));
    }

    fn store(&mut self, pin: &Pinned, page: PageNum, word: usize, value: u64) {
        let answer = self.world().store(pin, page, word, value);
        self.judge(answer, |model| model.store(page, word, value));
    }

    fn outside(&mut self, pin: &Pinned, page: PageNum) {
        let answer = self.world().fault(pin, page, Access::Read).map(|_| ());
        self.judge(answer, |model| model.load(page, 0).map(|_| ()));
    }

    /// The model does what the space did, and must answer the same. Out of memory: nothing was done.
    fn judge<T: PartialEq + std::fmt::Debug, E: Answer>(
        &mut self,
        answer: Result<T, E>,
        ask: impl FnOnce(&mut Model) -> Result<T, E>,
    ) {
        if !self.short || answer.as_ref().err() != Some(&E::OUT_OF_MEMORY) {
            assert_eq!(answer, ask(self.model()));
        }
    }

    /// Offsets go round: so a step can name any page that there is a number for.
    fn page(&self, offset: u64) -> PageNum {
        PageNum::new(self.user.start().get().wrapping_add(offset))
    }

    fn range(&self, target: Target) -> PageRange {
        range_of(self.page(target.offset), target.pages)
    }

    fn place(&self, place: StepPlacement) -> Placement {
        match place {
            StepPlacement::Anywhere => Placement::Anywhere { hint: None },
            StepPlacement::Hint(at) => Placement::Anywhere { hint: Some(self.page(at)) },
            StepPlacement::Fixed(at) => Placement::Fixed(self.page(at)),
            StepPlacement::NoReplace(at) => Placement::FixedNoReplace(self.page(at)),
            StepPlacement::Below(at) => Placement::Below(self.page(at)),
        }
    }
}

/// `pages` pages from `start`, or up to the last number.
fn range_of(start: PageNum, pages: u64) -> PageRange {
    PageRange::between(start, PageNum::new(start.get().saturating_add(pages)))
}

/// Errors one of which says that memory ran out.
trait Answer: PartialEq + std::fmt::Debug {
    const OUT_OF_MEMORY: Self;
}

impl Answer for VmError {
    const OUT_OF_MEMORY: Self = VmError::OutOfMemory;
}

impl Answer for FaultError {
    const OUT_OF_MEMORY: Self = FaultError::OutOfMemory;
}
