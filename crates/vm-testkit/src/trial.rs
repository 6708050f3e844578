//! A space and its model do the same steps, and every answer and every translation is compared.

use percore::Pinned;
use vm::{Event, FaultError, Mapping, PageNum, PageRange, Placement, Prot, Tables, VmError};

use crate::{Model, Setup, World};

/// One step of one core. Pages are counted from the start of user space.
#[derive(Clone, Debug)]
pub enum Step {
    /// Map so many pages.
    Map(Place, u64, Prot),
    /// Unmap.
    Unmap(Target),
    /// Change rights.
    Protect(Target, Prot),
    /// Drop contents.
    Discard(Target),
    /// Load a word of a page.
    Load(u64, usize),
    /// Store a word of a page.
    Store(u64, usize, u64),
    /// Let epochs pass.
    Tick,
    /// The core is idle from now on, or no longer.
    Idle(bool),
}

/// A [`Placement`].
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Anywhere, without a wish.
    Anywhere,
    /// Anywhere, best there.
    Hint(u64),
    /// There, over what is mapped.
    Fixed(u64),
    /// There, if nothing is mapped.
    NoReplace(u64),
    /// Anywhere before it.
    Below(u64),
}

/// Pages: may be none, may leave user space.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The first.
    pub offset: u64,
    /// How many.
    pub pages: u64,
}

/// A space and the model of it.
pub struct Trial {
    /// The space.
    pub world: World,
    /// Whether memory may run out now. If not, no answer may say that it did.
    pub short: bool,
    model: Model,
    user: PageRange,
}

impl Trial {
    /// Both are empty.
    pub fn new(setup: Setup, tables: Tables) -> Self {
        Self {
            world: World::radix(setup, tables),
            short: false,
            model: Model::new(setup.user),
            user: setup.user,
        }
    }

    /// Does `step` on `core`.
    ///
    /// # Panics
    /// If space and model disagree, or a core could use a stale translation afterwards.
    pub fn step(&mut self, core: usize, step: &Step) {
        let machine = self.world.machine.clone();
        machine.on(core, |pin| match *step {
            Step::Map(place, pages, prot) => self.map(pin, place, pages, prot),
            Step::Unmap(target) => self.unmap(pin, self.range(target)),
            Step::Protect(target, prot) => self.protect(pin, self.range(target), prot),
            Step::Discard(target) => self.discard(pin, self.range(target)),
            Step::Load(at, word) => self.load(pin, self.page(at), word),
            Step::Store(at, word, value) => self.store(pin, self.page(at), word, value),
            Step::Tick => _ = machine.refcache.tick(pin),
            Step::Idle(idle) => machine.set_idle(core, idle),
        });
        self.world.audit(&self.model);
    }

    /// Ends the trial: nothing is lost, and no core was shot at more often than it could have had a
    /// translation.
    pub fn finish(self) {
        let faults = self.world.count(Event::AllocFault) + self.world.count(Event::FillFault);
        let shot = self.world.count(Event::IpiTarget) + self.world.count(Event::AvoidedIpi);
        assert!(self.world.is_shared() || shot <= faults, "{shot} targets for {faults} filled translations");
        assert!(self.world.frames().used() <= self.model.len(), "more frames than pages");
        self.world.finish();
    }

    fn map(&mut self, pin: &Pinned, place: Place, pages: u64, prot: Prot) {
        let place = self.place(place);
        let answer = self.world.space.map(pin, place, pages, Mapping::anonymous(prot));
        if !self.short || answer != Err(VmError::OutOfMemory) {
            self.model.map(place, pages, prot, answer);
        }
    }

    fn unmap(&mut self, pin: &Pinned, range: PageRange) {
        let answer = self.world.space.unmap(pin, range);
        self.judge(answer, |model| model.unmap(range));
    }

    fn protect(&mut self, pin: &Pinned, range: PageRange, prot: Prot) {
        let answer = self.world.space.protect(pin, range, prot);
        self.judge(answer, |model| model.protect(range, prot));
    }

    fn discard(&mut self, pin: &Pinned, range: PageRange) {
        let answer = self.world.space.discard(pin, range);
        self.judge(answer, |model| model.discard(range));
        assert_eq!(self.world.space.mapped(pin, range), self.model.is_mapped(range));
    }

    fn load(&mut self, pin: &Pinned, page: PageNum, word: usize) {
        let answer = self.world.load(pin, page, word);
        self.judge(answer, |model| model.load(page, word));
    }

    fn store(&mut self, pin: &Pinned, page: PageNum, word: usize, value: u64) {
        let answer = self.world.store(pin, page, word, value);
        self.judge(answer, |model| model.store(page, word, value));
    }

    /// The model does what the space did, and must answer the same. Out of memory: nothing was done.
    fn judge<T: PartialEq + std::fmt::Debug, E: Answer>(
        &mut self,
        answer: Result<T, E>,
        ask: impl FnOnce(&mut Model) -> Result<T, E>,
    ) {
        if !self.short || answer.as_ref().err() != Some(&E::OUT_OF_MEMORY) {
            assert_eq!(answer, ask(&mut self.model));
        }
    }

    fn page(&self, offset: u64) -> PageNum {
        PageNum::new(self.user.start().get() + offset)
    }

    fn range(&self, target: Target) -> PageRange {
        PageRange::new(self.page(target.offset), target.pages).expect("a range of numbers")
    }

    fn place(&self, place: Place) -> Placement {
        match place {
            Place::Anywhere => Placement::Anywhere { hint: None },
            Place::Hint(at) => Placement::Anywhere { hint: Some(self.page(at)) },
            Place::Fixed(at) => Placement::Fixed(self.page(at)),
            Place::NoReplace(at) => Placement::FixedNoReplace(self.page(at)),
            Place::Below(at) => Placement::Below(self.page(at)),
        }
    }
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
