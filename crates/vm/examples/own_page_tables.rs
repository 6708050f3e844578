//! An address space over page tables of your own.
//!
//! The crate needs three things of a machine: translations ([`Mmu`]), memory ([`Frames`]) and the contents of
//! files ([`Backings`]). Here the translations are a hash map for each core, the memory is a list of frame
//! numbers, and there are no files. Two threads play two cores. A page that one core used is unmapped without
//! a word to the other.
//!
//! Run it: `cargo run --example own_page_tables`
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::thread;

use percore::{CoreId, CoreSet, Pinned};
use refcache::{Config, Refcache};
use vm::{
    Access, AddressSpace, Backings, Event, FrameNum, Frames, Layout, Mapping, Mmu, OutOfMemory, PageNum,
    PageRange, Placement, Prot, RadixSpace, Shot, Tables,
};

const CORES: usize = 2;
const FRAMES: u64 = 16;

/// One table for each core, from pages to frames and rights.
#[derive(Default)]
struct HashTables([Mutex<HashMap<u64, (FrameNum, Prot)>>; CORES]);

impl HashTables {
    fn remove(&self, core: CoreId, pages: PageRange) {
        let mut table = self.0[core.index()].lock().expect("nobody panicked");
        table.retain(|&page, _| !pages.contains(PageNum::new(page)));
    }
}

impl Mmu for HashTables {
    fn tables(&self) -> Tables {
        Tables::PerCore
    }
    fn fill(&self, pin: &Pinned, page: PageNum, frame: FrameNum, prot: Prot) -> Result<(), OutOfMemory> {
        println!("  core {} translates page {} to frame {}", pin.core().index(), page.get(), frame.get());
        self.0[pin.core().index()].lock().expect("nobody panicked").insert(page.get(), (frame, prot));
        Ok(())
    }
    fn clear(&self, pin: &Pinned, pages: PageRange) {
        self.remove(pin.core(), pages);
    }
    /// A real machine interrupts the targets and waits. These tables can be changed from anywhere.
    fn shootdown(&self, pin: &Pinned, targets: &CoreSet, pages: PageRange) -> Shot {
        let others = targets.iter().filter(|&core| core != pin.core());
        let ipis = others.map(|core| self.remove(core, pages)).count();
        println!("  core {} shoots at {ipis} other core", pin.core().index());
        Shot { ipis: ipis as u32, avoided: 0 }
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

type Space = RadixSpace<Arc<Refcache>, HashTables, &'static Memory>;

fn main() -> Result<(), Box<dyn Error>> {
    let frames = (0..FRAMES).rev().map(FrameNum::new).collect();
    let memory: &'static Memory = Box::leak(Box::new(Memory(Mutex::new(frames))));
    let refcache =
        Arc::new(Refcache::new(Config { cores: CORES, cache_slots: 64, review_budget: usize::MAX }));
    let user = PageRange::between(PageNum::new(16), PageNum::new(1 << 35));
    let layout = Layout { cores: CORES, user, anywhere: user, seed: 1 };

    let _core = percore::threads::enter(CoreId::new(0));
    let pin = percore::pin();
    refcache.online(&pin);
    let space = Space::new(&pin, refcache.clone(), HashTables::default(), memory, layout)?;

    println!("core 0 maps pages 100 to 102");
    let rights = Prot::READ | Prot::WRITE;
    let start = space.map(&pin, Placement::Fixed(PageNum::new(100)), 3, Mapping::anonymous(rights))?;

    println!("both cores write to page 100, core 0 alone to page 101, core 1 alone to page 102");
    space.fault(&pin, start.address().ok_or("no address")?, Access::Write)?;
    space.fault(&pin, PageNum::new(101).address().ok_or("no address")?, Access::Write)?;
    thread::scope(|scope| scope.spawn(|| use_on_core_1(&space, &refcache)).join())
        .expect("core 1 does not panic");

    for page in [101, 100] {
        println!("core 0 unmaps page {page}");
        space.unmap(&pin, PageRange::one(PageNum::new(page)))?;
    }
    println!(
        "{} shootdown, {} of {FRAMES} frames free",
        space.counters()[Event::Shootdown],
        memory.free_frames()
    );

    let error =
        space.fault(&pin, start.address().ok_or("no address")?, Access::Read).expect_err("it is gone");
    println!("a read of page 100 now: {error}");
    space.destroy(&pin);
    println!("after the end: {} of {FRAMES} frames free", memory.free_frames());
    drop(space);
    refcache.drain(&pin);
    Ok(())
}

/// Plays core 1, which touches two pages and unmaps the one that only it has used.
fn use_on_core_1(space: &Space, refcache: &Refcache) {
    let _core = percore::threads::enter(CoreId::new(1));
    let pin = percore::pin();
    refcache.online(&pin);
    for page in [100, 102] {
        let address = PageNum::new(page).address().expect("it is in user space");
        space.fault(&pin, address, Access::Write).expect("there is memory");
    }
    println!("core 1 unmaps page 102");
    space.unmap(&pin, PageRange::one(PageNum::new(102))).expect("there is memory");
    refcache.offline(&pin);
}

#[test]
fn runs() {
    main().expect("there is memory");
}
