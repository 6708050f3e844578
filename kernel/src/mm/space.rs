//! Address spaces and which one each core runs.
//!
//! The design of a space, and of its page tables, is chosen in [`new`] and nowhere else.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::ops::Deref;

use percore::{MAX_CORES, Pinned};
use radixmap::NodeCounters;
use sync::{CachePadded, SpinLock};
use vm::{AddressSpace, Layout, Mmu, PageNum, PageRange, RadixSpace, Tables};

use super::epoch;
use super::machine_memory::MachineMemory;
use super::owner::Owner;
use super::owners;
use super::user::USER_END;
use crate::arch::{self, PerCoreTables, SharedTable, SpaceTables};

const PAGE: u64 = 4096;
/// Addresses below stay unmapped, so that a null pointer's fields fault.
pub const LOWEST: u64 = 64 << 10;
/// Where mappings go that may go anywhere: whole parts of 512 GiB, without the first (programs) and the last (stack).
const ANYWHERE: (u64, u64) = (1 << 39, 255 << 39);

/// An address space together with its page tables. Derefs to [`AddressSpace`].
pub struct SpaceHandle {
    space: Box<dyn AddressSpace>,
    tables: Arc<dyn SpaceTables>,
    nodes: Arc<NodeCounters>,
}

impl Deref for SpaceHandle {
    type Target = dyn AddressSpace;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &*self.space
    }
}

impl SpaceHandle {
    /// Frames in its page tables. Exact while no core runs the space.
    pub fn table_pages(&self) -> u64 {
        self.tables.table_pages()
    }

    /// Calls `visit` with every frame that the page tables hold or are made of. After [`settle`].
    pub fn each_frame(&self, visit: &mut dyn FnMut(u64, Owner)) {
        self.tables.each_frame(visit);
    }

    /// The objects that make up the space, and where they are.
    pub fn objects(&self) -> [(&'static str, owners::Range); 3] {
        [
            ("space", arch::place_of(&*self.space)),
            ("tables", arch::place_of(&*self.tables)),
            ("space", arch::place_of(self)),
        ]
    }

    /// Radix nodes made and freed, by core.
    pub fn nodes(&self) -> &NodeCounters {
        &self.nodes
    }
}

/// What each core runs.
static RUNNING: [CachePadded<SpinLock<Option<Arc<SpaceHandle>>>>; MAX_CORES] =
    [const { CachePadded::new(SpinLock::new(None)) }; MAX_CORES];
/// What each core ran before it went idle. It keeps its tables of that space.
static RAN: [CachePadded<SpinLock<Weak<SpaceHandle>>>; MAX_CORES] =
    [const { CachePadded::new(SpinLock::new(Weak::new())) }; MAX_CORES];
/// The space whose counters are shown: the last one made.
static SHOWN: SpinLock<Weak<SpaceHandle>> = SpinLock::new(Weak::new());

fn layout() -> Layout {
    let pages =
        |start: u64, end: u64| PageRange::between(PageNum::new(start / PAGE), PageNum::new(end / PAGE));
    Layout { cores: arch::cores(), user: pages(LOWEST, USER_END), anywhere: pages(ANYWHERE.0, ANYWHERE.1) }
}

/// An empty address space, unless memory is short.
pub fn new(tables: Tables) -> Option<Arc<SpaceHandle>> {
    let pin = percore::pin();
    let handle = match tables {
        Tables::PerCore => on(&pin, Arc::new(PerCoreTables::new())),
        Tables::Shared => on(&pin, Arc::new(SharedTable::new(&pin)?)),
    }?;
    *SHOWN.lock() = Arc::downgrade(&handle);
    Some(handle)
}

fn on<T: Mmu + SpaceTables + 'static>(pin: &Pinned, tables: Arc<T>) -> Option<Arc<SpaceHandle>> {
    let nodes = Arc::new(NodeCounters::new(arch::cores()));
    let space = RadixSpace::with_counters(
        pin,
        epoch::domain(),
        nodes.clone(),
        tables.clone(),
        MachineMemory,
        layout(),
    )
    .ok()?;
    Some(Arc::new(SpaceHandle { space: Box::new(space), tables, nodes }))
}

/// The space whose counters are shown.
pub fn shown() -> Option<Arc<SpaceHandle>> {
    SHOWN.lock().upgrade()
}

/// Makes `space` the one this core runs. Nothing to do when it is already. Interrupts are off.
pub fn activate(space: &Arc<SpaceHandle>) {
    let pin = percore::pin();
    let mut running = RUNNING[pin.core().index()].lock();
    if running.as_ref().is_some_and(|old| Arc::ptr_eq(old, space)) {
        return;
    }
    let old = running.replace(space.clone());
    if let Some(old) = &old {
        old.tables.leave(&pin);
    }
    space.tables.enter(&pin);
    drop(running);
}

/// This core runs no address space now: it goes idle, or the space is about to go away. Interrupts are off.
pub fn deactivate() {
    let pin = percore::pin();
    let old = RUNNING[pin.core().index()].lock().take();
    if let Some(old) = old {
        old.tables.leave(&pin);
        *RAN[pin.core().index()].lock() = Arc::downgrade(&old);
    }
}

/// The program is gone, and no other core runs its space any more; this one stops. From here on the tables stay as they
/// are: they are looked at, and freed with the space.
pub fn settle() {
    {
        let _off = arch::interrupts::off();
        deactivate();
    }
    RAN.iter().for_each(|ran| *ran.lock() = Weak::new());
}

/// The program of `space` is gone: unmaps everything.
pub fn retire(space: &SpaceHandle) {
    settle();
    space.destroy(&percore::pin());
}

/// Frees this core's own tables of the space it runs, or ran before it went idle: memory is short.
pub fn drop_my_tables() {
    let pin = percore::pin();
    let core = pin.core().index();
    if let Some(running) = &*RUNNING[core].lock() {
        return running.tables.drop_mine(&pin);
    }
    // Locked until the tables are gone: see `settle`.
    let ran = RAN[core].lock();
    if let Some(space) = ran.upgrade() {
        space.tables.drop_mine(&pin);
    }
}
