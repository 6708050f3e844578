//! Arenas over a long time: near to what a core used last, apart from other cores, reused whichever core
//! unmaps, and within a small multiple of what is mapped.

use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;

use percore::Pinned;
use vm::{Event, Mapping, PageNum, PageRange, Placement, Prot, Tables};
use vm_testkit::{Attended, Dice, Setup, World};

/// Bits of a page number that go with one cache line of leaves' slots.
const LINE: u32 = 12;

/// Pages of a piece of the yard.
const PIECE: u64 = 1 << 15;

/// Pages of a 2 MiB region.
const LARGE: u64 = 512;

fn world(cores: usize) -> World {
    World::radix(Setup { cores, ..Setup::new() }, Tables::PerCore)
}

fn map(world: &World, pin: &Pinned, pages: u64) -> PageRange {
    let place = Placement::Anywhere { hint: None };
    let start =
        world.space.map(pin, place, pages, Mapping::anonymous(Prot::READ)).expect("there is plenty of space");
    PageRange::new(start, pages).unwrap()
}

fn looks(world: &World, pin: &Pinned) -> u64 {
    world.space.core_counters(pin.core())[Event::Look]
}

#[test]
fn mapping_and_unmapping_in_a_loop_stays_on_the_same_pages() {
    let world = world(4);
    world.machine.on_each(|pin| {
        for pages in [1, 3, 512, 2000] {
            let first = map(&world, pin, pages);
            let before = (world.space.nodes().created, looks(&world, pin));
            for _ in 0..1000 {
                world.space.unmap(pin, first).unwrap();
                assert_eq!(map(&world, pin, pages), first);
            }
            let after = (world.space.nodes().created, looks(&world, pin));
            assert_eq!(after, before, "the loop makes no nodes, and does not look for a hole");
        }
    });
    world.finish();
}

#[test]
fn cores_stay_out_of_each_others_lines() {
    for (cores, seed) in [(2, 1), (64, 2), (64, 3), (250, u64::MAX)] {
        let world = World::radix(Setup { cores, seed, ..Setup::new() }, Tables::PerCore);
        let mut lines = HashSet::new();
        world.machine.on_each(|pin| {
            let pages = map(&world, pin, 1000);
            let mut theirs: Vec<u64> = pages.iter().map(|page| page.get() >> LINE).collect();
            theirs.dedup();
            assert!(
                theirs.into_iter().all(|line| lines.insert(line)),
                "{cores} cores: two cores share a line"
            );
        });
        world.finish();
    }
}

/// Where core 0 of 4 maps its first page.
fn first_page(seed: u64) -> u64 {
    let world = World::radix(Setup { seed, ..Setup::new() }, Tables::PerCore);
    let at = world.machine.on(0, |pin| map(&world, pin, 1)).start().get();
    world.finish();
    at
}

/// A quarter of 2^35 pages for each core, of which the upper half is for the beginning: 32 bits.
#[test]
fn the_seed_says_where_arenas_begin_and_every_bit_of_it_counts() {
    let places: Vec<u64> = (0..64).map(|bit| first_page(1 << bit)).collect();
    assert_eq!(places.iter().collect::<HashSet<_>>().len(), places.len());
    let either_way = places.iter().fold((0, 0), |(ones, zeroes), &at| (ones | at, zeroes | !at));
    assert_eq!(either_way.0 & either_way.1 & 0xffff_ffff, 0xffff_ffff, "some bit of the place never changes");
    assert_eq!(first_page(5), first_page(5));
}

#[test]
fn large_mappings_begin_where_large_pages_do() {
    let world = world(1);
    world.machine.on(0, |pin| {
        for pages in [1, 512, 3, 513, 5000] {
            let start = map(&world, pin, pages).start().get();
            assert!(pages < LARGE || start.is_multiple_of(LARGE), "{pages} pages at {start:#x}");
        }
    });
    world.finish();
}

/// Two arenas of 8192 pages, and core 0's is full.
#[test]
fn a_core_whose_arena_is_full_moves_and_then_searches_no_more_than_others() {
    let user = PageRange::new(PageNum::new(16384), 16384).unwrap();
    let world = World::radix(Setup { cores: 2, user, ..Setup::new() }, Tables::PerCore);
    world.machine.on(0, |pin| {
        world.space.map(pin, Placement::Fixed(user.start()), 8192, Mapping::anonymous(Prot::READ)).unwrap();
        let lower_half = 16384 + 8192..16384 + 8192 + 4096;
        assert!(lower_half.contains(&map(&world, pin, 1).start().get()));
        let before = looks(&world, pin);
        for _ in 0..1000 {
            assert!(lower_half.contains(&map(&world, pin, 1).start().get()));
        }
        assert!(looks(&world, pin) - before <= 5 * 1000);
    });
    world.machine.on(1, |pin| assert!(map(&world, pin, 1).start().get() >= 16384 + 8192 + 4096));
    world.finish();
}

/// However many rounds: what the consumer unmapped is found by the producer, at once and close by.
fn produce_and_consume(rounds: usize) {
    let world = world(2);
    let (mut dice, mut queue) = (Dice(7), VecDeque::new());
    let mut spread = PageRange::EMPTY;
    for _ in 0..rounds {
        world.machine.on(0, |pin| {
            let before = looks(&world, pin);
            queue.push_back(map(&world, pin, 1));
            assert!(looks(&world, pin) - before <= 4, "three looks of credit, and one at what is taken");
        });
        spread = spread.hull(*queue.back().unwrap());
        while queue.len() as u64 > dice.below(200) {
            let range = queue.pop_front().unwrap();
            world.machine.on(1, |pin| world.space.unmap(pin, range).unwrap());
        }
    }
    assert!(spread.pages() <= LARGE, "200 pages at most were mapped, over {spread:?}");
    world.finish();
}

#[test]
fn a_producer_reuses_what_its_consumer_unmaps() {
    produce_and_consume(100_000);
}

#[test]
#[ignore = "the long one: run it in release"]
fn a_producer_reuses_what_its_consumer_unmaps_a_million_times() {
    produce_and_consume(1_000_000);
}

/// Operations of a turn. Threads take turns, because what is mapped at the same time, and so how far it
/// spreads, would depend on the host's scheduler otherwise.
const TURN: usize = 16;

/// The mappings of one core, and its progress.
struct Tenant {
    /// Pages that it mapped, and no core has unmapped.
    live: AtomicU64,
    peak: AtomicU64,
    /// In the piece where it began, and elsewhere.
    spread: [Mutex<PageRange>; 2],
    regions: Mutex<HashSet<u64>>,
    /// Requests of other cores to unmap: the owner, and the pages.
    inbox: Mutex<VecDeque<(usize, PageRange)>>,
}

impl Default for Tenant {
    fn default() -> Self {
        let spread = [const { Mutex::new(PageRange::EMPTY) }; 2];
        Self {
            live: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            spread,
            regions: Mutex::default(),
            inbox: Mutex::default(),
        }
    }
}

impl Tenant {
    fn note(&self, range: PageRange) {
        let live = self.live.fetch_add(range.pages(), SeqCst) + range.pages();
        self.peak.fetch_max(live, SeqCst);
        let piece = |pages: PageRange| pages.start().get() / PIECE;
        let first = *self.spread[0].lock().unwrap();
        let elsewhere = !first.is_empty() && piece(first) != piece(range);
        let mut spread = self.spread[usize::from(elsewhere)].lock().unwrap();
        *spread = spread.hull(range);
        let regions = range.start().get() / LARGE..range.end().get().div_ceil(LARGE);
        self.regions.lock().unwrap().extend(regions);
    }

    /// All that it ever mapped lies within four times what was mapped at the peak, in either place, and so do
    /// all regions of both.
    fn judge(&self) {
        let peak = self.peak.load(SeqCst);
        for spread in &self.spread {
            let spread = spread.lock().unwrap().pages();
            assert!(spread <= 4 * peak, "{peak} pages at most were mapped, over {spread}");
        }
        let regions = self.regions.lock().unwrap().len() as u64 * LARGE;
        assert!(regions <= 4 * peak + LARGE, "{peak} pages at most were mapped, in regions of {regions}");
    }
}

/// Eight threads that map ranges of random sizes, unmap them after random times, and let each other unmap
/// every third.
struct House {
    world: World,
    tenants: [Tenant; 8],
    turn: AtomicUsize,
}

impl House {
    fn new() -> Self {
        Self { world: world(8), tenants: Default::default(), turn: AtomicUsize::new(0) }
    }

    fn unmap(&self, pin: &Pinned, owner: usize, range: PageRange) {
        self.tenants[owner].live.fetch_sub(range.pages(), SeqCst);
        self.world.space.unmap(pin, range).unwrap();
    }

    fn answer(&self, pin: &Pinned, me: usize) {
        let asked = std::mem::take(&mut *self.tenants[me].inbox.lock().unwrap());
        asked.into_iter().for_each(|(owner, range)| self.unmap(pin, owner, range));
    }

    fn wait_for_turn(&self, core: &Attended) {
        while self.turn.load(SeqCst) % 8 != core.pin().core().index() {
            core.serve();
            thread::yield_now();
        }
    }

    fn live(&self, core: &Attended, operations: usize) {
        let (pin, me) = (core.pin(), core.pin().core().index());
        let (mut dice, mut mine) = (Dice(0x9e37_79b9 + me as u64), Vec::new());
        for operation in 0..operations {
            if operation % TURN == 0 {
                self.wait_for_turn(core);
            }
            self.answer(pin, me);
            if dice.below(300) < mine.len() as u64 {
                let range = mine.swap_remove(dice.below(mine.len() as u64) as usize);
                match dice.below(3) {
                    0 => self.tenants[(me + 1) % 8].inbox.lock().unwrap().push_back((me, range)),
                    _ => self.unmap(pin, me, range),
                }
            } else {
                let class = [4, 30, 600][dice.below(20) as usize / 9];
                let range = map(&self.world, pin, 1 + dice.below(class));
                self.tenants[me].note(range);
                mine.push(range);
            }
            self.world.machine.refcache.tick(pin);
            if (operation + 1) % TURN == 0 {
                self.turn.fetch_add(1, SeqCst);
            }
        }
        mine.into_iter().for_each(|range| self.unmap(pin, me, range));
    }

    fn finish(self) {
        self.world.machine.on(0, |pin| (0..8).for_each(|of| self.answer(pin, of)));
        self.tenants.iter().for_each(Tenant::judge);
        self.world.finish();
    }
}

/// sv6: the mmap address hint only ever advanced.
fn random_sizes_and_lifetimes(operations: usize) {
    let house = House::new();
    house.world.machine.on_threads(8, |core| house.live(core, operations / 8));
    house.finish();
}

#[test]
fn random_sizes_and_lifetimes_on_eight_threads_stay_within_a_bounded_spread() {
    random_sizes_and_lifetimes(400_000);
}

#[test]
#[ignore = "the long one: half a minute in release"]
fn ten_million_operations_stay_within_a_bounded_spread() {
    random_sizes_and_lifetimes(10_000_000);
}
