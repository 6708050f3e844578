//! A space on a machine, and programs on its cores.

use std::ops::Deref;
use std::sync::Arc;

use percore::Pinned;
use vm::{
    Access, AddressSpace, Event, Fault, FaultError, FrameNum, Layout, Mmu, NodeCounters, PageNum, PageRange,
    RadixSpace, Region, Tables, Usage,
};
use vm_trees::{Locking, TreeSpace};

use crate::memory::Memory;
use crate::{FrameStore, Machine, Model, SimMmu, Translation, WORDS};

/// The kind of world that a test wants.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Cores of the machine.
    pub cores: usize,
    /// Its memory.
    pub frames: usize,
    /// The pages that may be mapped.
    pub user: PageRange,
    /// The seed of the places where the arenas begin.
    pub seed: u64,
}

impl Setup {
    /// 4 cores, 4096 frames, 47 bits of addresses.
    pub fn new() -> Self {
        Self {
            cores: 4,
            frames: 4096,
            user: PageRange::between(PageNum::new(16), PageNum::new(1 << 35)),
            seed: 1,
        }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

/// One address space on a machine of its own.
pub struct World {
    /// The machine that it runs on.
    pub machine: Arc<Machine>,
    /// Its translations.
    pub mmu: Arc<SimMmu>,
    /// It.
    pub space: Kept,
    nodes: Arc<NodeCounters>,
    layout: Layout,
    design: Design,
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
        let lost = self.space.take();
        self.machine.end_space(lost.is_some());
        std::mem::forget(lost);
    }
}

/// Every kind of tables.
pub const ALL_TABLES: [Tables; 3] = [Tables::PerCore, Tables::Shared, Tables::Adaptive];

/// An address space's design, and its kind of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// [`RadixSpace`].
    Radix(Tables),
    /// [`TreeSpace`], with one table.
    Tree(Locking),
}

impl Design {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Radix(Tables::PerCore),
        Self::Radix(Tables::Shared),
        Self::Radix(Tables::Adaptive),
        Self::Tree(Locking::RwLock),
        Self::Tree(Locking::FaultLock),
        Self::Tree(Locking::Hybrid),
        Self::Tree(Locking::Bonsai),
        Self::Tree(Locking::PerVma),
    ];

    fn tables(self) -> Tables {
        match self {
            Self::Radix(tables) => tables,
            Self::Tree(_) => Tables::Shared,
        }
    }
}

/// Runs `test` on every design with every kind of tables, each in a new world.
pub fn for_each_design(setup: Setup, test: impl Fn(World)) {
    Design::ALL.into_iter().for_each(|design| test(World::new(setup, design)));
}

impl World {
    /// Returns a [`RadixSpace`] with `tables`, run by every core.
    pub fn radix(setup: Setup, tables: Tables) -> Self {
        Self::new(setup, Design::Radix(tables))
    }

    /// Returns a space, run by every core.
    pub fn new(setup: Setup, design: Design) -> Self {
        let machine = Machine::new(setup.cores, setup.frames);
        let nodes = Arc::new(NodeCounters::new(setup.cores));
        let layout = Layout { cores: setup.cores, user: setup.user, anywhere: setup.user, seed: setup.seed };
        machine.on(0, |pin| Self::on(pin, machine.clone(), nodes, layout, design)).expect("memory for a root")
    }

    fn on(
        pin: &Pinned,
        machine: Arc<Machine>,
        nodes: Arc<NodeCounters>,
        layout: Layout,
        design: Design,
    ) -> Option<Self> {
        let mmu = Arc::new(SimMmu::new(&machine, design.tables()));
        let (domain, memory) = (machine.refcache.clone(), Memory(machine.clone()));
        let (counters, translations) = (nodes.clone(), mmu.clone());
        let space: Box<dyn AddressSpace> = match design {
            Design::Radix(_) => {
                Box::new(RadixSpace::with_counters(pin, domain, counters, translations, memory, layout).ok()?)
            }
            Design::Tree(locking) => {
                let domains = (domain, machine.rcu.clone());
                Box::new(TreeSpace::new(pin, locking, domains, counters, translations, memory, layout).ok()?)
            }
        };
        machine.begin_space();
        let space = Kept { space: Some(space), machine: machine.clone() };
        Some(Self { machine, mmu, space, nodes, layout, design })
    }

    /// Returns another empty space on the same machine, or none if there is no memory for it.
    pub fn sibling(&self, pin: &Pinned) -> Option<Self> {
        Self::on(pin, self.machine.clone(), self.nodes.clone(), self.layout, self.design)
    }

    /// No core runs the space any more: takes what is mapped away piece by piece. How many pages the pieces
    /// have.
    pub fn dismantle(&mut self, pin: &Pinned) -> Vec<u64> {
        self.mmu.retire();
        let Some(space) = &mut self.space.space else { return Vec::new() };
        let (mut rest, mut pieces) = (self.layout.user, Vec::new());
        while !rest.is_empty() {
            let next = space.dismantle(pin, rest);
            assert!(next.start() > rest.start() && next.end() == rest.end(), "{rest:?}, then {next:?}");
            pieces.push(rest.pages() - next.pages());
            rest = next;
        }
        pieces
    }

    /// Ends the space, not the machine.
    pub fn end(mut self) {
        self.mmu.retire();
        drop(self.space.space.take());
    }

    /// Memory of the machine.
    pub fn frames(&self) -> &FrameStore {
        &self.machine.frames
    }

    /// Returns whether all cores share one table.
    pub fn is_shared(&self) -> bool {
        self.mmu.tables() == Tables::Shared
    }

    /// Returns whether a shootdown reaches none but cores that had one of the pages.
    pub(crate) fn is_exact(&self) -> bool {
        self.mmu.tables() == Tables::PerCore
    }

    /// This core's tables of the space are dropped: memory is short.
    pub fn drop_tables(&self, pin: &Pinned) {
        self.mmu.drop_mine(pin);
        self.space.tables_dropped(pin);
    }

    /// How often `event` happened.
    pub fn count(&self, event: Event) -> u64 {
        self.space.counters()[event]
    }

    /// Reads a word as a program on this core.
    pub fn load(&self, pin: &Pinned, page: PageNum, word: usize) -> Result<u64, FaultError> {
        self.reach(pin, page, Access::Read).map(|frame| self.frames().read(frame, word))
    }

    /// Writes a word as a program on this core.
    pub fn store(&self, pin: &Pinned, page: PageNum, word: usize, value: u64) -> Result<(), FaultError> {
        self.reach(pin, page, Access::Write).map(|frame| self.frames().write(frame, word, value))
    }

    /// Does `access` as a program on this core, and returns the frame it reaches, after the faults it takes.
    pub fn reach(&self, pin: &Pinned, page: PageNum, access: Access) -> Result<FrameNum, FaultError> {
        self.mmu.enter(pin);
        loop {
            if let Some(frame) = self.mmu.translate(pin, &*self.space, page, access) {
                return Ok(frame);
            }
            self.fault(pin, page, access)?;
        }
    }

    /// Faults so that `access` is possible, for a process on this core that need not run the space.
    pub fn fault(&self, pin: &Pinned, page: PageNum, access: Access) -> Result<Fault, FaultError> {
        let address = page.address().ok_or(FaultError::NotMapped)?;
        self.space.fault(pin, address, access)
    }

    /// Judges every translation that any core could use by what `model` says.
    pub fn audit(&self, model: &Model) {
        for (core, page, found) in self.translations() {
            let contents: [u64; WORDS] = self.frames().contents(found.frame);
            let counted = self.frames().is_counted(found.frame);
            model.judge_translation(core, page, found.prot, counted, contents);
        }
    }

    /// Judges the number of pages that the space tells by those that a walk finds. While nothing happens.
    pub fn audit_usage(&self, pin: &Pinned) {
        let mut found = Usage::default();
        for Region { pages, resident, .. } in self.regions(pin, self.layout.user) {
            found.mapped += pages.pages();
            found.own += resident.alone + resident.counted;
            found.shown += resident.shown;
        }
        assert_eq!(self.space.usage(), found, "counted, and found by a walk");
    }

    /// Every translation that any core could use: core, page, what it says. While nothing happens.
    pub fn translations(&self) -> Vec<(usize, PageNum, Translation)> {
        let mut all = self.mmu.translations();
        self.machine.on(0, |pin| {
            let mut resident = Vec::new();
            let _holes = self.space.resident(pin, self.layout.user, &mut |run| resident.extend(run.iter()));
            for page in resident {
                let found = self.mmu.through_leaf(pin, &*self.space, page);
                all.extend(found.into_iter().map(|(core, found)| (core, page, found)));
            }
        });
        all
    }

    /// Ends the world, all other spaces of which have ended. No thread may attend a core. All pages must be
    /// counted, and everything that was ever taken must be back.
    pub fn finish(self) {
        let (machine, nodes) = (self.machine.clone(), self.nodes.clone());
        machine.on(0, |pin| {
            // A core that is offline enters no map.
            if machine.refcache.is_online(pin) {
                self.audit_usage(pin);
            }
            self.end();
            assert_eq!(machine.files.references(), 0, "backings are lost");
            machine.files.clear(pin, &machine.frames);
        });
        assert_eq!(machine.frames.used(), 0, "frames are lost");
        assert_eq!(machine.frames.compressed(), 0, "compressed contents are lost");
        machine.settle();
        assert_eq!(nodes.total().live(), 0, "nodes are lost");
        assert_eq!(machine.refcache.garbage(), 0);
        assert_eq!(machine.rcu.backlog(), 0);
    }
}
