//! The translations of a space: one page table or one for each core, and a TLB for each core.

use std::sync::Arc;

use loom::sync::{Mutex, MutexGuard};
use percore::{CoreId, CoreSet, Pinned};
use test_memory::Watched;
use vm::{Access, FrameNum, Mmu, OutOfMemory, PageNum, PageRange, Prot, Shot, Tables};

pub const CORES: usize = 2;
pub const PAGES: u64 = 8;

type Translation = Option<(FrameNum, Prot)>;
type Tlb = [Translation; PAGES as usize];

#[derive(Clone)]
pub struct Machine(Arc<Parts>);

struct Parts {
    tables: Tables,
    /// The one table. Loom reports an entry that is written by somebody who does not hold its page.
    table: [Watched<Translation>; PAGES as usize],
    /// Those of tables of their own too: a core uses what it fills at once.
    tlbs: [Mutex<Tlb>; CORES],
}

impl Machine {
    pub fn new(tables: Tables) -> Self {
        Self(Arc::new(Parts { tables, table: Default::default(), tlbs: Default::default() }))
    }

    /// What the one table says, and the TLBs too where they say something.
    pub fn translation(&self, page: PageNum) -> Translation {
        let entry = self.0.table[index(page)].get();
        for cached in self.cached(page) {
            assert!(Some(cached) == entry, "{page:?}: a TLB has {cached:?}, the table {entry:?}");
        }
        entry
    }

    /// What the TLBs say.
    pub fn cached(&self, page: PageNum) -> impl Iterator<Item = (FrameNum, Prot)> {
        self.0.tlbs.iter().filter_map(move |tlb| tlb.lock().unwrap()[index(page)])
    }

    /// The core does `act` with the page's frame, if its TLB allows `access`. No shootdown comes between.
    pub fn access<T>(
        &self,
        pin: &Pinned,
        page: PageNum,
        access: Access,
        act: impl FnOnce(FrameNum) -> T,
    ) -> Option<T> {
        let tlb = self.tlb(pin.core());
        let (frame, _) = tlb[index(page)].filter(|(_, prot)| prot.allows(access))?;
        Some(act(frame))
    }

    fn tlb(&self, core: CoreId) -> MutexGuard<'_, Tlb> {
        self.0.tlbs[core.index()].lock().unwrap()
    }

    fn flush(&self, core: CoreId, pages: PageRange) {
        let mut tlb = self.tlb(core);
        pages.iter().for_each(|page| tlb[index(page)] = None);
    }

    fn set(&self, page: PageNum, translation: Translation) {
        if self.0.tables == Tables::Shared {
            self.0.table[index(page)].set(translation);
        }
    }
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
        self.tlb(pin.core())[index(page)] = Some((frame, prot));
        Ok(())
    }

    fn fill_huge(&self, _: &Pinned, _: PageNum, _: FrameNum, _: Prot) -> Result<(), OutOfMemory> {
        unreachable!("nothing is huge")
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

    fn entry(&self, _: Prot) -> u64 {
        unreachable!("no leaf is linked")
    }

    fn link(&self, _: &Pinned, _: PageNum, _: usize) -> Result<bool, OutOfMemory> {
        unreachable!("no leaf is linked")
    }
}
