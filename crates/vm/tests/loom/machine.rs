//! The translations of a space: one page table, or one for each core, which may lead to the space's leaves,
//! and a TLB for each core.

use std::sync::Arc;

use loom::sync::{Mutex, MutexGuard};
use percore::{CoreId, CoreSet, Pinned};
use test_memory::Watched;
use vm::{Access, FrameNum, HUGE_PAGES, Mmu, OutOfMemory, PageNum, PageRange, Prot, Shot, Tables};

pub const CORES: usize = 2;
pub const PAGES: u64 = 8;

/// The bit of a leaf's word that makes it an entry.
const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;

type Translation = Option<(FrameNum, Prot)>;

/// The state of a core's hardware.
#[derive(Default)]
struct Core {
    /// The translations that it has used, or has in a table of its own.
    tlb: [Translation; PAGES as usize],
    /// The leaf to which its upper table leads.
    leaf: Option<usize>,
}

#[derive(Clone)]
pub struct Machine(Arc<Parts>);

struct Parts {
    tables: Tables,
    /// The one table. Loom reports an entry that is written by a core that does not hold its page.
    table: [Watched<Translation>; PAGES as usize],
    cores: [Mutex<Core>; CORES],
}

impl Machine {
    pub fn new(tables: Tables) -> Self {
        Self(Arc::new(Parts { tables, table: Default::default(), cores: Default::default() }))
    }

    /// Returns the translation of the one table. The TLBs must agree where they have one.
    pub fn translation(&self, page: PageNum) -> Translation {
        let entry = self.0.table[index(page)].get();
        for cached in self.cached(page) {
            assert!(Some(cached) == entry, "{page:?}: a TLB has {cached:?}, the table {entry:?}");
        }
        entry
    }

    /// Returns the translations in the TLBs.
    pub fn cached(&self, page: PageNum) -> impl Iterator<Item = (FrameNum, Prot)> {
        self.0.cores.iter().filter_map(move |core| core.lock().unwrap().tlb[index(page)])
    }

    /// The core does `act` with the page's frame, if `access` is allowed by its TLB, or else by what a `walk`
    /// of the space finds: a leaf, and the page's word in it. No shootdown comes between.
    pub fn access<T>(
        &self,
        pin: &Pinned,
        page: PageNum,
        access: Access,
        walk: impl FnOnce() -> Option<(usize, u64)>,
        act: impl FnOnce(FrameNum) -> T,
    ) -> Option<T> {
        let mut core = self.core(pin.core());
        if core.tlb[index(page)].is_none() && core.leaf.is_some() {
            core.tlb[index(page)] = walk().filter(|&(at, _)| core.leaf == Some(at)).and_then(translated);
        }
        let (frame, _) = core.tlb[index(page)].filter(|(_, prot)| prot.allows(access))?;
        Some(act(frame))
    }

    fn core(&self, core: CoreId) -> MutexGuard<'_, Core> {
        self.0.cores[core.index()].lock().unwrap()
    }

    fn flush(&self, core: CoreId, pages: PageRange) {
        let mut core = self.core(core);
        pages.iter().for_each(|page| core.tlb[index(page)] = None);
        core.leaf = core.leaf.filter(|_| pages.pages() < HUGE_PAGES);
    }

    fn set(&self, page: PageNum, translation: Translation) {
        if self.0.tables == Tables::Shared {
            self.0.table[index(page)].set(translation);
        }
    }
}

/// Returns the translation in a word of a leaf.
fn translated((_, word): (usize, u64)) -> Translation {
    let prot = if word & WRITABLE != 0 { Prot::READ | Prot::WRITE } else { Prot::READ };
    (word & PRESENT != 0).then(|| (FrameNum::new(word >> 12 & 0xffff), prot))
}

fn index(page: PageNum) -> usize {
    page.get() as usize
}

impl Mmu for Machine {
    fn tables(&self) -> Tables {
        self.0.tables
    }

    /// The core uses the translation at once.
    fn fill(&self, pin: &Pinned, page: PageNum, frame: FrameNum, prot: Prot) -> Result<(), OutOfMemory> {
        self.set(page, Some((frame, prot)));
        self.core(pin.core()).tlb[index(page)] = Some((frame, prot));
        Ok(())
    }

    fn clear(&self, pin: &Pinned, pages: PageRange) {
        pages.iter().for_each(|page| self.set(page, None));
        self.flush(pin.core(), pages);
    }

    fn shootdown(&self, _: &Pinned, targets: &CoreSet, pages: PageRange) -> Shot {
        targets.iter().for_each(|core| self.flush(core, pages));
        Shot::default()
    }

    fn users(&self, _: &Pinned) -> CoreSet {
        CoreSet::first(CORES)
    }

    fn entry(&self, prot: Prot) -> u64 {
        if prot.allows(Access::Write) { PRESENT | WRITABLE } else { PRESENT }
    }

    /// Links the leaf, and drops what the core had in a table of its own.
    fn link(&self, pin: &Pinned, _: PageNum, leaf: usize) -> Result<bool, OutOfMemory> {
        let mut core = self.core(pin.core());
        let before = core.leaf;
        *core = Core { leaf: Some(leaf), ..Core::default() };
        Ok(before != Some(leaf))
    }
}
