//! The RadixVM design: page metadata in a radix map, every operation under the locks of exactly its range.
//!
//! Each verb is the same three steps: lock the range left to right, change it, unlock. Operations on disjoint
//! ranges lock disjoint slots, and meet nowhere else: arenas, counters and the MMU's tables are per core.
//! Removal goes through `shootdown.rs`.
//!
//! This room may use every other one.

mod change;
mod discard;
mod fault;
mod fork;
mod huge;
mod map;
mod page_out;
mod pieces;
mod promote;
mod remap;
mod survey;

use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::ops::{ControlFlow, Range};

use percore::{CoreId, Pinned};
use radixmap::{Expand, ExpandUsed, IfPresent, KEY_END, Leaf, NodeCounters, RadixMap};
use refcache::Domain;

use crate::machine::{Call, during, lock_slots};
use crate::page_word::Page;
use crate::placement::{Arenas, Layout};
use crate::protocol::{
    Backend, Found, Guard, References, Removed, abandon, check, first_piece, keys, linkage, lock_all,
    make_fit, range, show_frame,
};
use crate::space::{ForkBacking, PIECE, RemapBacking, show_space};
use crate::types::EventCounts;
use crate::{
    Access, AddressSpace, BackingNum, Copies, Counters, Detail, Event, Fault, FaultError, Flags, FrameNum,
    FrameRun, HUGE_PAGES, Installed, Mapping, Memory, Mmu, MovePieces, Nodes, Others, OutOfMemory, PageNum,
    PageRange, Placement, Prot, Region, Remap, Tables, Usage, VirtAddr, VmError,
};

/// An address space whose operations on disjoint ranges share nothing.
///
/// `R` reaches the reference-count domain that the nodes live in: `&'static Refcache`, or an `Arc`.
pub struct RadixSpace<R: Domain, M: Mmu, F: Memory> {
    map: RadixMap<Page, R>,
    backend: Backend<M, F>,
    arenas: Arenas,
    user: PageRange,
}

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    /// Returns an empty space.
    ///
    /// # Errors
    /// No memory for the first node.
    pub fn new(pin: &Pinned, refcache: R, mmu: M, memory: F, layout: Layout) -> Result<Self, OutOfMemory> {
        let nodes = Arc::new(NodeCounters::new(layout.cores));
        Self::with_counters(pin, refcache, nodes, mmu, memory, layout)
    }

    /// Returns an empty space that counts its nodes in `nodes`, which may be shared with other spaces and
    /// outlives this one.
    ///
    /// # Errors
    /// No memory for the first node, or for what there is one of for each core.
    pub fn with_counters(
        pin: &Pinned,
        refcache: R,
        nodes: Arc<NodeCounters>,
        mmu: M,
        memory: F,
        layout: Layout,
    ) -> Result<Self, OutOfMemory> {
        assert!(layout.user.covers(layout.anywhere) && layout.user.end().get() <= KEY_END);
        let arenas = Arenas::try_new(&layout).ok_or(OutOfMemory)?;
        let counts = EventCounts::try_new(layout.cores).ok_or(OutOfMemory)?;
        let backend = Backend::new(mmu, memory, counts, layout.cores);
        let map = RadixMap::with_counters(pin, refcache, nodes).map_err(|_| OutOfMemory)?;
        Ok(Self { map, backend, arenas, user: layout.user })
    }

    /// Returns the machine's side of the space.
    pub fn mmu(&self) -> &M {
        &self.backend.mmu.0
    }

    /// `pages` pages from `start`, if that is in user space and not nothing.
    #[inline]
    fn range(&self, start: PageNum, pages: u64) -> Result<PageRange, VmError> {
        self.check(PageRange::new(start, pages).ok_or(VmError::OutOfRange)?)
    }

    #[inline]
    fn check(&self, pages: PageRange) -> Result<PageRange, VmError> {
        check(self.user, pages)
    }

    #[inline]
    fn lock<'g, E: Expand>(
        &'g self,
        pin: &'g Pinned,
        pages: PageRange,
        expand: E,
    ) -> Result<Guard<'g, E>, VmError> {
        lock_slots(pin);
        self.map.lock_range(pin, keys(pages), expand).map_err(|_| VmError::OutOfMemory)
    }

    /// Looks for what is mapped in `pages`: where the lowest slot of it starts.
    fn look(&self, pin: &Pinned, pages: Range<u64>) -> Option<u64> {
        self.backend.counts.add(pin, Event::Look, 1);
        self.map.first_used(pin, pages).map(|used| used.start)
    }

    /// Unmaps, and counts it. (The guard is not moved to be dropped: it is large.)
    #[inline]
    fn lock_and_remove(&self, pin: &Pinned, pages: PageRange) -> Result<(), VmError> {
        let mut guard = self.lock(pin, pages, IfPresent)?;
        self.remove_for(pin, &mut guard, 1);
        Ok(())
    }

    fn remove<E: ExpandUsed>(&self, pin: &Pinned, guard: &mut Guard<'_, E>) {
        self.remove_for(pin, guard, 0);
    }

    /// Unmaps what is locked, for `calls` calls of `unmap`.
    #[inline]
    fn remove_for<E: ExpandUsed>(&self, pin: &Pinned, guard: &mut Guard<'_, E>, calls: u64) {
        if has_leaves(guard) {
            return self.remove_leaves_for(pin, guard, calls);
        }
        let removed = Removed::scan(guard, self.backend.grain, |_| true);
        removed.invalidate_in(pin, &self.backend).unmap(pin, &self.backend, calls);
    }

    /// Unmaps as `remove_for` does, where more than one leaf is locked.
    #[inline(never)]
    fn remove_leaves_for<E: ExpandUsed>(&self, pin: &Pinned, guard: &mut Guard<'_, E>, calls: u64) {
        let mut found = Found::none();
        let removed = Removed::scan_with_leaves(guard, self.backend.grain, |_| true, |_| (), &mut found);
        removed.invalidate_leaves(pin, &self.backend).unmap(pin, &self.backend, calls);
    }
}

/// Returns whether leaves may be locked as a whole.
#[inline(always)]
fn has_leaves<E: Expand>(guard: &Guard<'_, E>) -> bool {
    let keys = guard.keys();
    keys.end - keys.start >= Leaf::KEYS
}

fn same_design<S: AddressSpace>(child: &dyn AddressSpace) -> &S {
    let child: &dyn Any = child;
    let Some(child) = child.downcast_ref() else { panic!("a child is of its parent's design") };
    child
}

impl<R, M: Mmu + 'static, F: Memory + 'static> AddressSpace for RadixSpace<R, M, F>
where
    R: Domain + Send + Sync + 'static,
{
    fn map(&self, pin: &Pinned, place: Placement, pages: u64, mapping: Mapping) -> Result<PageNum, VmError> {
        self.map_page(pin, place, pages, Page::new(mapping))
    }

    fn unmap(&self, pin: &Pinned, pages: PageRange) -> Result<(), VmError> {
        self.lock_and_remove(pin, self.check(pages)?)?;
        self.arenas.released(pin, pages);
        Ok(())
    }

    fn piece(&self, pin: &Pinned, pages: PageRange) -> PageRange {
        first_piece(&self.map, pin, pages, self.user, PIECE)
    }

    fn protect(&self, pin: &Pinned, pages: PageRange, prot: Prot) -> Result<(), VmError> {
        self.change_rights(pin, self.check(pages)?, prot)?;
        self.backend.counts.add(pin, Event::Mprotect, 1);
        Ok(())
    }

    fn advise(&self, pin: &Pinned, pages: PageRange, set: Flags, clear: Flags) -> Result<(), VmError> {
        self.change_flags(pin, self.check(pages)?, set, clear)
    }

    fn discard_without(&self, pin: &Pinned, pages: PageRange, refused: Flags) -> Result<(), VmError> {
        self.drop_contents(pin, self.check(pages)?, refused)
    }

    fn zap(&self, pin: &Pinned, pages: PageRange, backing: BackingNum, copies: Copies) {
        if self.check(pages).is_ok() {
            self.drop_shown(pin, pages, backing, copies);
        }
    }

    fn extend(&self, pin: &Pinned, pages: PageRange, more: u64) -> Result<(), VmError> {
        self.grow(pin, pages, more)
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

    fn moves_in_pieces(&self) -> Option<&dyn MovePieces> {
        Some(self)
    }

    fn fork(
        &self,
        pin: &Pinned,
        child: &dyn AddressSpace,
        fork_backing: &mut ForkBacking<'_>,
    ) -> Result<(), VmError> {
        self.copy_to(pin, same_design(child), fork_backing)?;
        self.backend.counts.add(pin, Event::Fork, 1);
        Ok(())
    }

    fn fork_piece(
        &self,
        pin: &Pinned,
        child: &dyn AddressSpace,
        from: PageNum,
        others: Others,
        fork_backing: &mut ForkBacking<'_>,
    ) -> Result<Option<PageNum>, VmError> {
        let next = self.copy_piece_to(pin, same_design(child), from, others, fork_backing)?;
        if next.is_none() {
            self.backend.counts.add(pin, Event::Fork, 1);
        }
        Ok(next)
    }

    fn fault(&self, pin: &Pinned, address: VirtAddr, access: Access) -> Result<Fault, FaultError> {
        let at = address.page();
        if !self.user.contains(at) {
            return Err(FaultError::NotMapped);
        }
        lock_slots(pin);
        let locked = self.map.lock_key_or_block(pin, at.get(), huge::is_meant_whole);
        let (outcome, may_be_last) = {
            let mut guard = locked.map_err(|_| FaultError::OutOfMemory)?.ok_or(FaultError::NotMapped)?;
            let outcome = self.resolve_locked(pin, at, &mut guard, access);
            // Counted before the unlock: see `may_have_huge`.
            if let Ok(fault) = outcome {
                self.backend.count_fault(pin, fault);
            }
            let is_own = matches!(outcome, Ok(Fault::Alloc | Fault::Copy | Fault::Reuse));
            (outcome, is_own && self.may_be_last(at, &mut guard))
        };
        if may_be_last {
            self.promote_if_filled(pin, at);
        }
        outcome
    }

    fn collapse(&self, pin: &Pinned, block: PageNum) -> Result<(), VmError> {
        assert!(block.get().is_multiple_of(HUGE_PAGES), "not the first page of a block");
        self.promote(pin, PageRange::new(block, HUGE_PAGES).ok_or(VmError::OutOfRange)?, true)
    }

    fn page_out(&self, pin: &Pinned, from: PageNum) -> Option<(u64, PageNum)> {
        self.step_clock(pin, from)
    }

    fn install(&self, pin: &Pinned, page: PageNum, given: Installed) -> Result<(), VmError> {
        self.range(page, 1)?;
        lock_slots(pin);
        let locked = self.map.lock_key(pin, page.get()).map_err(|_| VmError::OutOfMemory)?;
        let mut outcome = Err(VmError::NotMapped);
        locked.ok_or(VmError::NotMapped)?.for_each(|entry| {
            outcome = entry
                .value()
                .map_or(Err(VmError::NotMapped), |page| self.backend.give(pin, entry, page, given));
        });
        outcome
    }

    fn mapped(&self, pin: &Pinned, pages: PageRange) -> bool {
        self.user.covers(pages) && self.all_mapped(pin, pages)
    }

    fn look(&self, pin: &Pinned, page: PageNum, visit: &mut dyn FnMut(Mapping)) {
        self.look_at(pin, page, |page| during(pin, Call::Visitor, || visit(page.mapping())));
    }

    fn frame(&self, pin: &Pinned, page: PageNum, access: Access, visit: &mut dyn FnMut(FrameNum)) -> bool {
        let visit = &mut |frame| during(pin, Call::Visitor, || visit(frame));
        self.user.contains(page)
            && show_frame(&mut self.lock_leaves(pin, PageRange::one(page)), access, visit)
    }

    fn debug_frame(
        &self,
        pin: &Pinned,
        page: PageNum,
        access: Access,
        visit: &mut dyn FnMut(FrameNum),
    ) -> Result<(), FaultError> {
        if !self.user.contains(page) {
            return Err(FaultError::NotMapped);
        }
        lock_slots(pin);
        let locked = self.map.lock_key(pin, page.get()).map_err(|_| FaultError::OutOfMemory)?;
        let mut outcome = Err(FaultError::NotMapped);
        locked.ok_or(FaultError::NotMapped)?.for_each(|entry| {
            outcome = self.backend.expose(pin, page, entry, access);
            if let Ok(frame) = outcome {
                during(pin, Call::Visitor, || visit(frame));
            }
        });
        outcome.map(drop)
    }

    fn overview(
        &self,
        pin: &Pinned,
        pages: PageRange,
        detail: Detail,
        most: usize,
        visit: &mut dyn FnMut(&Region),
    ) -> PageNum {
        self.show_regions(pin, pages.common(self.user), detail, most, visit)
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
        let stats = self.map.stats();
        Nodes { created: stats.created, collapsed: stats.collapsed }
    }

    fn tables_dropped(&self, pin: &Pinned) {
        let leave = |leaf: Leaf<'_>| {
            if linkage(&leaf).leave(pin.core()) {
                leaf.release(1);
            }
        };
        if self.backend.mmu.tables() == Tables::Adaptive {
            self.map.domain().while_online(pin, || self.map.each_leaf(pin, leave));
        }
    }

    fn walk(&self, pin: &Pinned, page: PageNum) -> Option<(usize, u64)> {
        self.map.leaf_word(pin, page.get())
    }

    fn each_node_frame(&self, pin: &Pinned, visit: &mut dyn FnMut(usize)) {
        self.map.each_frame(pin, visit);
    }

    fn frames(&self, pin: &Pinned, pages: PageRange, visit: &mut dyn FnMut(FrameRun)) -> PageNum {
        let visit = &mut |run| during(pin, Call::Visitor, || visit(run));
        self.show_frames(pin, pages.common(self.user), visit)
    }

    fn dismantle(&mut self, pin: &Pinned, rest: PageRange) -> PageRange {
        let next = self.dismantle_piece(pin, rest.start(), PIECE);
        PageRange::between(next.map_or(rest.end(), PageNum::new), rest.end())
    }

    fn destroy(&self, pin: &Pinned) {
        self.remove(pin, &mut lock_all(&self.map, pin));
    }
}

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    /// Invalidates no translations: they go with the tables. Returns where the next piece begins.
    fn dismantle_piece(&mut self, pin: &Pinned, from: PageNum, slots: u64) -> Option<u64> {
        let mut references = References::new(&self.backend, pin);
        let release = |keys, page| references.release(range(keys), page);
        self.map.dismantle_piece(pin, from.get(), slots, release, abandon)
    }
}

impl<R: Domain, M: Mmu, F: Memory> Drop for RadixSpace<R, M, F> {
    /// No core runs the space, or ever will. A thread that plays no core of the domain cannot give pages up:
    /// they are leaked.
    fn drop(&mut self) {
        if self.map.is_dismantled() {
            return;
        }
        let Some(pin) = percore::try_pin_below(self.map.domain().cores()) else { return };
        let rest = self.dismantle_piece(&pin, PageNum::new(0), u64::MAX);
        debug_assert!(rest.is_none(), "something is mapped beyond all keys");
    }
}

impl<R, M: Mmu + 'static, F: Memory + 'static> fmt::Debug for RadixSpace<R, M, F>
where
    R: Domain + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_space("RadixSpace", self, f)
    }
}
