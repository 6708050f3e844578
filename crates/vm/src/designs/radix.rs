//! The RadixVM design: page metadata in a radix map, every operation under the locks of exactly its range.
//!
//! Each verb is the same three steps: lock the range left to right, change it, unlock. Operations on disjoint
//! ranges lock disjoint slots, and meet nowhere else: arenas, counters and the MMU's tables are per core.
//! Removal goes through [`shootdown`](crate::shootdown).

mod fault;
mod map;

use alloc::sync::Arc;
use core::ops::Range;

use percore::{CoreId, Pinned};
use radixmap::{Expand, KEY_END, NodeCounters, RadixMap, RangeGuard};
use refcache::Domain;

use crate::arena::Arenas;
use crate::counters::Tally;
use crate::hole::Look;
use crate::layout::Layout;
use crate::meta::Page;
use crate::shootdown::{Reach, Removed, Rig, for_each_before_hole};
use crate::tracker::Grain;
use crate::{
    Access, AddressSpace, Counters, Event, Fault, FaultError, FrameNum, Mapping, Memory, Mmu, Nodes,
    OutOfMemory, PageNum, PageRange, Placement, Prot, VirtAddr, VmError,
};

type Guard<'g> = RangeGuard<'g, Page>;

/// An address space whose operations on disjoint ranges share nothing.
///
/// `R` reaches the reference-count domain that the nodes live in: `&'static Refcache`, or an `Arc`.
pub struct RadixSpace<R: Domain, M: Mmu, F: Memory> {
    map: RadixMap<Page, R>,
    rig: Rig<M, F>,
    arenas: Arenas,
    user: PageRange,
}

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    /// An empty space.
    ///
    /// # Errors
    /// No memory for the first node.
    pub fn new(pin: &Pinned, refcache: R, mmu: M, memory: F, layout: Layout) -> Result<Self, OutOfMemory> {
        let nodes = Arc::new(NodeCounters::new(layout.cores));
        Self::with_counters(pin, refcache, nodes, mmu, memory, layout)
    }

    /// An empty space that counts its nodes in `nodes`, which may be shared with other spaces and outlives
    /// this one.
    ///
    /// # Errors
    /// No memory for the first node.
    pub fn with_counters(
        pin: &Pinned,
        refcache: R,
        nodes: Arc<NodeCounters>,
        mmu: M,
        memory: F,
        layout: Layout,
    ) -> Result<Self, OutOfMemory> {
        assert!(layout.user.covers(layout.anywhere) && layout.user.end().get() <= KEY_END);
        let map = RadixMap::with_counters(pin, refcache, nodes).map_err(|_| OutOfMemory)?;
        let rig = Rig { mmu, memory, tally: Tally::new(layout.cores), grain: Grain::new(layout.cores) };
        Ok(Self { map, rig, arenas: Arenas::new(&layout), user: layout.user })
    }

    /// The machine's side of the space.
    pub fn mmu(&self) -> &M {
        &self.rig.mmu
    }

    /// `pages` pages from `start`, if that is in user space and not nothing.
    #[inline]
    fn range(&self, start: PageNum, pages: u64) -> Result<PageRange, VmError> {
        self.check(PageRange::new(start, pages).ok_or(VmError::OutOfRange)?)
    }

    #[inline]
    fn check(&self, pages: PageRange) -> Result<PageRange, VmError> {
        match (pages.is_empty(), self.user.covers(pages)) {
            (true, _) => Err(VmError::Empty),
            (_, false) => Err(VmError::OutOfRange),
            _ => Ok(pages),
        }
    }

    #[inline]
    fn lock<'g>(&'g self, pin: &'g Pinned, pages: PageRange, expand: Expand) -> Result<Guard<'g>, VmError> {
        self.map.lock_range(pin, keys(pages), expand).map_err(|_| VmError::OutOfMemory)
    }

    fn look(&self, pin: &Pinned, page: u64) -> Look {
        let peek = self.map.peek(pin, page);
        Look { start: peek.span.start, used: peek.used }
    }

    fn unmap_all(&self, pin: &Pinned) {
        let Ok(mut guard) = self.map.lock_range(pin, 0..KEY_END, Expand::IfPresent) else {
            unreachable!("no slot sticks out of the whole key space, so nothing is expanded")
        };
        Removed::scan(&mut guard, self.rig.grain).take_back(pin, &self.rig).unmap(pin, &self.rig.memory);
    }
}

#[inline]
fn keys(pages: PageRange) -> Range<u64> {
    pages.start().get()..pages.end().get()
}

impl<R, M: Mmu, F: Memory> AddressSpace for RadixSpace<R, M, F>
where
    R: Domain + Send + Sync,
{
    fn map(&self, pin: &Pinned, place: Placement, pages: u64, mapping: Mapping) -> Result<PageNum, VmError> {
        if pages == 0 {
            return Err(VmError::Empty);
        }
        let page = Page::new(mapping);
        let start = match place {
            Placement::Anywhere { hint } => self.anywhere(pin, hint, pages, page)?,
            Placement::Below(limit) => self.below(pin, limit, pages, page)?,
            Placement::Fixed(start) => self.replace(pin, self.range(start, pages)?, page).map(|()| start)?,
            Placement::FixedNoReplace(start) => {
                self.claim(pin, self.range(start, pages)?, page).map(|()| start)?
            }
        };
        self.rig.tally.add(pin, Event::Mmap, 1);
        Ok(start)
    }

    fn unmap(&self, pin: &Pinned, pages: PageRange) -> Result<(), VmError> {
        let mut guard = self.lock(pin, self.check(pages)?, Expand::IfPresent)?;
        Removed::scan(&mut guard, self.rig.grain).take_back(pin, &self.rig).unmap(pin, &self.rig.memory);
        drop(guard);
        self.arenas.released(pin, pages);
        self.rig.tally.add(pin, Event::Munmap, 1);
        Ok(())
    }

    fn protect(&self, pin: &Pinned, pages: PageRange, prot: Prot) -> Result<(), VmError> {
        let mut guard = self.lock(pin, self.check(pages)?, Expand::IfPresent)?;
        let loses = |page: Page| !prot.contains(page.prot());
        let reach = Reach::before_hole(&mut guard, self.rig.grain, loses);
        self.rig.take_back(pin, reach);
        let hole = for_each_before_hole(&mut guard, |entry, page| {
            let kept = if loses(page) { page.untracked() } else { page };
            entry.set(kept.with_prot(prot));
        });
        if hole {
            return Err(VmError::NotMapped);
        }
        self.rig.tally.add(pin, Event::Mprotect, 1);
        Ok(())
    }

    fn discard(&self, pin: &Pinned, pages: PageRange) -> Result<(), VmError> {
        let mut guard = self.lock(pin, self.check(pages)?, Expand::IfPresent)?;
        let quiet = Removed::scan(&mut guard, self.rig.grain).take_back(pin, &self.rig);
        let holes = quiet.holes;
        quiet.forget(pin, &self.rig.memory);
        if holes { Err(VmError::NotMapped) } else { Ok(()) }
    }

    fn fault(&self, pin: &Pinned, address: VirtAddr, access: Access) -> Result<Fault, FaultError> {
        let at = address.page();
        if !self.user.contains(at) {
            return Err(FaultError::NotMapped);
        }
        let locked = self.map.lock_key(pin, at.get()).map_err(|_| FaultError::OutOfMemory)?;
        let mut guard = locked.ok_or(FaultError::NotMapped)?;
        let mut outcome = Err(FaultError::NotMapped);
        guard.for_each(|entry| outcome = self.resolve(pin, at, entry, access));
        drop(guard);
        outcome.inspect(|&fault| self.count_fault(pin, fault))
    }

    fn install(&self, pin: &Pinned, page: PageNum, frame: FrameNum) -> Result<(), VmError> {
        self.check(PageRange::one(page))?;
        let locked = self.map.lock_key(pin, page.get()).map_err(|_| VmError::OutOfMemory)?;
        let mut outcome = Err(VmError::NotMapped);
        locked.ok_or(VmError::NotMapped)?.for_each(|entry| outcome = fault::give(entry, frame));
        outcome
    }

    fn mapped(&self, pin: &Pinned, pages: PageRange) -> bool {
        let mut at = pages.start().get();
        if !self.user.covers(pages) {
            return false;
        }
        while at < pages.end().get() {
            let peek = self.map.peek(pin, at);
            if !peek.used {
                return false;
            }
            at = peek.span.end;
        }
        true
    }

    fn counters(&self) -> Counters {
        self.rig.tally.sum()
    }

    fn core_counters(&self, core: CoreId) -> Counters {
        self.rig.tally.of(core)
    }

    fn nodes(&self) -> Nodes {
        let stats = self.map.stats();
        Nodes { created: stats.created, collapsed: stats.collapsed }
    }

    fn destroy(&self, pin: &Pinned) {
        self.unmap_all(pin);
    }
}

impl<R: Domain, M: Mmu, F: Memory> Drop for RadixSpace<R, M, F> {
    fn drop(&mut self) {
        let pin = percore::pin();
        self.map.domain().while_online(&pin, || self.unmap_all(&pin));
    }
}
