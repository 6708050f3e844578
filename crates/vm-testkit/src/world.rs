//! A space on a machine, and programs on its cores.

use std::ops::Deref;
use std::sync::Arc;

use percore::Pinned;
use vm::{
    Access, AddressSpace, BackingError, BackingNum, Backings, Event, FaultError, FrameNum, Frames, Layout,
    Mmu, NodeCounters, PAGE_SIZE, PageNum, PageRange, RadixSpace, Tables, VirtAddr,
};

use crate::{FrameStore, Machine, Model, SimMmu, WORDS};

/// What kind of world a test wants.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Cores of the machine.
    pub cores: usize,
    /// Its memory.
    pub frames: usize,
    /// What may be mapped.
    pub user: PageRange,
}

impl Setup {
    /// 4 cores, 4096 frames, 47 bits of addresses.
    pub fn new() -> Self {
        Self { cores: 4, frames: 4096, user: PageRange::between(PageNum::new(16), PageNum::new(1 << 35)) }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

/// One address space on a machine of its own.
pub struct World {
    /// What it runs on.
    pub machine: Arc<Machine>,
    /// Its translations.
    pub mmu: Arc<SimMmu>,
    /// It.
    pub space: Kept,
    nodes: Arc<NodeCounters>,
}

/// A space that only [`World::finish`] drops: dropping one takes a core in order, which a test that has
/// failed may not have.
pub struct Kept {
    space: Option<Box<dyn AddressSpace>>,
    machine: Arc<Machine>,
}

impl Deref for Kept {
    type Target = dyn AddressSpace;
    fn deref(&self) -> &Self::Target {
        self.space.as_deref().expect("the space is there until its world ends")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(space) = self.space.take() {
            std::mem::forget(space);
            self.machine.give_up();
        }
    }
}

/// Runs `test` on every design with every kind of tables, each in a new world.
pub fn for_each_design(setup: Setup, test: impl Fn(World)) {
    for tables in [Tables::PerCore, Tables::Shared] {
        test(World::radix(setup, tables));
    }
}

/// The machine's memory and files, for a space that keeps the machine.
struct Memory(Arc<Machine>);

impl Frames for Memory {
    fn alloc_zeroed(&self, pin: &Pinned) -> Option<FrameNum> {
        self.0.frames.alloc_zeroed(pin)
    }
    fn alloc_copy(&self, pin: &Pinned, from: FrameNum) -> Option<FrameNum> {
        self.0.frames.alloc_copy(pin, from)
    }
    fn free(&self, pin: &Pinned, frame: FrameNum) {
        self.0.frames.free(pin, frame);
    }
    fn share(&self, pin: &Pinned, frame: FrameNum) {
        self.0.frames.share(pin, frame);
    }
    fn adjust(&self, pin: &Pinned, frame: FrameNum, by: i64) {
        self.0.frames.adjust(pin, frame, by);
    }
    fn unshare(&self, pin: &Pinned, frame: FrameNum) -> bool {
        self.0.frames.unshare(pin, frame)
    }
}

impl Backings for Memory {
    fn placed(&self, _: &Pinned, backing: BackingNum, start: PageNum) {
        self.0.files.place(backing, start);
    }
    fn grown(&self, _: &Pinned, _: BackingNum, _: PageNum) {}
    fn frame(
        &self,
        pin: &Pinned,
        backing: BackingNum,
        page: PageNum,
        _: Access,
    ) -> Result<FrameNum, BackingError> {
        self.0.files.frame(pin, &self.0.frames, backing, page)
    }
    fn adjust(&self, _: &Pinned, backing: BackingNum, pages: i64) {
        self.0.files.adjust(backing, pages);
    }
}

impl World {
    /// A [`RadixSpace`] with `tables`, run by every core.
    pub fn radix(setup: Setup, tables: Tables) -> Self {
        let machine = Machine::new(setup.cores, setup.frames);
        let mmu = Arc::new(SimMmu::new(&machine, tables));
        machine.on_each(|pin| mmu.activate(pin));
        let nodes = Arc::new(NodeCounters::new(setup.cores));
        let layout = Layout { cores: setup.cores, user: setup.user, anywhere: setup.user };
        let space = machine.on(0, |pin| {
            let (domain, memory) = (machine.refcache.clone(), Memory(machine.clone()));
            RadixSpace::with_counters(pin, domain, nodes.clone(), mmu.clone(), memory, layout)
        });
        let space =
            Kept { space: Some(Box::new(space.expect("memory for a root"))), machine: machine.clone() };
        Self { machine, mmu, space, nodes }
    }

    /// Memory of the machine.
    pub fn frames(&self) -> &FrameStore {
        &self.machine.frames
    }

    /// Whether all cores share one table.
    pub fn is_shared(&self) -> bool {
        self.mmu.tables() == Tables::Shared
    }

    /// How often `event` happened.
    pub fn count(&self, event: Event) -> u64 {
        self.space.counters()[event]
    }

    /// A program on this core reads a word.
    pub fn load(&self, pin: &Pinned, page: PageNum, word: usize) -> Result<u64, FaultError> {
        self.reach(pin, page, Access::Read).map(|frame| self.frames().read(frame, word))
    }

    /// A program on this core writes a word.
    pub fn store(&self, pin: &Pinned, page: PageNum, word: usize, value: u64) -> Result<(), FaultError> {
        self.reach(pin, page, Access::Write).map(|frame| self.frames().write(frame, word, value))
    }

    /// A program on this core does `access`: the frame it reaches, after the faults it takes.
    pub fn reach(&self, pin: &Pinned, page: PageNum, access: Access) -> Result<FrameNum, FaultError> {
        loop {
            if let Some(frame) = self.mmu.translate(pin, page, access) {
                return Ok(frame);
            }
            let address = VirtAddr::new(page.get() * PAGE_SIZE);
            self.space.fault(pin, address, access)?;
        }
    }

    /// Judges every translation that any core could use by what `model` says.
    pub fn audit(&self, model: &Model) {
        for (core, page, found) in self.mmu.translations() {
            let contents: [u64; WORDS] = self.frames().contents(found.frame);
            model.judge_translation(core, page, found.prot, contents);
        }
    }

    /// Ends the world; nobody attends a core. Everything that was ever taken must be back.
    pub fn finish(self) {
        let Self { machine, mmu, mut space, nodes } = self;
        machine.on(0, |_| drop(space.space.take()));
        assert_eq!(machine.frames.used(), 0, "frames are lost");
        assert_eq!(mmu.translations(), [], "translations outlive their space");
        machine.settle();
        assert_eq!(nodes.total().live(), 0, "nodes are lost");
        assert_eq!(machine.refcache.garbage(), 0);
    }
}
