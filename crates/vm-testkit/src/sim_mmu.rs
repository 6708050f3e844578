//! Software tables and software TLBs.
//!
//! A load or store reads the core's TLB, then the table, as hardware does. Only the core itself, or an
//! interrupt on it, takes entries out of its TLB. So a shootdown that was forgotten leaves a usable
//! translation behind, and the next access, the freeing of the frame, or [`SimMmu::translations`] brings it
//! to light.
//!
//! A core may leave the space ([`SimMmu::leave`]). It keeps a table of its own then, and is told what it must
//! clear there when it comes back, or when it fills there for another process: `vm::Presence`. With one table
//! for all it has nothing left, and is no user of the space until it comes back.
//!
//! With [`Tables::Adaptive`] an upper entry leads to a leaf of the space, whose words are read as they are at
//! that moment. A leaf that has gone meanwhile is noticed.

mod absence;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use percore::{CoreId, CoreSet, PerCore, Pinned};
use vm::{
    Access, AddressSpace, FrameNum, HUGE_PAGES, Mmu, OutOfMemory, PageNum, PageRange, Presence, Prot, Shot,
    Tables,
};

use crate::cache::{Cache, Found, Translation};
use crate::{Call, FrameStore, Machine};

/// Pages of a leaf.
const LEAF: u64 = HUGE_PAGES;

/// The translations of one core, or of all.
struct State {
    kind: Tables,
    /// One for each core. With [`Tables::Shared`] only the first is used.
    tables: PerCore<Mutex<Cache>>,
    tlbs: PerCore<Mutex<Cache>>,
    /// The leaves that each core is linked to: which, and where.
    links: PerCore<Mutex<HashMap<u64, usize>>>,
    presence: PerCore<Presence>,
}

impl State {
    fn table(&self, core: CoreId) -> &Mutex<Cache> {
        match self.kind {
            Tables::PerCore | Tables::Adaptive => self.tables.of(core),
            Tables::Shared => self.tables.of(CoreId::new(0)),
        }
    }

    /// Does the work of an interrupt on `core`.
    fn flush(&self, frames: &FrameStore, core: CoreId, pages: PageRange) {
        if self.kind != Tables::Shared {
            self.clear(frames, core, pages);
        }
        self.tlbs.of(core).lock().unwrap().clear(frames, pages);
    }

    /// Returns the cores that run the space. A core that comes later walks the one table after it has
    /// announced itself.
    fn users(&self) -> CoreSet {
        let cores = (0..self.presence.cores()).map(CoreId::new);
        cores.filter(|&core| self.presence.of(core).is_here()).collect()
    }

    fn clear(&self, frames: &FrameStore, core: CoreId, pages: PageRange) {
        self.table(core).lock().unwrap().clear(frames, pages);
        self.links.of(core).lock().unwrap().retain(|&leaf, _| !pages.covers(pages_of(leaf)));
    }
}

fn pages_of(leaf: u64) -> PageRange {
    PageRange::between(PageNum::new(leaf * LEAF), PageNum::new((leaf + 1) * LEAF))
}

/// The translations of one space on a [`Machine`].
pub struct SimMmu {
    machine: Arc<Machine>,
    state: Arc<State>,
    refuses: AtomicBool,
}

impl SimMmu {
    /// Returns an MMU without translations, whose space every core runs.
    pub fn new(machine: &Arc<Machine>, kind: Tables) -> Self {
        let caches = || PerCore::new(machine.cores(), |_| Mutex::default());
        let links = PerCore::new(machine.cores(), |_| Mutex::default());
        let presence = PerCore::new(machine.cores(), |_| absence::here());
        let state = State { kind, tables: caches(), tlbs: caches(), links, presence };
        Self { machine: machine.clone(), state: Arc::new(state), refuses: AtomicBool::new(false) }
    }

    /// From now on there is no memory for table pages, or there is again.
    pub fn set_exhausted(&self, exhausted: bool) {
        self.refuses.store(exhausted, SeqCst);
    }

    /// Empties the tables and TLBs. No core runs the space any more, or ever will.
    pub fn retire(&self) {
        for cache in self.state.tables.iter().chain(self.state.tlbs.iter()) {
            cache.lock().unwrap().empty(&self.machine.frames);
        }
        self.state.links.iter().for_each(|links| links.lock().unwrap().clear());
    }

    /// How this core's hardware translates `page` of `space`, which is ours, filling its TLB from the table
    /// on the way.
    pub fn translate(
        &self,
        pin: &Pinned,
        space: &dyn AddressSpace,
        page: PageNum,
        access: Access,
    ) -> Option<FrameNum> {
        let mut tlb = self.state.tlbs.mine(pin).lock().unwrap();
        if let Some(hit) = tlb.get(page, access) {
            return Some(hit.at(page).frame);
        }
        let found = self.walk(pin, space, page, access)?;
        tlb.evict_for(&self.machine.frames, found);
        tlb.put(&self.machine.frames, found);
        Some(found.at(page).frame)
    }

    fn fill_all(&self, pin: &Pinned, found: Found) -> Result<(), OutOfMemory> {
        assert!(found.first.prot != Prot::NONE, "{found:?} is filled without rights");
        self.machine.interposed.meet(Call::Fill, pin);
        self.catch_up(pin);
        let region = found.pages.start().get() / LEAF;
        let linked = self.state.links.mine(pin).lock().unwrap().contains_key(&region);
        assert!(!linked, "{found:?} is filled behind a link");
        if self.refuses.load(SeqCst) {
            return Err(OutOfMemory);
        }
        let frames = &self.machine.frames;
        self.state.tlbs.mine(pin).lock().unwrap().clear(frames, found.pages);
        let mut table = self.state.table(pin.core()).lock().unwrap();
        assert!(!table.would_lose_small(found), "{found:?} takes the place of pages that nobody took back");
        table.put(frames, found);
        Ok(())
    }

    fn walk(&self, pin: &Pinned, space: &dyn AddressSpace, page: PageNum, access: Access) -> Option<Found> {
        let leaf = self.state.links.mine(pin).lock().unwrap().get(&(page.get() / LEAF)).copied();
        let Some(leaf) = leaf else {
            return self.state.table(pin.core()).lock().unwrap().get(page, access);
        };
        let first = read_leaf(pin, space, page, leaf).filter(|found| found.prot.allows(access))?;
        Some(Found { pages: PageRange::one(page), first })
    }

    /// Returns the cores that are linked to the leaf of `page`, with the translation that each finds there.
    pub fn through_leaf(
        &self,
        pin: &Pinned,
        space: &dyn AddressSpace,
        page: PageNum,
    ) -> Vec<(usize, Translation)> {
        let read = |(core, links): (usize, &Mutex<HashMap<_, _>>)| {
            if !self.state.presence.of(CoreId::new(core)).is_here() {
                return None;
            }
            let leaf = *links.lock().unwrap().get(&(page.get() / LEAF))?;
            read_leaf(pin, space, page, leaf).map(|found| (core, found))
        };
        self.state.links.iter().enumerate().filter_map(read).collect()
    }

    /// Returns how many links to leaves there are, on all cores.
    pub fn links(&self) -> usize {
        self.state.links.iter().map(|links| links.lock().unwrap().len()).sum()
    }

    /// Returns how many table pages of their own have entries, on all cores.
    pub fn own_pages(&self) -> usize {
        let leaves = |table: &Mutex<Cache>| {
            let entries = table.lock().unwrap();
            entries.iter().map(|(page, _)| page.get() / LEAF).collect::<HashSet<_>>().len()
        };
        self.state.tables.iter().map(leaves).sum()
    }

    /// Takes this core's own table away, and what it has in its TLB.
    pub fn drop_mine(&self, pin: &Pinned) {
        let frames = &self.machine.frames;
        self.state.links.mine(pin).lock().unwrap().clear();
        self.state.tables.mine(pin).lock().unwrap().empty(frames);
        self.state.tlbs.mine(pin).lock().unwrap().empty(frames);
    }

    /// Every translation that any core could use without a leaf: core, page, what it says.
    pub fn translations(&self) -> Vec<(usize, PageNum, Translation)> {
        let entries = |(core, cache): (usize, &Mutex<Cache>)| {
            let entries: Vec<_> = cache.lock().unwrap().iter().map(|(page, it)| (core, page, it)).collect();
            entries
        };
        let (tables, tlbs) = (self.state.tables.iter().enumerate(), self.state.tlbs.iter().enumerate());
        tables.chain(tlbs).flat_map(entries).collect()
    }
}

impl Mmu for SimMmu {
    fn tables(&self) -> Tables {
        self.state.kind
    }

    fn fill(&self, pin: &Pinned, page: PageNum, frame: FrameNum, prot: Prot) -> Result<(), OutOfMemory> {
        self.fill_all(pin, Found { pages: PageRange::one(page), first: Translation { frame, prot } })
    }

    fn fill_huge(
        &self,
        pin: &Pinned,
        first: PageNum,
        frame: FrameNum,
        prot: Prot,
    ) -> Result<(), OutOfMemory> {
        let aligned = |number: u64| number.is_multiple_of(HUGE_PAGES);
        assert!(aligned(first.get()) && aligned(frame.get()), "{first:?} and {frame:?} are no huge page");
        let pages = PageRange::new(first, HUGE_PAGES).expect("a range of numbers");
        self.fill_all(pin, Found { pages, first: Translation { frame, prot } })
    }

    fn clear(&self, pin: &Pinned, pages: PageRange) {
        self.state.clear(&self.machine.frames, pin.core(), pages);
        self.state.tlbs.mine(pin).lock().unwrap().clear(&self.machine.frames, pages);
        self.machine.interposed.meet(Call::Clear, pin);
    }

    fn shootdown(&self, pin: &Pinned, targets: &CoreSet, pages: PageRange) -> Shot {
        self.machine.interposed.meet(Call::Shootdown, pin);
        let mut shot = Shot::default();
        let must_hear = |core| self.state.presence.of(core).must_interrupt(pages);
        let pending = Arc::new(AtomicUsize::new(0));
        for core in targets.iter().filter(|&core| core != pin.core()) {
            if self.state.kind != Tables::Shared && !must_hear(core) {
                shot.avoided += 1;
                continue;
            }
            pending.fetch_add(1, SeqCst);
            let (machine, state, pending) = (self.machine.clone(), self.state.clone(), pending.clone());
            let interrupted = self.machine.interrupt(core, move || {
                state.flush(&machine.frames, core, pages);
                pending.fetch_sub(1, SeqCst);
            });
            *(if interrupted { &mut shot.ipis } else { &mut shot.avoided }) += 1;
        }
        while pending.load(SeqCst) != 0 {
            self.machine.turn(pin);
        }
        shot
    }

    fn users(&self, pin: &Pinned) -> CoreSet {
        let users = self.state.users();
        self.machine.interposed.meet(Call::Users, pin);
        users
    }

    fn entry(&self, prot: Prot) -> u64 {
        1 | prot.bits() << 1
    }

    fn link(&self, pin: &Pinned, page: PageNum, leaf: usize) -> Result<bool, OutOfMemory> {
        self.machine.interposed.meet(Call::Link, pin);
        self.catch_up(pin);
        let region = page.get() / LEAF;
        let mut links = self.state.links.mine(pin).lock().unwrap();
        if links.get(&region) == Some(&leaf) {
            return Ok(false);
        }
        if self.refuses.load(SeqCst) {
            return Err(OutOfMemory);
        }
        assert_eq!(links.insert(region, leaf), None, "a link in place of another");
        drop(links);
        let frames = &self.machine.frames;
        self.state.tables.mine(pin).lock().unwrap().clear(frames, pages_of(region));
        self.state.tlbs.mine(pin).lock().unwrap().clear(frames, pages_of(region));
        Ok(true)
    }
}

/// Returns what a walk that comes to the leaf at `leaf` finds for `page`.
fn read_leaf(pin: &Pinned, space: &dyn AddressSpace, page: PageNum, leaf: usize) -> Option<Translation> {
    let (at, word) = space.walk(pin, page).expect("a core is linked to a leaf that has gone");
    assert_eq!(at, leaf, "a core is linked to a leaf that has gone");
    Translation::decode(word)
}
