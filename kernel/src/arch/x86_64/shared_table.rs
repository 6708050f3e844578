//! The translations of one space in one page table for all cores: a baseline, and the design of other
//! systems.
//!
//! Cores add tables concurrently, each by a compare-and-swap of an empty entry. An entry of level 0 is
//! written under the slot of its page, an entry of level 1 for a huge page under the slot of its block.
//! Tables stay until the space goes. A core that runs the space is in `users`. Every shootdown goes to all
//! users, because the table does not record which cores used a translation:
//!
//! ```text
//!   clear, then ask for users               enter
//!   1  entry := 0                           1  users ∪= me
//!   2  fence                                2  (the same instruction is a fence)
//!   3  read users: me? → interrupt          3  load CR3; walk entries
//! ```
//! If step 3 on the left misses the core, its bit was set after the fence, so its walks see the empty entry.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use percore::{CoreId, CoreSet, MAX_CORES, Pinned};
use vm::{FrameNum, Mmu, OutOfMemory, PageNum, PageRange, Prot, Shot, Tables};

use super::above::KernelFrames;
use super::entry_count;
use super::page_table::{ENTRIES, TOP, Table, bits, is_huge, user_huge, user_leaf, user_link};
use super::shootdown::{self, Clearable};
use super::space_tables::{PIECE, SpaceTables};
use super::{cpu, kernel_map, table_walk, tlb};
use crate::above::Above;

/// One space's table.
pub struct SharedTable {
    /// 0 if it was freed.
    root: u64,
    users: [AtomicU64; MAX_CORES / 64],
}

impl SharedTable {
    /// Creates an empty table. Returns `None` without memory.
    pub fn new(pin: &Pinned) -> Option<Self> {
        let root = Above::alloc_table(pin)? << 12;
        // SAFETY: a frame of zeroes that only this function uses.
        unsafe { Table::at(root) }.copy_kernel_half(kernel_map::kernel_table());
        Some(Self { root, users: Default::default() })
    }

    #[inline(always)]
    fn top(&self) -> &Table {
        // SAFETY: the root lives as long as `self`.
        unsafe { Table::at(self.root) }
    }

    /// Returns `page`'s entry of level `lowest`, and makes its table if there is none, in place of a huge
    /// page.
    fn entry_of(&self, pin: &Pinned, page: PageNum, lowest: u32) -> Result<&AtomicU64, OutOfMemory> {
        let mut table = self.top();
        for level in (lowest + 1..=TOP).rev() {
            table = below_or_new(pin, table.toward(page.get(), level), page)?;
        }
        Ok(table.toward(page.get(), lowest))
    }

    /// Returns whether this core runs on the table.
    fn in_use(&self) -> bool {
        cpu::cr3() == self.root
    }

    fn bit(&self, core: CoreId) -> (&AtomicU64, u64) {
        (&self.users[core.index() / 64], 1 << (core.index() % 64))
    }
}

/// Empties `entry`, on the way to `page`, if it is still the huge page `seen`, and returns its value then. It
/// cannot become a huge page again while a slot of its block is locked, as the caller's is.
#[cold]
fn drop_huge(entry: &AtomicU64, seen: u64, page: PageNum) -> u64 {
    // Acquire: a faster core may have put a table there. Pairs as in `below_or_new`.
    let now = entry.compare_exchange(seen, 0, Ordering::Acquire, Ordering::Acquire);
    cpu::flush_page(page.get() << 12);
    now.map_or_else(|theirs| theirs, |_| 0)
}

/// Returns the table that `entry`, on the way to `page`, leads to, and makes it if there is none.
fn below_or_new<'a>(pin: &Pinned, entry: &AtomicU64, page: PageNum) -> Result<&'a Table, OutOfMemory> {
    // Acquire pairs with the Release below: the table is seen zeroed.
    let mut value = entry.load(Ordering::Acquire);
    if is_huge(value) {
        value = drop_huge(entry, value, page);
    }
    if value == 0 {
        let frame = Above::alloc_table(pin).ok_or(OutOfMemory)?;
        let link = user_link(frame << 12);
        value = match entry.compare_exchange(0, link, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => link,
            Err(theirs) => {
                Above::free_table(pin, frame);
                theirs
            }
        };
    }
    // SAFETY: an upper entry of a user half leads to a table, which lives as long as the space.
    unsafe { Table::below(value) }.ok_or(OutOfMemory)
}

/// Fills a table with small pages. Returns whether it had some before.
fn fill_all(table: &Table, first: FrameNum, prot: Prot) -> bool {
    let fill = |at: usize| entry_count::replace(table.entry(at), user_leaf(first.get() + at as u64, prot));
    (0..ENTRIES).map(fill).filter(|old| old & bits::PRESENT != 0).count() > 0
}

impl Mmu for SharedTable {
    fn tables(&self) -> Tables {
        Tables::Shared
    }

    fn fill(&self, pin: &Pinned, page: PageNum, frame: FrameNum, prot: Prot) -> Result<(), OutOfMemory> {
        let old = entry_count::replace(self.entry_of(pin, page, 0)?, user_leaf(frame.get(), prot));
        if old & bits::PRESENT != 0 {
            cpu::flush_page(page.get() << 12);
        }
        Ok(())
    }

    /// Fills the table if there is one already: to free it, all cores that may walk it would have to be
    /// interrupted.
    fn fill_huge(
        &self,
        pin: &Pinned,
        first: PageNum,
        frame: FrameNum,
        prot: Prot,
    ) -> Result<(), OutOfMemory> {
        let entry = self.entry_of(pin, first, 1)?;
        // SAFETY: an entry of level 1, and tables live as long as the space.
        let stale = match unsafe { Table::below(entry.load(Ordering::Acquire)) } {
            Some(table) => fill_all(table, frame, prot),
            None => is_huge(entry.swap(user_huge(frame.get(), prot), Ordering::AcqRel)),
        };
        if stale {
            tlb::flush_user();
        }
        Ok(())
    }

    fn clear(&self, pin: &Pinned, pages: PageRange) {
        self.clear_all(pin, &[pages]);
    }

    fn clear_all(&self, _pin: &Pinned, runs: &[PageRange]) {
        // SAFETY: tables are freed with the space only.
        unsafe {
            match entry_count::is_used() {
                true => table_walk::clear::<true>(self.top(), runs, self.in_use()),
                false => table_walk::clear::<false>(self.top(), runs, self.in_use()),
            }
        }
    }

    fn shootdown(&self, pin: &Pinned, targets: &CoreSet, pages: PageRange) -> Shot {
        let mut others = *targets;
        others.remove(pin.core());
        shootdown::run(pin, self, &others, pages);
        Shot { ipis: others.len() as u32, avoided: 0 }
    }

    fn users(&self, _pin: &Pinned) -> CoreSet {
        fence(Ordering::SeqCst); // partner of the read-modify-write in `enter`
        let is_user = |core: &CoreId| {
            let (word, bit) = self.bit(*core);
            word.load(Ordering::Relaxed) & bit != 0
        };
        (0..super::cores()).map(CoreId::new).filter(is_user).collect()
    }

    /// Never called, since [`link`](Mmu::link) fails.
    fn entry(&self, prot: Prot) -> u64 {
        user_leaf(0, prot)
    }

    fn link(&self, _pin: &Pinned, _page: PageNum, _leaf: usize) -> Result<bool, OutOfMemory> {
        Err(OutOfMemory)
    }
}

impl Clearable for SharedTable {
    fn clear_here(&self, _pin: &Pinned, pages: PageRange) {
        match self.in_use() {
            true if pages.pages() > tlb::MOST_SINGLE as u64 => tlb::flush_user(),
            true => pages.iter().for_each(|page| cpu::flush_page(page.get() << 12)),
            false => {}
        }
    }
}

impl SpaceTables for SharedTable {
    fn enter(&self, pin: &Pinned) {
        let (word, bit) = self.bit(pin.core());
        word.fetch_or(bit, Ordering::SeqCst);
        // SAFETY: the table has the kernel's half.
        unsafe { cpu::set_cr3(self.root) };
    }

    fn leave(&self, pin: &Pinned) {
        kernel_map::load();
        let (word, bit) = self.bit(pin.core());
        // Release: the TLB was emptied before.
        word.fetch_and(!bit, Ordering::Release);
    }

    /// Does nothing: the table is not this core's alone.
    fn drop_mine(&self, _pin: &Pinned) {}

    fn table_pages(&self) -> u64 {
        // SAFETY: tables are freed with the space only.
        unsafe { table_walk::count(self.root) }
    }

    fn free_piece(&mut self, pin: &Pinned) -> bool {
        // SAFETY: no core runs the space: each that does holds a reference to it.
        if self.root != 0 && !unsafe { table_walk::free_user_half(pin, self.root, PIECE) } {
            return true;
        }
        self.root = 0;
        false
    }

    fn each_frame(&self, visit: &mut dyn FnMut(u64)) {
        // SAFETY: tables are freed with the space only.
        unsafe { table_walk::each_frame(self.root, visit) };
    }

    fn counts_read(&self, page: PageNum, frame: FrameNum) -> bool {
        // SAFETY: as for `each_frame`.
        unsafe { entry_count::is_counted(self.top(), page, frame) }
    }
}

impl Drop for SharedTable {
    fn drop(&mut self) {
        let pin = percore::pin();
        while self.free_piece(&pin) {}
    }
}
