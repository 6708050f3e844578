//! Floor lookups per second by 1, 2, 4, ... host threads, beside 0 to 2 writers that map and unmap other
//! regions (RadixVM's figures 6 and 7), for the radix map, Bonsai, our skip list, and peers from the
//! registry.
//!
//! `cargo bench -p radixvm-baselines --bench lookups [-- THREADS]` runs it. The runs of all maps are
//! interleaved, and the table shows their median. A lookup of the radix map locks the page's slot, as a page
//! fault does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, RwLock};
use std::time::{Duration, Instant};

use baselines::SkipList;
use bonsai::Bonsai;
use crossbeam_skiplist::SkipMap;
use percore::{CoreId, Pinned, threads};
use radixmap::{Always, IfPresent, RadixMap, Value};
use rangemap::RangeMap;
use refcache::Refcache;
use scc::TreeIndex;

/// Lookups by each reader.
const LOOKUPS: u64 = 1_000_000;
const RUNS: usize = 3;
/// Regions that are always there, of 8 pages each, every 16 pages. The writers' regions lie beyond.
const REGIONS: u64 = 1024;
const STRIDE: u64 = 16;
const PAGES: u64 = 8;
/// Calls between quiescent states.
const BATCH: u64 = 64;
const CORES: usize = 64;

/// A map from regions to numbers.
trait Map: Sync {
    fn map(&self, pin: &Pinned, page: u64);
    fn unmap(&self, pin: &Pinned, page: u64);
    /// Returns whether the region of a page is found.
    fn finds(&self, pin: &Pinned, page: u64) -> bool;
}

/// The domains of both reclamation schemes.
struct Machine {
    rcu: rcu::Domain,
    refcache: Refcache,
}

impl Machine {
    fn new() -> Self {
        let config = refcache::Config { cores: CORES, cache_slots: 256, review_budget: 64 };
        let rcu = rcu::Domain::new(rcu::Config { cores: CORES, batch: 64, bound: 10_000 });
        Self { rcu, refcache: Refcache::new(config) }
    }

    /// Runs `act` on this thread as a core.
    fn as_core<R>(&self, core: usize, act: impl FnOnce(&Pinned) -> R) -> R {
        let _core = threads::enter(CoreId::new(core));
        let pin = percore::pin();
        self.rcu.online(&pin);
        self.refcache.online(&pin);
        let result = act(&pin);
        self.refcache.offline(&pin);
        self.rcu.offline(&pin);
        result
    }

    fn rest(&self, pin: &Pinned) {
        self.rcu.quiesce(pin);
        self.refcache.tick(pin);
    }
}

#[derive(Clone, Copy)]
struct Number(u64);

impl Value for Number {
    fn to_words(self) -> (u64, u64) {
        (self.0, 0)
    }
    fn from_words(main: u64, _: u64) -> Self {
        Self(main)
    }
}

impl Map for RadixMap<Number, &Refcache> {
    fn map(&self, pin: &Pinned, page: u64) {
        self.lock_range(pin, page..page + PAGES, Always).unwrap().fill(Number(1));
    }
    fn unmap(&self, pin: &Pinned, page: u64) {
        self.lock_range(pin, page..page + PAGES, IfPresent).unwrap().for_each(|entry| entry.clear());
    }
    fn finds(&self, pin: &Pinned, page: u64) -> bool {
        self.lock_key(pin, page).unwrap().is_some()
    }
}

impl Map for Bonsai<u64, u64, &rcu::Domain> {
    fn map(&self, pin: &Pinned, page: u64) {
        self.write(pin).insert(page, PAGES).unwrap();
    }
    fn unmap(&self, pin: &Pinned, page: u64) {
        self.write(pin).remove(page).unwrap();
    }
    fn finds(&self, pin: &Pinned, page: u64) -> bool {
        self.read(pin).floor(page).is_some_and(|(start, &pages)| page < start + pages)
    }
}

impl Map for SkipList<u64, &rcu::Domain> {
    fn map(&self, pin: &Pinned, page: u64) {
        self.insert(pin, page, PAGES).unwrap();
    }
    fn unmap(&self, pin: &Pinned, page: u64) {
        self.remove(pin, page);
    }
    fn finds(&self, pin: &Pinned, page: u64) -> bool {
        self.read(pin).floor(page).is_some_and(|(start, &pages)| page < start + pages)
    }
}

impl Map for RwLock<RangeMap<u64, u64>> {
    fn map(&self, _: &Pinned, page: u64) {
        // A number of its own, so that neighbours do not become one range.
        self.write().unwrap().insert(page..page + PAGES, page);
    }
    fn unmap(&self, _: &Pinned, page: u64) {
        self.write().unwrap().remove(page..page + PAGES);
    }
    fn finds(&self, _: &Pinned, page: u64) -> bool {
        self.read().unwrap().get(&page).is_some()
    }
}

impl Map for SkipMap<u64, u64> {
    fn map(&self, _: &Pinned, page: u64) {
        self.insert(page, PAGES);
    }
    fn unmap(&self, _: &Pinned, page: u64) {
        self.remove(&page);
    }
    fn finds(&self, _: &Pinned, page: u64) -> bool {
        let floor = self.upper_bound(std::ops::Bound::Included(&page));
        floor.is_some_and(|entry| page < entry.key() + entry.value())
    }
}

impl Map for TreeIndex<u64, u64> {
    fn map(&self, _: &Pinned, page: u64) {
        _ = self.insert_sync(page, PAGES);
    }
    fn unmap(&self, _: &Pinned, page: u64) {
        self.remove_sync(&page);
    }
    /// Asks for the region's own start, because this map has no floor lookup.
    fn finds(&self, _: &Pinned, page: u64) -> bool {
        self.peek_with(&(page - page % STRIDE), |_, _| ()).is_some()
    }
}

/// Maps numbers to scattered keys, different ones for different numbers. (The finish of SplitMix64.)
fn scattered(number: u64) -> u64 {
    let mut key = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

/// Runs one reader.
fn look_up(map: &impl Map, machine: &Machine, pin: &Pinned, seed: u64) -> Duration {
    let begin = Instant::now();
    for at in 0..LOOKUPS {
        let dice = scattered(at + seed * LOOKUPS);
        let page = dice % REGIONS * STRIDE + (dice >> 32) % PAGES;
        assert!(map.finds(pin, page), "a region was missed that is always there");
        if at % BATCH == 0 {
            machine.rest(pin);
        }
    }
    begin.elapsed()
}

/// Maps and unmaps regions that no reader looks for.
fn churn(map: &impl Map, machine: &Machine, pin: &Pinned, writer: u64, stop: &AtomicBool) {
    let mut change = 0;
    while !stop.load(Ordering::Relaxed) {
        let page = (REGIONS * (writer + 1) + scattered(change) % REGIONS) * STRIDE;
        map.map(pin, page);
        map.unmap(pin, page);
        change += 1;
        machine.rest(pin);
    }
}

/// Lookups per second of all readers together, until the last is done.
fn measure(map: &impl Map, machine: &Machine, readers: usize, writers: usize) -> f64 {
    machine.as_core(0, |pin| (0..REGIONS).for_each(|region| map.map(pin, region * STRIDE)));
    let (start, stop) = (Barrier::new(readers), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (start, stop) = (&start, &stop);
        for writer in 0..writers {
            let run = move |pin: &Pinned| churn(map, machine, pin, writer as u64, stop);
            scope.spawn(move || machine.as_core(readers + writer, run));
        }
        let read = |core: usize| {
            let run = move |pin: &Pinned| {
                start.wait();
                look_up(map, machine, pin, core as u64)
            };
            scope.spawn(move || machine.as_core(core, run))
        };
        let players = (0..readers).map(read).collect::<Vec<_>>();
        let slowest = players.into_iter().map(|player| player.join().unwrap()).max().unwrap();
        stop.store(true, Ordering::Relaxed);
        (LOOKUPS * readers as u64) as f64 / slowest.as_secs_f64()
    })
}

fn radix(machine: &Machine, readers: usize, writers: usize) -> f64 {
    let map = machine.as_core(0, |pin| RadixMap::<Number, _>::new(pin, &machine.refcache).unwrap());
    let rate = measure(&map, machine, readers, writers);
    machine.as_core(0, |_| drop(map));
    rate
}

/// One run of a map.
type Run = fn(&Machine, usize, usize) -> f64;

const MAPS: [(&str, Run); 6] = [
    ("radix map", radix),
    ("Bonsai", |m, readers, writers| measure(&Bonsai::new(&m.rcu), m, readers, writers)),
    ("skip list", |m, readers, writers| measure(&SkipList::new(&m.rcu), m, readers, writers)),
    ("rangemap, RwLock", |m, readers, writers| measure(&RwLock::new(RangeMap::new()), m, readers, writers)),
    ("crossbeam-skiplist", |m, readers, writers| measure(&SkipMap::new(), m, readers, writers)),
    ("scc::TreeIndex", |m, readers, writers| measure(&TreeIndex::new(), m, readers, writers)),
];

/// The median of each map's runs, which take turns.
fn medians(machine: &Machine, readers: usize, writers: usize) -> [f64; MAPS.len()] {
    let mut rates = [(); MAPS.len()].map(|()| Vec::new());
    for _ in 0..RUNS {
        MAPS.iter().zip(&mut rates).for_each(|((_, run), rates)| rates.push(run(machine, readers, writers)));
    }
    rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[RUNS / 2]
    })
}

fn main() {
    let wanted = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let most = wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let machine = Machine::new();
    for readers in
        std::iter::successors(Some(1), |readers| Some(readers * 2)).take_while(|&many| many <= most)
    {
        let by_writers = [0, 1, 2].map(|writers| medians(&machine, readers, writers));
        for (at, (name, _)) in MAPS.iter().enumerate() {
            let [none, one, two] = by_writers.map(|rates| rates[at] / 1e6);
            println!(
                "{name:20} {readers:3} readers {none:7.2} lookups/us alone, {one:7.2} beside 1 writer, {two:7.2} beside 2"
            );
        }
    }
}
