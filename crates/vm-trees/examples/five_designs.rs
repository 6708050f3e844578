//! One program in each of the five designs, over page tables of your own.
//!
//! Two threads play two cores, which share one page table: a hash map. Each core maps a page, writes to it
//! and unmaps it, and no core touches the other's page. Each unmap interrupts the other core all the same:
//! with a shared table it is not known which cores have a page in their TLBs. `RadixSpace` of `radixvm-vm`
//! knows it.
//!
//! Run it: `cargo run --example five_designs`
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::thread;

use percore::{CoreId, CoreSet, Pinned};
use refcache::Refcache;
use vm::{
    Access, AddressSpace, Backings, Event, FrameNum, Frames, Layout, Mapping, Mmu, NodeCounters, OutOfMemory,
    PageNum, PageRange, Placement, Prot, Shot, Tables,
};
use vm_trees::{Locking, TreeSpace};

const CORES: usize = 2;
const FRAMES: u64 = 4;

/// One table for both cores, from pages to frames and rights.
#[derive(Default)]
struct HashTable(Mutex<HashMap<u64, (FrameNum, Prot)>>);

impl Mmu for HashTable {
    fn tables(&self) -> Tables {
        Tables::Shared
    }
    fn fill(&self, _: &Pinned, page: PageNum, frame: FrameNum, prot: Prot) -> Result<(), OutOfMemory> {
        self.0.lock().expect("nobody panicked").insert(page.get(), (frame, prot));
        Ok(())
    }
    fn clear(&self, _: &Pinned, pages: PageRange) {
        self.0.lock().expect("nobody panicked").retain(|&page, _| !pages.contains(PageNum::new(page)));
    }
    /// A real machine interrupts the targets, which flush their TLBs. These cores have none.
    fn shootdown(&self, pin: &Pinned, targets: &CoreSet, _: PageRange) -> Shot {
        let others = targets.iter().filter(|&core| core != pin.core());
        Shot { ipis: others.count() as u32, avoided: 0 }
    }
    fn users(&self, _: &Pinned) -> CoreSet {
        CoreSet::first(CORES)
    }
}

/// The numbers of the free frames.
struct Memory(Mutex<Vec<FrameNum>>);

impl Memory {
    fn free_frames(&self) -> usize {
        self.0.lock().expect("nobody panicked").len()
    }
}

impl Frames for &'static Memory {
    fn alloc_zeroed(&self, _: &Pinned) -> Option<FrameNum> {
        self.0.lock().expect("nobody panicked").pop()
    }
    fn free(&self, _: &Pinned, frame: FrameNum) {
        self.0.lock().expect("nobody panicked").push(frame);
    }
    // The rest is for forks.
    fn alloc_copy(&self, _: &Pinned, _: FrameNum) -> Option<FrameNum> {
        unreachable!("nothing forks")
    }
    fn share(&self, _: &Pinned, _: FrameNum) {
        unreachable!("nothing forks")
    }
    fn adjust(&self, _: &Pinned, _: FrameNum, _: i64) {
        unreachable!("nothing forks")
    }
    fn unshare(&self, _: &Pinned, _: FrameNum) -> bool {
        unreachable!("nothing forks")
    }
}

impl Backings for &'static Memory {}

type Space = TreeSpace<Arc<Refcache>, Arc<rcu::Domain>, HashTable, &'static Memory>;

/// The parts that all spaces share: the domain of the nodes of resident pages, that of regions, and memory.
struct Host {
    refcache: Arc<Refcache>,
    rcu: Arc<rcu::Domain>,
    memory: &'static Memory,
}

impl Host {
    fn new() -> Self {
        let frames = (0..FRAMES).map(FrameNum::new).collect();
        let refcache = refcache::Config { cores: CORES, cache_slots: 64, review_budget: usize::MAX };
        let rcu = rcu::Config { cores: CORES, batch: 16, bound: 1000 };
        Self {
            refcache: Arc::new(Refcache::new(refcache)),
            rcu: Arc::new(rcu::Domain::new(rcu)),
            memory: Box::leak(Box::new(Memory(Mutex::new(frames)))),
        }
    }

    /// Lets this thread play `core` while it does `work`.
    fn on<T>(&self, core: usize, work: impl FnOnce(&Pinned) -> T) -> T {
        let _core = percore::threads::enter(CoreId::new(core));
        let pin = percore::pin();
        self.refcache.online(&pin);
        self.rcu.online(&pin);
        let result = work(&pin);
        self.rcu.offline(&pin);
        self.refcache.offline(&pin);
        result
    }

    fn space(&self, pin: &Pinned, locking: Locking) -> Result<Space, OutOfMemory> {
        let domains = (self.refcache.clone(), self.rcu.clone());
        let nodes = Arc::new(NodeCounters::new(CORES));
        let user = PageRange::between(PageNum::new(16), PageNum::new(1 << 35));
        let layout = Layout { cores: CORES, user, anywhere: user, seed: 1 };
        Space::new(pin, locking, domains, nodes, HashTable::default(), self.memory, layout)
    }
}

/// Maps a page, writes to it and unmaps it, on this core.
fn use_a_page(space: &Space, pin: &Pinned) {
    let anywhere = Placement::Anywhere { hint: None };
    let mapping = Mapping::anonymous(Prot::READ | Prot::WRITE);
    let page = space.map(pin, anywhere, 1, mapping).expect("there is memory");
    let address = page.address().expect("it is in user space");
    space.fault(pin, address, Access::Write).expect("there is memory");
    space.unmap(pin, PageRange::one(page)).expect("there is memory");
}

fn main() -> Result<(), Box<dyn Error>> {
    let host = Host::new();
    for locking in Locking::ALL {
        let space = host.on(0, |pin| host.space(pin, locking))?;
        thread::scope(|scope| {
            for core in 0..CORES {
                let (host, space) = (&host, &space);
                scope.spawn(move || host.on(core, |pin| use_a_page(space, pin)));
            }
        });
        let counters = space.counters();
        println!(
            "{locking:?}: {} unmaps interrupted {} cores",
            counters[Event::Munmap],
            counters[Event::IpiTarget]
        );
        host.on(0, |_| drop(space));
    }
    println!("after the end: {} of {FRAMES} frames free", host.memory.free_frames());
    Ok(())
}

#[test]
fn runs() {
    main().expect("there is memory");
}
