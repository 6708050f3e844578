//! Address spaces and which one each core runs.
//!
//! The design of a space, and of its page tables, is chosen in [`new`] and nowhere else.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::ptr;

use abi::Errno;
use abi::config::{Design, Tables};
use percore::Pinned;
use radixmap::NodeCounters;
use sync::{SetOnce, SpinLock};
use vm::{
    AddressSpace, ForkBacking, FrameNum, FrameRun, Layout, Mmu, Others, PageNum, PageRange, RadixSpace,
};
use vm_trees::{Locking, TreeSpace};

use super::machine_memory::MachineMemory;
use super::owner::Owner;
use super::owners;
use super::refcache_arc::RefcacheArc;
use super::remains::{self, Remains};
use super::statistics;
use super::user::USER_END;
use super::{Scheduler, epoch, fallible, file_mapping};
use crate::above::Above;
use crate::arch::per_core::all_cores;
use crate::arch::{self, AdaptiveTables, PerCoreTables, SharedTable, SpaceTables};
use crate::counters::{self, Counter};
use crate::options;

const PAGE: u64 = 4096;
/// Addresses below stay unmapped, so that a null pointer's fields fault.
pub const LOWEST: u64 = 64 << 10;
/// The range for mappings without a fixed address: whole parts of 512 GiB, without the first (programs) and
/// the last (interpreters).
const ANYWHERE: (u64, u64) = (1 << 39, 255 << 39);

/// An address space together with its page tables. Derefs to [`AddressSpace`].
pub struct SpaceHandle {
    /// The space, which it has until it is dropped.
    space: Option<Box<dyn AddressSpace>>,
    tables: Arc<dyn SpaceTables>,
    nodes: Arc<NodeCounters>,
    name: SetOnce<Name>,
    /// The place for its remains.
    remains: Option<Box<MaybeUninit<DeadSpace>>>,
}

/// Names a space without keeping it. Copies are counted by Refcache, so that cores that make them share no
/// line.
pub type Name = RefcacheArc<Weak<SpaceHandle>>;

impl Deref for SpaceHandle {
    type Target = dyn AddressSpace;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        match &self.space {
            Some(space) => &**space,
            None => unreachable!("a space is there as long as its handle"),
        }
    }
}

impl SpaceHandle {
    /// Returns a name by which the space can be found as long as it exists.
    pub fn name(&self) -> Name {
        self.name.get().expect("a space has a name").clone()
    }

    /// Returns the number of frames in its page tables. Exact while no core runs the space.
    pub fn table_pages(&self) -> u64 {
        self.tables.table_pages()
    }

    /// Returns whether the one page table of the space counts a read of `frame` in its entry of `page`
    /// (`read_refs=lodic-paper`).
    pub fn counts_read(&self, page: PageNum, frame: FrameNum) -> bool {
        self.tables.counts_read(page, frame)
    }

    /// Calls `visit` with every frame of the pages, the page tables and the radix map. Called after
    /// [`settle`].
    pub fn each_frame(&self, visit: &mut dyn FnMut(u64, Owner)) {
        let pin = percore::pin();
        self.tables.each_frame(&mut |table| visit(table, Owner::TABLE));
        let mut rest = user_pages();
        while !rest.is_empty() {
            rest = self.frames_of(rest, &mut |run| {
                run.frames().for_each(|frame| visit(frame.get(), Owner::FRAME));
            });
        }
        let mut node = |at| visit(arch::virt_to_phys(at as *const u8) / PAGE, Owner::NODE);
        self.each_node_frame(&pin, &mut node);
    }

    /// Shows the frames of the first part of `pages` to `visit`, in a bounded number of steps, and returns
    /// the rest.
    pub fn frames_of(&self, pages: PageRange, visit: &mut dyn FnMut(FrameRun)) -> PageRange {
        PageRange::between(self.frames(&percore::pin(), pages, visit), pages.end())
    }

    /// Frees this core's own tables.
    fn drop_mine(&self, pin: &Pinned) {
        self.tables.drop_mine(pin);
        self.tables_dropped(pin);
    }

    /// Returns the objects that make up the space, and their addresses.
    pub fn objects(&self) -> [(&'static str, owners::Range); 3] {
        [
            ("space", arch::place_of(&**self)),
            ("tables", arch::place_of(&*self.tables)),
            ("space", arch::place_of(self)),
        ]
    }

    /// Returns the counts of radix nodes made and freed, by core.
    pub fn nodes(&self) -> &NodeCounters {
        &self.nodes
    }
}

/// The space that a core runs, or ran last.
struct Here {
    /// It keeps the place of the space, so that no other space can be mistaken for it, and no other memory.
    space: Weak<SpaceHandle>,
    /// Set if its tables are loaded. Then a task of the space is seated here, or about to be, and keeps
    /// the space.
    is_loaded: bool,
}

all_cores! {
    /// The space of each core. Only the core itself accesses it, except for [`settle`]. A core that sleeps
    /// and wakes for the same space writes here, and not to the space's refcount.
    static HERE: SpinLock<Here> = SpinLock::new(Here { space: Weak::new(), is_loaded: false });
}

fn pages(start: u64, end: u64) -> PageRange {
    PageRange::between(PageNum::new(start / PAGE), PageNum::new(end / PAGE))
}

/// Returns all pages that a program may map.
pub fn user_pages() -> PageRange {
    pages(LOWEST, USER_END)
}

fn layout(is_random: bool) -> Layout {
    Layout {
        cores: arch::cores(),
        user: user_pages(),
        anywhere: pages(ANYWHERE.0, ANYWHERE.1),
        seed: if is_random && !options::get().norandmaps { arch::random_u64() } else { 0 },
    }
}

/// Creates an empty address space, whose mappings are at random places if it `is_random`. Returns `None`
/// without memory.
pub fn new(is_random: bool) -> Option<Arc<SpaceHandle>> {
    let pin = percore::pin();
    let locking = match (options::get().design, options::get().tables) {
        (Design::Radix, Tables::Percore) => {
            return radix(&pin, is_random, fallible::arc(PerCoreTables::new()?).ok()?);
        }
        (Design::Radix, Tables::Shared) => {
            return radix(&pin, is_random, fallible::arc(SharedTable::new(&pin)?).ok()?);
        }
        (Design::Radix, Tables::Adaptive) => {
            return radix(&pin, is_random, fallible::arc(AdaptiveTables::new()?).ok()?);
        }
        (Design::Rwlock, _) => Locking::RwLock,
        (Design::Faultlock, _) => Locking::FaultLock,
        (Design::Hybrid, _) => Locking::Hybrid,
        (Design::Bonsai, _) => Locking::Bonsai,
        (Design::Pervma, _) => Locking::PerVma,
    };
    tree(&pin, locking, is_random, fallible::arc(SharedTable::new(&pin)?).ok()?)
}

/// Creates a copy of `parent`, page for page, that changes independently, as of one moment.
///
/// # Errors
/// ENOMEM.
pub fn fork(parent: &SpaceHandle, is_random: bool) -> Result<Arc<SpaceHandle>, Errno> {
    let (child, pin) = (new(is_random).ok_or(Errno::ENOMEM)?, percore::pin());
    let fork_backing: &mut ForkBacking<'_> = &mut |backing| file_mapping::inherited(&pin, backing, &child);
    parent.fork(&pin, &**child, fork_backing).map_err(|_| Errno::ENOMEM)?;
    Ok(child)
}

/// Does the same in pieces, during which `others` may run. The record that the child has for a mapping is
/// kept for the next piece, which may show it too.
///
/// # Errors
/// ENOMEM. EINTR if the caller is killed meanwhile.
pub fn fork_in_pieces(
    parent: &SpaceHandle,
    is_random: bool,
    others: Others,
) -> Result<Arc<SpaceHandle>, Errno> {
    let child = new(is_random).ok_or(Errno::ENOMEM)?;
    let (mut from, mut last) = (Some(PageNum::new(LOWEST / PAGE)), None);
    while let Some(at) = from {
        let fork_backing: &mut ForkBacking<'_> =
            &mut |backing| file_mapping::inherited_again(&mut last, backing, &child);
        let next = parent.fork_piece(&percore::pin(), &**child, at, others, fork_backing);
        from = next.map_err(|_| Errno::ENOMEM)?;
        if from.is_some() && !Above::pause() {
            return Err(Errno::EINTR);
        }
    }
    Ok(child)
}

fn radix<T: Mmu + SpaceTables + 'static>(
    pin: &Pinned,
    is_random: bool,
    tables: Arc<T>,
) -> Option<Arc<SpaceHandle>> {
    let (nodes, mmu) = (nodes()?, tables.clone());
    let domain = epoch::domain();
    let space = RadixSpace::with_counters(pin, domain, nodes.clone(), mmu, MachineMemory, layout(is_random));
    handle(pin, fallible::boxed(space.ok()?).ok()?, tables, nodes)
}

fn tree(
    pin: &Pinned,
    locking: Locking,
    is_random: bool,
    tables: Arc<SharedTable>,
) -> Option<Arc<SpaceHandle>> {
    let (nodes, mmu) = (nodes()?, tables.clone());
    let domains = (epoch::domain(), epoch::rcu());
    let space = TreeSpace::new(pin, locking, domains, nodes.clone(), mmu, MachineMemory, layout(is_random));
    handle(pin, fallible::boxed(space.ok()?).ok()?, tables, nodes)
}

fn nodes() -> Option<Arc<NodeCounters>> {
    fallible::arc(NodeCounters::try_new(arch::cores())?).ok()
}

fn handle(
    pin: &Pinned,
    space: Box<dyn AddressSpace>,
    tables: Arc<dyn SpaceTables>,
    nodes: Arc<NodeCounters>,
) -> Option<Arc<SpaceHandle>> {
    let (space, remains) = (Some(space), Some(fallible::boxed(MaybeUninit::uninit()).ok()?));
    // Subtracted again when the handle's remains are freed, also if there is no memory for the handle.
    counters::add(pin, Counter::Spaces, 1);
    let handle = fallible::arc(SpaceHandle { space, tables, nodes, name: SetOnce::new(), remains }).ok()?;
    handle.name.set(Name::new(Arc::downgrade(&handle)).ok()?);
    Some(handle)
}

impl Drop for SpaceHandle {
    /// Takes a few steps only, wherever it runs. The core comes online because refcounts change: an idle core
    /// may drop the last reference.
    fn drop(&mut self) {
        Above::come_online();
        if let (Some(space), Some(place)) = (self.space.take(), self.remains.take()) {
            let (tables, nodes) = (self.tables.clone(), self.nodes.clone());
            let dead = DeadSpace { space: Some(space), tables, nodes, rest: user_pages(), next: None };
            remains::leave(place, dead);
        }
    }
}

/// A space that is being freed in pieces.
struct DeadSpace {
    /// `None` if it is freed, and its tables follow.
    space: Option<Box<dyn AddressSpace>>,
    tables: Arc<dyn SpaceTables>,
    nodes: Arc<NodeCounters>,
    /// The range that may still be mapped.
    rest: PageRange,
    next: Option<Box<dyn Remains>>,
}

impl Remains for DeadSpace {
    fn free_piece(&mut self, pin: &Pinned) -> bool {
        if let Some(space) = &mut self.space {
            self.rest = space.dismantle(pin, self.rest);
            if !self.rest.is_empty() {
                return true;
            }
            statistics::keep(pin, space.counters(), self.nodes.total().created);
            self.space = None;
        }
        // Only the space also had a reference to the tables.
        Arc::get_mut(&mut self.tables).is_some_and(|tables| tables.free_piece(pin))
    }

    fn next(&mut self) -> &mut Option<Box<dyn Remains>> {
        &mut self.next
    }
}

impl Drop for DeadSpace {
    fn drop(&mut self) {
        counters::add(&percore::pin(), Counter::Spaces, -1);
    }
}

/// Loads the tables of `space`, if they are not loaded. Interrupts are off, the tables of no other space are
/// loaded, and a task of the space is seated on this core until it is [`deactivate`]d.
pub fn activate(space: &Arc<SpaceHandle>) {
    let pin = percore::pin();
    let mut here = HERE.mine(&pin).lock();
    if !ptr::eq(here.space.as_ptr(), Arc::as_ptr(space)) {
        assert!(!here.is_loaded, "two spaces on one core");
        here.space = Arc::downgrade(space);
    }
    if !here.is_loaded {
        space.tables.enter(&pin);
        here.is_loaded = true;
    }
}

/// Unloads the tables of `space` from this core, because the task seated here leaves, or the space is about
/// to go.
pub fn deactivate(space: &SpaceHandle) {
    let pin = percore::pin();
    let _off = arch::interrupts::off();
    let mut here = HERE.mine(&pin).lock();
    if here.is_loaded && ptr::eq(here.space.as_ptr(), space) {
        space.tables.leave(&pin);
        here.is_loaded = false;
    }
}

/// Unloads the tables of a space whose program is gone, and which no other core runs any more. From here on
/// the tables stay as they are until they are read, and freed with the space.
pub fn settle(space: &SpaceHandle) {
    deactivate(space);
    HERE.first(arch::cores()).for_each(|here| here.lock().space = Weak::new());
}

/// Unmaps everything in `space`, whose program is gone.
pub fn retire(space: &SpaceHandle) {
    settle(space);
    space.destroy(&percore::pin());
}

/// Frees this core's own tables of the space that it ran before it went idle, because memory is short. If
/// `desperate`, it also frees those of the space that it runs.
pub fn drop_my_tables(desperate: bool) {
    let pin = percore::pin();
    // Locked until the tables are gone: see `settle`.
    let here = HERE.mine(&pin).lock();
    if (desperate || !here.is_loaded)
        && let Some(space) = here.space.upgrade()
    {
        space.drop_mine(&pin);
    }
}
