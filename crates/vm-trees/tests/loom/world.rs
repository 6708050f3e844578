//! A space with a tree of regions, and two cores that use it.

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;

use loom::thread;
use percore::threads::{self, ThreadCore};
use percore::{CoreId, Pinned};
use rcu::Domain;
use refcache::Refcache;
use vm::{
    Access, AddressSpace, Fault, FaultError, FrameNum, Mapping, PageNum, Placement, Prot, Remap, Tables,
};
use vm_trees::{Locking, TreeSpace};

use crate::check;
use crate::domains::{self, as_core, layout, pages};
use crate::machine::{CORES, Machine, PAGES};
use crate::memory::Memory;

type Space = TreeSpace<Arc<Refcache>, Arc<Domain>, Machine, Memory>;

pub struct World {
    /// A failing model forgets it: its drop would run outside of the model.
    space: ManuallyDrop<Space>,
    machine: Machine,
    memory: Memory,
    domains: Domains,
}

/// The domains of objects that wait for their last users.
struct Domains {
    /// Of the nodes of the resident pages.
    nodes: domains::Domains,
    /// Of the regions and the nodes of their tree.
    rcu: Arc<Domain>,
}

/// A core, while a thread plays it.
pub struct Core<'w> {
    world: &'w World,
    pin: Pinned,
    _part: ThreadCore,
}

impl Domains {
    /// With both cores online.
    fn new() -> Self {
        let nodes = domains::Domains::new();
        let rcu = Arc::new(Domain::new(rcu::Config { cores: CORES, batch: 8, bound: 100 }));
        (0..CORES).for_each(|core| as_core(core, |pin| rcu.online(pin)));
        Self { nodes, rcu }
    }

    /// Both cores do what is due every now and then.
    fn tick_all(&self) {
        self.nodes.tick_all();
        (0..CORES).for_each(|core| as_core(core, |pin| _ = self.rcu.quiesce(pin)));
    }

    /// Once both have done so for every level of nodes, from the lowest, nothing is left of a space that is
    /// gone.
    fn assert_empty(&self) {
        (0..16).for_each(|_| self.tick_all());
        assert_eq!(self.rcu.backlog(), 0, "a region never comes back");
        self.nodes.assert_empty();
    }
}

impl World {
    fn new(locking: Locking) -> Self {
        let (machine, memory, domains) = (Machine::new(Tables::Shared), Memory::default(), Domains::new());
        let handles = (domains.nodes.refcache.clone(), domains.rcu.clone());
        let nodes = domains.nodes.nodes.clone();
        let (mmu, frames) = (machine.clone(), memory.clone());
        let make = |pin: &Pinned| Space::new(pin, locking, handles, nodes, mmu, frames, layout());
        Self { space: ManuallyDrop::new(as_core(0, make).unwrap()), machine, memory, domains }
    }

    /// This thread plays `core`, until the answer is dropped.
    pub fn core(&self, core: usize) -> Core<'_> {
        let part = threads::enter(CoreId::new(core));
        Core { world: self, pin: percore::pin(), _part: part }
    }

    /// Both cores do what is due every now and then.
    pub fn tick_all(&self) {
        self.domains.tick_all();
    }

    /// Ends the world, without cores: each frame is at one page, whose translations are right, and all memory
    /// comes back.
    fn end(self) {
        let frame = |page| self.core(0).frame(PageNum::new(page));
        assert_eq!(self.memory.frames_in_use(), (0..PAGES).filter_map(frame).count(), "a frame was lost");
        let Self { space, memory, domains, .. } = self;
        as_core(0, |_| drop(ManuallyDrop::into_inner(space)));
        assert!(memory.is_unused());
        domains.assert_empty();
    }
}

impl Core<'_> {
    pub fn map(&self, at: Range<u64>, prot: Prot) {
        let at = pages(at);
        let place = Placement::Fixed(at.start());
        self.world.space.map(&self.pin, place, at.pages(), Mapping::anonymous(prot)).unwrap();
    }

    pub fn unmap(&self, at: Range<u64>) {
        self.world.space.unmap(&self.pin, pages(at)).unwrap();
    }

    pub fn protect(&self, at: Range<u64>, prot: Prot) {
        self.world.space.protect(&self.pin, pages(at), prot).unwrap();
    }

    pub fn remap(&self, from: Range<u64>, to: u64) {
        let (from, to) = (pages(from), Placement::Fixed(PageNum::new(to)));
        let what = Remap { from, pages: from.pages(), to, keep: false };
        self.world.space.remap(&self.pin, &what, &mut |backing, _, _| Some(backing)).unwrap();
    }

    pub fn fault(&self, page: u64, access: Access) -> Result<Fault, FaultError> {
        self.world.space.fault(&self.pin, PageNum::new(page).address().unwrap(), access)
    }

    /// Lets unused nodes of the resident pages proceed towards their end.
    pub fn tick(&self) {
        self.world.domains.nodes.refcache.tick(&self.pin);
    }

    /// Lets unused regions and nodes of their tree proceed towards their end.
    pub fn quiesce(&self) {
        self.world.domains.rcu.quiesce(&self.pin);
    }

    /// The frame of the page. Translations of it lead there, and allow no more than its region does.
    fn frame(&self, page: PageNum) -> Option<FrameNum> {
        let mut known = None;
        self.world.space.frame(&self.pin, page, Access::Read, &mut |frame| known = Some(frame));
        let Some((translated, rights)) = self.world.machine.translation(page) else { return known };
        assert_eq!(known, Some(translated), "{page:?} is translated to another frame");
        let mut allowed = Prot::NONE;
        self.world.space.look(&self.pin, page, &mut |mapping| allowed = mapping.prot());
        assert!(allowed.contains(rights), "{page:?} is translated with {rights:?} and has {allowed:?}");
        known
    }
}

/// Explores `one` on core 0 against `other` on core 1, after `before`, in a space of each kind, with at most
/// `preemptions` preemptions.
pub fn race(
    kinds: &[Locking],
    preemptions: usize,
    before: fn(&World),
    one: fn(&Core<'_>),
    other: fn(&Core<'_>),
) {
    for &locking in kinds {
        check(preemptions, move || {
            let world = Arc::new(World::new(locking));
            before(&world);
            let theirs = world.clone();
            let thread = thread::spawn(move || other(&theirs.core(1)));
            one(&world.core(0));
            thread.join().unwrap();
            let Some(world) = Arc::into_inner(world) else { panic!("both are done") };
            world.end();
        });
    }
}
