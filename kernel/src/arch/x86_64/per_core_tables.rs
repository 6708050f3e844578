//! The translations of one space with a page table per core: only its owner reads or writes a core's table.
//!
//! A core's table is a cache of the space's metadata: it is made when the core first faults, and may be dropped
//! at any time on its own core; the next touch faults again.
//!
//! A core that does not run the space is not interrupted: `vm::Presence` holds what it missed, and it clears that before it
//! loads its table again. Where the CPU has PCIDs, its TLB keeps what it did not miss: see `vm::Asids`.
//!
//! With adaptive tables an entry of level 1 may lead to a leaf of the space's own map: see `vm::Linkage`. Then the entries of
//! level 0 are the map's, which writes them; this table only leads there.
//!
//! # Interrupt handlers and the table
//! A shootdown's handler may hit this core while it fills or clears. They never meet in an entry: both hold
//! the slots of their pages in the space's map, and `enter`, which holds none, has interrupts off. Only who makes a leaf its home
//! again clears more than it holds (`vm`'s `demotion.rs`): then an entry that was filled meanwhile may go, which costs a fault; and
//! who linked meanwhile looks once more whether it may. Tables are added by the
//! owner outside handlers, and freed with interrupts off, or, where a leaf is linked, after they are out of reach.

use core::sync::atomic::{AtomicU64, Ordering};

use percore::{CoreSet, PerCore, Pinned};
use vm::{Asid, FrameNum, Mmu, OutOfMemory, PageNum, PageRange, Presence, Prot, Shot, Tables};

use super::page_table::{TOP, Table, bits, is_huge, user_huge, user_leaf, user_leaf_link, user_link};
use super::physmap::virt_to_phys;
use super::shootdown::{self, Clearable};
use super::space_tables::SpaceTables;
use super::{cpu, interrupts, kernel_map, pcid, table_walk, tlb};
use crate::mm::frames;

/// One core's part.
struct CoreTable {
    /// Physical address of the top table, 0 if there is none. Written by the owner only.
    root: AtomicU64,
    /// How many tables there are. Written by the owner only, relaxed: it orders nothing.
    tables: AtomicU64,
    presence: Presence,
    asid: Asid,
}

impl CoreTable {
    fn new() -> Self {
        Self {
            root: AtomicU64::new(0),
            tables: AtomicU64::new(0),
            presence: Presence::new(),
            asid: Asid::new(),
        }
    }

    /// Relaxed: only the owner asks, or a dying space.
    #[inline(always)]
    fn root(&self) -> u64 {
        self.root.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn top(&self) -> Option<&Table> {
        let root = self.root();
        // SAFETY: the owner frees the table after it has set the root to 0, in `drop_table`.
        (root != 0).then(|| unsafe { Table::at(root) })
    }

    /// A frame of zeroes for a table more.
    fn alloc(&self, pin: &Pinned) -> Result<u64, OutOfMemory> {
        let frame = frames::alloc_table(pin).ok_or(OutOfMemory)?;
        self.tables.store(self.tables.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Ok(frame << 12)
    }

    /// Takes the table back that `entry` led to, and nothing leads to any more.
    fn free(&self, pin: &Pinned, entry: u64) {
        frames::free_table(pin, (entry & bits::ADDRESS) >> 12);
        self.tables.store(self.tables.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    /// Removes the translations of `pages`, also from the TLB. By the owner only.
    fn clear(&self, pages: PageRange) {
        if !self.presence.is_here() {
            self.asid.forget();
            return self.clear_entries(pages);
        }
        if let Some(top) = self.top() {
            // SAFETY: the owner's table; nobody frees it meanwhile.
            unsafe { table_walk::clear(top, pages, true) };
        }
    }

    /// Removes the entries of `pages` from the table, which is not in use. By the owner only.
    #[cold]
    fn clear_entries(&self, pages: PageRange) {
        if let Some(top) = self.top() {
            // SAFETY: the owner's table; nobody frees it meanwhile.
            unsafe { table_walk::clear(top, pages, false) };
        }
    }

    /// The entry of `page` is no longer what it was. By the owner only.
    #[inline(never)]
    fn flush_page(&self, page: PageNum) {
        match self.presence.is_here() {
            true => cpu::flush_page(page.get() << 12),
            false => self.asid.forget(),
        }
    }

    /// Entries of many pages are no longer what they were. By the owner only.
    fn flush(&self) {
        match self.presence.is_here() {
            true => tlb::flush_user(),
            false => self.asid.forget(),
        }
    }

    /// Runs the owner on its table, or on the kernel's map as long as it has none. With `flush`, the TLB keeps nothing of it.
    #[inline(never)]
    fn load(&self, pin: &Pinned, flush: bool) {
        match self.root() {
            0 => pcid::load_kernel(pin),
            // SAFETY: every root has the kernel's half. What the TLB has of it is right, flushed or forgotten: see `vm::Asids`.
            root => unsafe { pcid::load(pin, root, &self.asid, flush) },
        }
    }
}

/// The tables of one space, one for each core.
pub struct CoreTables<const ADAPTIVE: bool> {
    cores: PerCore<CoreTable>,
}

/// All tables are the cores' own.
pub type PerCoreTables = CoreTables<false>;
/// Leaves may be linked.
pub type AdaptiveTables = CoreTables<true>;

impl<const ADAPTIVE: bool> CoreTables<ADAPTIVE> {
    /// Tables for every core, all empty; `None` without memory.
    pub fn new() -> Option<Self> {
        Some(Self { cores: PerCore::try_new(super::cores(), |_| CoreTable::new())? })
    }

    fn top_or_new(&self, pin: &Pinned) -> Result<&Table, OutOfMemory> {
        let mine = self.cores.mine(pin);
        if let Some(top) = mine.top() {
            return Ok(top);
        }
        let root = mine.alloc(pin)?;
        // SAFETY: a frame of zeroes that is ours.
        let top = unsafe { Table::at(root) };
        top.copy_kernel_half(kernel_map::kernel_table());
        mine.root.store(root, Ordering::Relaxed);
        if mine.presence.is_here() {
            mine.load(pin, true);
        }
        Ok(top)
    }
}

/// `page`'s entry of level `lowest`, its table made if need be, in place of a huge page. By the owner only.
#[inline(always)]
fn entry_of<'a>(
    pin: &Pinned,
    mine: &CoreTable,
    top: &'a Table,
    page: PageNum,
    lowest: u32,
) -> Result<&'a AtomicU64, OutOfMemory> {
    let mut table = top;
    for level in (lowest + 1..=TOP).rev() {
        let entry = table.toward(page.get(), level);
        let value = entry.load(Ordering::Relaxed);
        debug_assert!(value & bits::LINKED == 0, "a leaf's entries are its map's");
        // SAFETY: upper entries of a user half lead to tables; the owner frees none while it fills.
        table = match unsafe { Table::below(value) } {
            Some(below) => below,
            None => {
                let below = mine.alloc(pin)?;
                drop_huge(mine, entry, page);
                entry.store(user_link(below), Ordering::Relaxed);
                // SAFETY: a frame of zeroes that now is a table.
                unsafe { Table::at(below) }
            }
        };
    }
    Ok(table.toward(page.get(), lowest))
}

/// Empties `entry`, on the way to `page`, if it is a huge page: no TLB shall find two sizes.
#[inline]
fn drop_huge(mine: &CoreTable, entry: &AtomicU64, page: PageNum) {
    if is_huge(entry.load(Ordering::Relaxed)) {
        entry.store(0, Ordering::Relaxed);
        mine.flush_page(page);
    }
}

impl<const ADAPTIVE: bool> Mmu for CoreTables<ADAPTIVE> {
    fn tables(&self) -> Tables {
        if ADAPTIVE { Tables::Adaptive } else { Tables::PerCore }
    }

    #[inline]
    fn fill(&self, pin: &Pinned, page: PageNum, frame: FrameNum, prot: Prot) -> Result<(), OutOfMemory> {
        let (mine, top) = (self.cores.mine(pin), self.top_or_new(pin)?);
        let entry = entry_of(pin, mine, top, page, 0)?;
        let old = entry.load(Ordering::Relaxed);
        // Relaxed: only this core walks the table.
        entry.store(user_leaf(frame.get(), prot), Ordering::Relaxed);
        if old & bits::PRESENT != 0 {
            mine.flush_page(page);
        }
        Ok(())
    }

    /// A table of small pages is in the way if the block had some: it is empty by now.
    fn fill_huge(
        &self,
        pin: &Pinned,
        first: PageNum,
        frame: FrameNum,
        prot: Prot,
    ) -> Result<(), OutOfMemory> {
        let (mine, top) = (self.cores.mine(pin), self.top_or_new(pin)?);
        let entry = entry_of(pin, mine, top, first, 1)?;
        let old = entry.load(Ordering::Relaxed);
        // Relaxed: only this core walks the table.
        entry.store(user_huge(frame.get(), prot), Ordering::Relaxed);
        if old & bits::PRESENT != 0 {
            // The way to the old table goes too.
            mine.flush_page(first);
        }
        if old & bits::PRESENT != 0 && !is_huge(old) {
            mine.free(pin, old);
        }
        Ok(())
    }

    fn clear(&self, pin: &Pinned, pages: PageRange) {
        self.cores.mine(pin).clear(pages);
    }

    fn shootdown(&self, pin: &Pinned, targets: &CoreSet, pages: PageRange) -> Shot {
        let mut interrupt = CoreSet::EMPTY;
        let mut shot = Shot::default();
        for target in targets.iter().filter(|&target| target != pin.core()) {
            if self.cores.of(target).presence.must_interrupt(pages) {
                interrupt.insert(target);
                shot.ipis += 1;
            } else {
                shot.avoided += 1;
            }
        }
        shootdown::run(pin, self, &interrupt, pages);
        shot
    }

    /// Never asked: the space's own trackers know.
    fn users(&self, _pin: &Pinned) -> CoreSet {
        CoreSet::first(super::cores())
    }

    #[inline]
    fn entry(&self, prot: Prot) -> u64 {
        user_leaf(0, prot) | bits::ACCESSED | bits::DIRTY
    }

    #[inline]
    fn link(&self, pin: &Pinned, page: PageNum, leaf: usize) -> Result<bool, OutOfMemory> {
        let (mine, top) = (self.cores.mine(pin), self.top_or_new(pin)?);
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
    fn clear_here(&self, pin: &Pinned, pages: PageRange) {
        self.cores.mine(pin).clear(pages);
    }
}

impl<const ADAPTIVE: bool> SpaceTables for CoreTables<ADAPTIVE> {
    fn enter(&self, pin: &Pinned) {
        let mine = self.cores.mine(pin);
        let missed = mine.presence.enter();
        if let Some(missed) = missed {
            mine.clear_entries(missed);
        }
        mine.load(pin, missed.is_some());
    }

    fn leave(&self, pin: &Pinned) {
        pcid::load_kernel(pin);
        self.cores.mine(pin).presence.leave();
    }

    fn drop_mine(&self, pin: &Pinned) {
        let _off = interrupts::off();
        let mine = self.cores.mine(pin);
        let root = mine.root.swap(0, Ordering::Relaxed);
        if root == 0 {
            return;
        }
        mine.tables.store(0, Ordering::Relaxed);
        if mine.presence.is_here() {
            pcid::load_kernel(pin);
        }
        mine.asid.forget();
        // SAFETY: the root is out of reach, of us and of the CPU.
        unsafe { table_walk::free_user_half(pin, root) };
    }

    fn table_pages(&self) -> u64 {
        self.cores.iter().map(|core| core.tables.load(Ordering::Relaxed)).sum()
    }

    fn each_frame(&self, visit: &mut dyn FnMut(u64)) {
        let roots = self.cores.iter().map(CoreTable::root).filter(|&root| root != 0);
        // SAFETY: tables are freed by their cores before the space is retired, and with the space.
        roots.for_each(|root| unsafe { table_walk::each_frame(root, visit) });
    }
}

impl<const ADAPTIVE: bool> Drop for CoreTables<ADAPTIVE> {
    fn drop(&mut self) {
        let pin = percore::pin();
        for table in self.cores.iter().filter(|table| table.root() != 0) {
            // SAFETY: no core runs the space: each that does holds a reference to it.
            unsafe { table_walk::free_user_half(&pin, table.root()) };
        }
    }
}
