//! The translations of one space with a page table per core: only its owner reads or writes a core's table.
//!
//! A core's table is a cache of the space's metadata: it is made when the core first faults, and may be
//! dropped at any time on its own core. The next touch faults again. So the core's part ([`CoreTable`])
//! begins when it first makes a table: a core that only ran the space, on the kernel's map, has none, and
//! costs neither memory nor a walk.
//!
//! A core that does not run the space is not interrupted: `vm::Presence` records what it missed, and it
//! clears that before it loads its table again. Where the CPU has PCIDs, its TLB keeps the other
//! translations: see `vm::Asids`.
//!
//! With adaptive tables an entry of level 1 may lead to a leaf of the space's own map: see `vm::Linkage`.
//! Then the entries of level 0 are the map's, which writes them, and this table only leads there.
//!
//! A core that is in a leaf's set before its part begins is not interrupted either: it has translated no
//! page, and finds what was invalidated when it walks, see `percore::LazyPerCore`. That relies on the fence
//! in `vm::Linkage` before the set is read.
//!
//! # Interrupt handlers and the table
//! A shootdown's handler may hit this core while it fills or clears. The two never access the same entry:
//! both hold the slots of their pages in the space's map, and `enter`, which holds none, has interrupts off.
//! Only a core that becomes the owner of a leaf again clears more than it holds (`vm`'s `demotion.rs`). Then
//! an entry that was filled meanwhile may go, which costs a fault, and a core that linked meanwhile checks
//! once more whether it may. The owner adds tables outside handlers, and frees them with interrupts off, or,
//! where a leaf is linked, after they are out of reach.
//!
//! Reads of files may count themselves in the entries (`entry_count.rs`). Only a handler finds such a count,
//! because the task has none when it does anything but copy.

use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use percore::{CoreId, CoreSet, LazyPerCore, Pinned};
use vm::{FrameNum, Mmu, OutOfMemory, PageNum, PageRange, Prot, Shot, Tables};

use super::core_table::{CoreTable, drop_huge, entry_of};
use super::entry_count;
use super::page_table::{Table, bits, is_huge, user_huge, user_leaf, user_leaf_link};
use super::physmap::virt_to_phys;
use super::shootdown::{self, Clearable};
use super::space_tables::{PIECE, SpaceTables};
use super::{pcid, table_walk};
use crate::arch::per_core::all_cores;

all_cores! {
    /// Which tables each core runs on: the address of its `CoreTables`, or 0. Relaxed: only the core itself
    /// asks.
    static RUN: AtomicUsize = AtomicUsize::new(0);
}

/// The tables of one space, one for each core.
pub struct CoreTables<const ADAPTIVE: bool> {
    cores: LazyPerCore<CoreTable>,
}

/// Tables of which all are the cores' own.
pub type PerCoreTables = CoreTables<false>;
/// Tables into which leaves may be linked.
pub type AdaptiveTables = CoreTables<true>;

impl<const ADAPTIVE: bool> CoreTables<ADAPTIVE> {
    /// Creates the tables of a space, at first none. Returns `None` without memory.
    pub fn new() -> Option<Self> {
        Some(Self { cores: LazyPerCore::try_new(super::cores())? })
    }

    /// Returns this core's part, and its top table.
    #[inline(always)]
    fn mine_or_new(&self, pin: &Pinned) -> Result<(&CoreTable, &Table), OutOfMemory> {
        let begin = |core| CoreTable::new(self.run_by(core));
        let mine = self.cores.mine_or_new(pin, begin).ok_or(OutOfMemory)?;
        Ok((mine, mine.top_or_new(pin)?))
    }

    /// Returns whether `core`, which is the caller's, runs the space.
    fn run_by(&self, core: CoreId) -> bool {
        RUN.of(core).load(Ordering::Relaxed) == ptr::from_ref(self).addr()
    }

    /// Removes what this core translates of the pages of `runs`.
    #[inline(always)]
    fn clear_mine(&self, pin: &Pinned, runs: &[PageRange]) {
        if let Some(mine) = self.cores.mine(pin) {
            mine.clear(runs);
        }
    }
}

impl<const ADAPTIVE: bool> Mmu for CoreTables<ADAPTIVE> {
    fn tables(&self) -> Tables {
        if ADAPTIVE { Tables::Adaptive } else { Tables::PerCore }
    }

    #[inline]
    fn fill(&self, pin: &Pinned, page: PageNum, frame: FrameNum, prot: Prot) -> Result<(), OutOfMemory> {
        let (mine, top) = self.mine_or_new(pin)?;
        let entry = entry_of(pin, mine, top, page, 0)?;
        let old = entry.load(Ordering::Relaxed);
        // Relaxed: only this core walks the table.
        entry.store(user_leaf(frame.get(), prot), Ordering::Relaxed);
        if old & bits::PRESENT != 0 {
            mine.flush_page(page);
        }
        Ok(())
    }

    /// Replaces a table of small pages if the block had some: it is empty by now.
    fn fill_huge(
        &self,
        pin: &Pinned,
        first: PageNum,
        frame: FrameNum,
        prot: Prot,
    ) -> Result<(), OutOfMemory> {
        let (mine, top) = self.mine_or_new(pin)?;
        let entry = entry_of(pin, mine, top, first, 1)?;
        let old = entry.load(Ordering::Relaxed);
        // Relaxed: only this core walks the table.
        entry.store(user_huge(frame.get(), prot), Ordering::Relaxed);
        if old & bits::PRESENT != 0 {
            // The old table becomes unreachable too.
            mine.flush_page(first);
        }
        if old & bits::PRESENT != 0 && !is_huge(old) {
            mine.free(pin, old);
        }
        Ok(())
    }

    fn clear(&self, pin: &Pinned, pages: PageRange) {
        self.clear_mine(pin, &[pages]);
    }

    fn clear_all(&self, pin: &Pinned, runs: &[PageRange]) {
        self.clear_mine(pin, runs);
    }

    fn shootdown(&self, pin: &Pinned, targets: &CoreSet, pages: PageRange) -> Shot {
        let mut interrupt = CoreSet::EMPTY;
        let mut shot = Shot::default();
        for target in targets.iter().filter(|&target| target != pin.core()) {
            if self.cores.of(target).is_some_and(|part| part.presence.must_interrupt(pages)) {
                interrupt.insert(target);
                shot.ipis += 1;
            } else {
                shot.avoided += 1;
            }
        }
        shootdown::run(pin, self, &interrupt, pages);
        shot
    }

    /// Never called: the space's own trackers know the users.
    fn users(&self, _pin: &Pinned) -> CoreSet {
        CoreSet::first(super::cores())
    }

    #[inline]
    fn entry(&self, prot: Prot) -> u64 {
        user_leaf(0, prot) | bits::ACCESSED | bits::DIRTY
    }

    #[inline]
    fn link(&self, pin: &Pinned, page: PageNum, leaf: usize) -> Result<bool, OutOfMemory> {
        let (mine, top) = self.mine_or_new(pin)?;
        let entry = entry_of(pin, mine, top, page, 1)?;
        let link = user_leaf_link(virt_to_phys(leaf as *const Table));
        let old = entry.load(Ordering::Relaxed);
        if old == link {
            return Ok(false);
        }
        drop_huge(mine, entry, page);
        // Relaxed: only this core walks the entry. It comes after the fence in `vm::Linkage::link`.
        entry.store(link, Ordering::Relaxed);
        if old & bits::PRESENT != 0 && !is_huge(old) {
            mine.flush();
            mine.free(pin, old);
        }
        Ok(true)
    }
}

impl<const ADAPTIVE: bool> Clearable for CoreTables<ADAPTIVE> {
    /// The interrupt may have hit a read that is counted in one of the entries.
    fn clear_here(&self, pin: &Pinned, pages: PageRange) {
        match self.cores.mine(pin) {
            Some(mine) if !ADAPTIVE && entry_count::is_by_core() => mine.clear_counted(pages),
            Some(mine) => mine.clear(&[pages]),
            None => {}
        }
    }
}

impl<const ADAPTIVE: bool> SpaceTables for CoreTables<ADAPTIVE> {
    fn enter(&self, pin: &Pinned) {
        RUN.mine(pin).store(ptr::from_ref(self).addr(), Ordering::Relaxed);
        match self.cores.mine(pin) {
            Some(mine) => mine.enter(pin),
            None => pcid::load_kernel(pin),
        }
    }

    fn leave(&self, pin: &Pinned) {
        pcid::load_kernel(pin);
        RUN.mine(pin).store(0, Ordering::Relaxed);
        if !ADAPTIVE {
            entry_count::forget_tables(pin);
        }
        if let Some(mine) = self.cores.mine(pin) {
            mine.presence.leave();
        }
    }

    fn drop_mine(&self, pin: &Pinned) {
        if let Some(mine) = self.cores.mine(pin) {
            mine.drop_tables(pin);
        }
    }

    fn table_pages(&self) -> u64 {
        self.cores.iter().map(CoreTable::tables).sum()
    }

    fn free_piece(&mut self, pin: &Pinned) -> bool {
        // SAFETY: no core runs the space: each that does holds a reference to it.
        self.cores.iter().any(|table| unsafe { table.free_piece(pin, PIECE) })
    }

    fn each_frame(&self, visit: &mut dyn FnMut(u64)) {
        let roots = self.cores.iter().map(CoreTable::root).filter(|&root| root != 0);
        // SAFETY: tables are freed by their cores before the space is retired, and with the space.
        roots.for_each(|root| unsafe { table_walk::each_frame(root, visit) });
    }

    fn counts_read(&self, _page: PageNum, _frame: FrameNum) -> bool {
        debug_assert!(!entry_count::is_by_core());
        false
    }
}

impl<const ADAPTIVE: bool> Drop for CoreTables<ADAPTIVE> {
    fn drop(&mut self) {
        let pin = percore::pin();
        while self.free_piece(&pin) {}
    }
}
