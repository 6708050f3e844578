//! Operations per second of the map, by 1, 2, 4, ... host threads, each on pages of its own.
//!
//! `cargo bench -p radixvm-radixmap [-- THREADS]` runs it. Times depend on the machine. The counts do not.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use percore::{CoreId, Pinned};
use radixmap::{Always, IfPresent, RadixMap, Value};
use refcache::{Config, Refcache};

#[derive(Clone, Copy)]
struct Page(u64);

impl Value for Page {
    fn to_words(self) -> (u64, u64) {
        (self.0, 0)
    }
    fn from_words(main: u64, _: u64) -> Self {
        Self(main)
    }
}

type Map<'r> = RadixMap<Page, &'r Refcache>;

/// An operation on the pages from `page` on.
struct Operation {
    name: &'static str,
    rounds: u64,
    run: fn(&Map<'_>, &Pinned, page: u64),
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "map 1, fault, unmap",
        rounds: 2_000_000,
        run: |map, pin, page| {
            map_pages(map, pin, page, 1);
            fault(map, pin, page);
            unmap_pages(map, pin, page, 1);
        },
    },
    Operation {
        name: "fault a present page",
        rounds: 4_000_000,
        run: |map, pin, page| fault(map, pin, page + 1),
    },
    Operation {
        name: "map 2 MiB, unmap",
        rounds: 1_000_000,
        run: |map, pin, page| {
            map_pages(map, pin, page + 512, 512);
            unmap_pages(map, pin, page + 512, 512);
        },
    },
    Operation {
        name: "map 64 pages, unmap",
        rounds: 200_000,
        run: |map, pin, page| {
            map_pages(map, pin, page + 2, 64);
            unmap_pages(map, pin, page + 2, 64);
        },
    },
];

fn map_pages(map: &Map<'_>, pin: &Pinned, page: u64, pages: u64) {
    map.lock_range(pin, page..page + pages, Always).unwrap().fill(Page(7));
}

fn unmap_pages(map: &Map<'_>, pin: &Pinned, page: u64, pages: u64) {
    let mut guard = map.lock_range(pin, page..page + pages, IfPresent).unwrap();
    guard.for_each(|entry| entry.clear());
}

fn fault(map: &Map<'_>, pin: &Pinned, page: u64) {
    let mut guard = map.lock_key(pin, page).unwrap().expect("a page that is mapped");
    guard.for_each(|entry| entry.set(Page(page << 12 | 7)));
}

/// Measures the rounds per second of all threads together.
fn measure(operation: &Operation, threads: usize) -> f64 {
    let refcache = Refcache::new(Config { cores: threads, cache_slots: 256, review_budget: 64 });
    let map = {
        let _core = percore::threads::enter(CoreId::new(0));
        let pin = percore::pin();
        refcache.online(&pin);
        let map = RadixMap::new(&pin, &refcache).unwrap();
        refcache.offline(&pin);
        map
    };
    let start = Barrier::new(threads);
    let slowest = std::thread::scope(|scope| {
        let players: Vec<_> = (0..threads)
            .map(|core| {
                let (refcache, map, start) = (&refcache, &map, &start);
                scope.spawn(move || play(operation, refcache, map, core, start))
            })
            .collect();
        players.into_iter().map(|player| player.join().unwrap()).max().unwrap()
    });
    let stats = map.stats();
    let _core = percore::threads::enter(CoreId::new(0));
    drop(map);
    let rate = (operation.rounds * threads as u64) as f64 / slowest.as_secs_f64();
    println!(
        "{:24} {threads:3} threads {:9.0} rounds/ms {:6.0} ns each, nodes created {} collapsed {}",
        operation.name,
        rate / 1e3,
        1e9 * threads as f64 / rate,
        stats.created,
        stats.collapsed,
    );
    rate
}

fn play(operation: &Operation, refcache: &Refcache, map: &Map<'_>, core: usize, start: &Barrier) -> Duration {
    let _core = percore::threads::enter(CoreId::new(core));
    // Each thread has a gigabyte of its own.
    let page = (core as u64 + 1) << 18;
    let pin = percore::pin();
    refcache.online(&pin);
    map_pages(map, &pin, page + 1, 1);
    start.wait();
    let begin = Instant::now();
    for round in 0..operation.rounds {
        (operation.run)(map, &pin, page);
        if round % 4096 == 0 {
            refcache.tick(&pin);
        }
    }
    let elapsed = begin.elapsed();
    refcache.offline(&pin);
    elapsed
}

fn main() {
    let wanted = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let most = wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    for operation in OPERATIONS {
        let alone = measure(operation, 1);
        let counts = std::iter::successors(Some(2), |threads| Some(threads * 2))
            .take_while(|&threads| threads <= most);
        for threads in counts {
            println!("{:24} {:.2} times one thread", "", measure(operation, threads) / alone);
        }
    }
}
