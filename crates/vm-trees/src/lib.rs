//! The designs that keep regions in a balanced tree: five ways to synchronise the same data.
//!
//! ```text
//!    tree of regions (Bonsai)                 resident pages (radix map)            the page table (Mmu)
//!    first page -> end, mapping               page -> frame, mapping                page -> frame, rights
//!    written by mapping operations            written by the holder of the slot     the same
//!    read by faults                           of the page: the paper's PTE lock     read by hardware
//! ```
//!
//! A mapping operation changes the tree first, and then the pages that were touched, under their slots'
//! locks. A fault looks its region up, locks the page's slot, looks at the region once more, and fills. How
//! the two are kept apart is `locking.rs`; what happens if they are not, `fault.rs`. Everything else is the
//! same for all five.
//!
//! The map of resident pages takes the place of what Linux keeps in page-table entries and in frames'
//! descriptors: its nodes come with the first page that is touched below them, and go with the last, like
//! page tables. There is one table for all cores, and an invalidation interrupts all cores that run the
//! space.

#![no_std]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

extern crate alloc;

mod change;
mod edit;
mod fault;
mod find;
mod fork;
mod locking;
mod map;
mod remap;
mod rwlock;
mod survey;
mod vma;

use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::ops::ControlFlow;

use bonsai::Bonsai;
use percore::{CoreId, Pinned};
use radixmap::{Always, Expand, KEY_END, Never, NodeCounters, RadixMap};
use rcu::Handle;
use refcache::Domain;
use vm::design::{
    Arenas, Backend, Call, Change, EventCounts, Guard, PIECE, Page, Removed, check, during, first_piece,
    keys, lock_leaves, lock_slots, make_fit, show_frame, show_space,
};
use vm::{
    Access, AddressSpace, BackingNum, Copies, Counters, Event, Fault, FaultError, Flags, ForkBacking,
    FrameNum, FrameRun, Installed, Layout, Mapping, Memory, Mmu, Nodes, OutOfMemory, PageNum, PageRange,
    Placement, Prot, Region, Remap, RemapBacking, Tables, Usage, VirtAddr, VmError,
};

use self::edit::Edit;
use self::locking::Locks;
use self::rwlock::ReadGuard;
use self::vma::Vma;

pub use self::locking::Locking;

type Tree<D> = Bonsai<u64, Vma, D>;

/// An address space with a tree of regions.
///
/// `R` reaches the reference-count domain of the resident pages' nodes, `D` the RCU domain of the tree's.
pub struct TreeSpace<R: Domain, D: Handle, M: Mmu, F: Memory> {
    tree: Tree<D>,
    locks: Locks,
    pages: RadixMap<Page, R>,
    backend: Backend<M, F>,
    arenas: Arenas,
    user: PageRange,
}

impl<R: Domain, D: Handle, M: Mmu, F: Memory> TreeSpace<R, D, M, F> {
    /// Returns an empty space that counts the nodes of its resident pages in `nodes`.
    ///
    /// # Errors
    /// No memory for what there is one of, or one of for each core.
    ///
    /// # Panics
    /// If the cores do not share one table.
    pub fn new(
        pin: &Pinned,
        locking: Locking,
        (refcache, rcu): (R, D),
        nodes: Arc<NodeCounters>,
        mmu: M,
        memory: F,
        layout: Layout,
    ) -> Result<Self, OutOfMemory> {
        assert!(layout.user.covers(layout.anywhere) && layout.user.end().get() <= KEY_END);
        assert!(mmu.tables() == Tables::Shared, "these designs have one table");
        let arenas = Arenas::try_new(&layout).ok_or(OutOfMemory)?;
        let counts = EventCounts::try_new(layout.cores).ok_or(OutOfMemory)?;
        let backend = Backend::new(mmu, memory, counts, layout.cores);
        let pages = RadixMap::with_counters(pin, refcache, nodes).map_err(|_| OutOfMemory)?;
        let tree = Bonsai::try_new(rcu).map_err(|_| OutOfMemory)?;
        Ok(Self { tree, locks: Locks::new(locking), pages, backend, arenas, user: layout.user })
    }

    fn check(&self, pages: PageRange) -> Result<PageRange, VmError> {
        check(self.user, pages)
    }

    /// `pages` pages from `start`, if that is in user space and not nothing.
    fn range(&self, start: PageNum, pages: u64) -> Result<PageRange, VmError> {
        self.check(PageRange::new(start, pages).ok_or(VmError::OutOfRange)?)
    }

    fn edit<'a>(&'a self, pin: &'a Pinned) -> Edit<'a> {
        lock_slots(pin);
        Edit::begin(&self.locks, &self.tree, pin)
    }

    /// No region changes until the answer is dropped.
    fn read<'a>(&'a self, pin: &Pinned) -> ReadGuard<'a> {
        lock_slots(pin);
        self.locks.read()
    }

    /// Locks the slots of `pages` that are there, and more where none are.
    fn lock_pages<'g>(&'g self, pin: &'g Pinned, pages: PageRange) -> Guard<'g, Never> {
        lock_leaves(&self.pages, pin, keys(pages))
    }

    /// Locks the slot of a page that may be given `mapping`, and makes it if need be.
    #[inline]
    fn lock_page<'g>(&'g self, pin: &'g Pinned, at: PageNum, mapping: Mapping) -> Result<Guard<'g>, VmError> {
        lock_slots(pin);
        let one = keys(PageRange::one(at));
        let locked = self.pages.lock_range(pin, one.clone(), Always);
        let mut guard = locked.map_err(|_| VmError::OutOfMemory)?;
        make_fit(&mut guard, one, Page::new(mapping))?;
        Ok(guard)
    }

    /// Drops the locked pages that `picked` selects: they are neither resident nor translated any more.
    fn drop_locked<E: Expand>(&self, pin: &Pinned, guard: &mut Guard<'_, E>, picked: impl Fn(Page) -> bool) {
        Removed::scan(guard, self.backend.grain, picked)
            .invalidate(pin, &self.backend)
            .empty(pin, &self.backend);
    }
}

impl<R, D, M: Mmu + 'static, F: Memory + 'static> AddressSpace for TreeSpace<R, D, M, F>
where
    R: Domain + Send + Sync + 'static,
    D: Handle + Send + Sync + 'static,
{
    fn map(&self, pin: &Pinned, place: Placement, pages: u64, mapping: Mapping) -> Result<PageNum, VmError> {
        let start = self.place(pin, &mut self.edit(pin), place, pages, mapping)?;
        self.backend.counts.add(pin, Event::Mmap, 1);
        Ok(start)
    }

    fn unmap(&self, pin: &Pinned, pages: PageRange) -> Result<(), VmError> {
        let pages = self.check(pages)?;
        self.remove(pin, &mut self.edit(pin), pages)?;
        self.arenas.released(pin, pages);
        self.backend.counts.add(pin, Event::Munmap, 1);
        Ok(())
    }

    fn piece(&self, pin: &Pinned, pages: PageRange) -> PageRange {
        let _space = self.locks.read();
        let resident = first_piece(&self.pages, pin, pages, self.user, PIECE);
        match find::all(&self.tree.read(pin), resident).nth(PIECE as usize) {
            Some(next) => PageRange::between(resident.start(), next.pages.start()),
            None => resident,
        }
    }

    fn protect(&self, pin: &Pinned, pages: PageRange, prot: Prot) -> Result<(), VmError> {
        self.change_rights(pin, self.check(pages)?, prot)?;
        self.backend.counts.add(pin, Event::Mprotect, 1);
        Ok(())
    }

    fn advise(&self, pin: &Pinned, pages: PageRange, set: Flags, clear: Flags) -> Result<(), VmError> {
        self.change_flags(pin, self.check(pages)?, set, clear)
    }

    /// Huge pages are folded slots: there are none here.
    fn collapse(&self, _: &Pinned, _: PageNum) -> Result<(), VmError> {
        Err(VmError::Mixed)
    }

    fn discard_without(&self, pin: &Pinned, pages: PageRange, refused: Flags) -> Result<(), VmError> {
        let pages = self.check(pages)?;
        let _space = self.read(pin);
        let is_refused = |region: Region| region.mapping.flags() & refused != Flags::NONE;
        if find::all(&self.tree.read(pin), pages).any(is_refused) {
            return Err(VmError::Mixed);
        }
        self.drop_locked(pin, &mut self.lock_pages(pin, pages), |_| true);
        if self.all_mapped(pin, pages) { Ok(()) } else { Err(VmError::NotMapped) }
    }

    fn zap(&self, pin: &Pinned, pages: PageRange, backing: BackingNum, copies: Copies) {
        if self.check(pages).is_ok() {
            let picked = |page: Page| page.shows(backing, copies);
            self.drop_locked(pin, &mut self.lock_pages(pin, pages), picked);
        }
    }

    fn extend(&self, pin: &Pinned, pages: PageRange, more: u64) -> Result<(), VmError> {
        self.grow(pin, self.check(pages)?, more)
    }

    fn remap(
        &self,
        pin: &Pinned,
        what: &Remap,
        remap_backing: &mut RemapBacking<'_>,
    ) -> Result<PageNum, VmError> {
        let start = self.relocate(pin, what, remap_backing)?;
        self.backend.counts.add(pin, Event::Mremap, 1);
        Ok(start)
    }

    fn fork(
        &self,
        pin: &Pinned,
        child: &dyn AddressSpace,
        fork_backing: &mut ForkBacking<'_>,
    ) -> Result<(), VmError> {
        let child: &dyn Any = child;
        let Some(child) = child.downcast_ref::<Self>() else { panic!("a child is of its parent's design") };
        self.copy_to(pin, child, fork_backing)?;
        self.backend.counts.add(pin, Event::Fork, 1);
        Ok(())
    }

    fn fault(&self, pin: &Pinned, address: VirtAddr, access: Access) -> Result<Fault, FaultError> {
        lock_slots(pin);
        let fault = self.resolve(pin, address.page(), access)?;
        self.backend.count_fault(pin, fault);
        Ok(fault)
    }

    fn install(&self, pin: &Pinned, page: PageNum, given: Installed) -> Result<(), VmError> {
        self.range(page, 1)?;
        let _space = self.read(pin);
        let region = find::at(&self.tree.read(pin), page).ok_or(VmError::NotMapped)?;
        let mut outcome = Ok(());
        self.lock_page(pin, page, region.mapping)?.for_each(|entry| {
            let page = entry.value().unwrap_or(Page::new(region.mapping));
            outcome = self.backend.give(pin, entry, page, given);
        });
        outcome
    }

    fn mapped(&self, pin: &Pinned, pages: PageRange) -> bool {
        let _space = self.read(pin);
        self.user.covers(pages) && self.all_mapped(pin, pages)
    }

    fn look(&self, pin: &Pinned, page: PageNum, visit: &mut dyn FnMut(Mapping)) {
        let _space = self.read(pin);
        if let Some(region) = find::at(&self.tree.read(pin), page) {
            during(pin, Call::Visitor, || visit(region.mapping));
        }
    }

    fn frame(&self, pin: &Pinned, page: PageNum, access: Access, visit: &mut dyn FnMut(FrameNum)) -> bool {
        let visit = &mut |frame| during(pin, Call::Visitor, || visit(frame));
        self.user.contains(page) && show_frame(&mut self.lock_pages(pin, PageRange::one(page)), access, visit)
    }

    fn regions(&self, pin: &Pinned, pages: PageRange, visit: &mut dyn FnMut(&Region) -> ControlFlow<()>) {
        let visit = &mut |region: &_| during(pin, Call::Visitor, || visit(region));
        self.each_region(pin, pages.common(self.user), visit);
    }

    fn resident(
        &self,
        pin: &Pinned,
        pages: PageRange,
        visit: &mut dyn FnMut(PageRange),
    ) -> Result<bool, VmError> {
        let visit = &mut |run| during(pin, Call::Visitor, || visit(run));
        self.each_resident(pin, self.check(pages)?, visit)
    }

    fn counters(&self) -> Counters {
        self.backend.counts.sum()
    }

    fn usage(&self) -> Usage {
        self.backend.counts.usage()
    }

    fn core_counters(&self, core: CoreId) -> Counters {
        self.backend.counts.of(core)
    }

    fn nodes(&self) -> Nodes {
        let stats = self.pages.stats();
        Nodes { created: stats.created, collapsed: stats.collapsed }
    }

    /// No core has tables of its own.
    fn tables_dropped(&self, _: &Pinned) {}

    /// No leaf is linked.
    fn walk(&self, _: &Pinned, _: PageNum) -> Option<(usize, u64)> {
        None
    }

    fn frames(&self, pin: &Pinned, pages: PageRange, visit: &mut dyn FnMut(FrameRun)) -> PageNum {
        let visit = &mut |run| during(pin, Call::Visitor, || visit(run));
        self.show_frames(pin, pages.common(self.user), visit)
    }

    fn each_node_frame(&self, pin: &Pinned, visit: &mut dyn FnMut(usize)) {
        self.pages.each_frame(pin, visit);
    }

    fn destroy(&self, pin: &Pinned) {
        self.take_away(pin, &mut self.edit(pin), self.user);
    }
}

impl<R: Domain, D: Handle, M: Mmu, F: Memory> Drop for TreeSpace<R, D, M, F> {
    /// No core runs the space, or ever will, so no translation is invalidated: they go with the table. A
    /// thread that is no core of the domain cannot give pages up, so they are leaked.
    fn drop(&mut self) {
        let Some(pin) = percore::try_pin_below(self.pages.domain().cores()) else { return };
        for region in find::all(&self.tree.read(&pin), self.user) {
            self.backend.refer(&pin, region.mapping.backing(), -(region.pages.pages() as i64));
        }
        let backend = &self.backend;
        self.pages.dismantle(&pin, |_, page| backend.release(&pin, page, &mut Change::default()), |_| {});
    }
}

impl<R, D, M: Mmu + 'static, F: Memory + 'static> fmt::Debug for TreeSpace<R, D, M, F>
where
    R: Domain + Send + Sync + 'static,
    D: Handle + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_space("TreeSpace", self, f)
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
