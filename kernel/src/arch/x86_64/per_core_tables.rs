//! The translations of one space with a page table per core: only its owner reads or writes a core's table.
//!
//! A core's table is a cache of the space's metadata: it is made when the core first faults, and may be dropped
//! at any time on its own core; the next touch faults again.
//!
//! A core that does not run the space is not interrupted: `vm::Presence` holds what it missed, and it clears that before it
//! loads its table again.
//!
//! # Interrupt handlers and the table
//! A shootdown's handler may hit this core while it fills or clears. They never meet in an entry: both hold
//! the slots of their pages in the space's map, and `enter`, which holds none, has interrupts off. Tables are added by the
//! owner outside handlers, and freed with interrupts off.

use core::sync::atomic::{AtomicU64, Ordering};

use percore::{CoreSet, PerCore, Pinned};
use vm::{FrameNum, Mmu, OutOfMemory, PageNum, PageRange, Presence, Prot, Shot, Tables};

use super::page_table::{TOP, Table, bits, is_huge, user_huge, user_leaf, user_link};
use super::shootdown::{self, Clearable};
use super::space_tables::SpaceTables;
use super::{cpu, interrupts, kernel_map, table_walk};
use crate::mm::frames;
use crate::mm::owner::Owner;

/// One core's part.
struct CoreTable {
    /// Physical address of the top table, 0 if there is none. Written by the owner only.
    root: AtomicU64,
    /// How many tables there are. Written by the owner only, relaxed: it orders nothing.
    tables: AtomicU64,
    presence: Presence,
}

impl CoreTable {
    fn new() -> Self {
        Self { root: AtomicU64::new(0), tables: AtomicU64::new(0), presence: Presence::new() }
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

    /// Removes the translations of `pages`, also from the TLB if the table is in use. By the owner only.
    fn clear(&self, pages: PageRange) {
        if let Some(top) = self.top() {
            // SAFETY: the owner's table; nobody frees it meanwhile.
            unsafe { table_walk::clear(top, pages, self.presence.is_here()) };
        }
    }
}

/// The tables of one space, one for each core.
pub struct PerCoreTables {
    cores: PerCore<CoreTable>,
}

impl PerCoreTables {
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
            // SAFETY: its kernel half is the kernel's.
            unsafe { cpu::set_cr3(root) };
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
        // SAFETY: upper entries of a user half lead to tables; the owner frees none while it fills.
        table = match unsafe { Table::below(entry.load(Ordering::Relaxed)) } {
            Some(below) => below,
            None => {
                let below = mine.alloc(pin)?;
                drop_huge(entry, page);
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
fn drop_huge(entry: &AtomicU64, page: PageNum) {
    if is_huge(entry.load(Ordering::Relaxed)) {
        entry.store(0, Ordering::Relaxed);
        cpu::flush_page(page.get() << 12);
    }
}

impl Mmu for PerCoreTables {
    fn tables(&self) -> Tables {
        Tables::PerCore
    }

    #[inline]
    fn fill(&self, pin: &Pinned, page: PageNum, frame: FrameNum, prot: Prot) -> Result<(), OutOfMemory> {
        let (mine, top) = (self.cores.mine(pin), self.top_or_new(pin)?);
        let entry = entry_of(pin, mine, top, page, 0)?;
        let old = entry.load(Ordering::Relaxed);
        // Relaxed: only this core walks the table.
        entry.store(user_leaf(frame.get(), prot), Ordering::Relaxed);
        if old & bits::PRESENT != 0 {
            cpu::flush_page(page.get() << 12);
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
            cpu::flush_page(first.get() << 12);
        }
        if old & bits::PRESENT != 0 && !is_huge(old) {
            frames::free_table(pin, (old & bits::ADDRESS) >> 12);
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
}

impl Clearable for PerCoreTables {
    fn clear_here(&self, pin: &Pinned, pages: PageRange) {
        self.cores.mine(pin).clear(pages);
    }
}

impl SpaceTables for PerCoreTables {
    fn enter(&self, pin: &Pinned) {
        let mine = self.cores.mine(pin);
        if let Some(missed) = mine.presence.enter() {
            mine.clear(missed);
        }
        let root = if mine.root() != 0 { mine.root() } else { kernel_map::kernel_root() };
        // SAFETY: every root has the kernel's half. Loading it empties the TLB of what was cleared above.
        unsafe { cpu::set_cr3(root) };
    }

    fn leave(&self, pin: &Pinned) {
        kernel_map::load();
        self.cores.mine(pin).presence.leave();
    }

    fn drop_mine(&self, pin: &Pinned, floor: u64) {
        let _off = interrupts::off();
        let mine = self.cores.mine(pin);
        if mine.tables.load(Ordering::Relaxed) <= floor {
            return;
        }
        let root = mine.root.swap(0, Ordering::Relaxed);
        if root == 0 {
            return;
        }
        mine.tables.store(0, Ordering::Relaxed);
        if mine.presence.is_here() {
            kernel_map::load();
        }
        // SAFETY: the root is out of reach, of us and of the CPU.
        unsafe { table_walk::free_user_half(pin, root) };
    }

    fn table_pages(&self) -> u64 {
        self.cores.iter().map(|core| core.tables.load(Ordering::Relaxed)).sum()
    }

    fn each_frame(&self, visit: &mut dyn FnMut(u64, Owner)) {
        let roots = self.cores.iter().map(CoreTable::root).filter(|&root| root != 0);
        // SAFETY: tables are freed by their cores before the space is retired, and with the space.
        roots.for_each(|root| unsafe { table_walk::each_frame(root, visit) });
    }
}

impl Drop for PerCoreTables {
    fn drop(&mut self) {
        let pin = percore::pin();
        for table in self.cores.iter().filter(|table| table.root() != 0) {
            // SAFETY: no core runs the space: each that does holds a reference to it.
            unsafe { table_walk::free_user_half(&pin, table.root()) };
        }
    }
}
