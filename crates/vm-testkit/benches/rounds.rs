//! Map, fault and unmap of one page, as often as host threads can: `cargo bench -p radixvm-vm-testkit`.
//!
//! Three systems on the same simulated machine: tables per core, one shared table, and tables per core behind
//! one lock, as kernels have it. Absolute numbers say little. The last column is the ratio to one thread
//! alone.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use percore::Pinned;
use vm::{Access, Event, Mapping, PAGE_SIZE, PageRange, Placement, Prot, Tables, VirtAddr};
use vm_testkit::{Attended, Setup, World};

const WINDOW: Duration = Duration::from_millis(300);
/// Rounds from one epoch tick to the next: some milliseconds, as a timer would have it.
const TICK: u64 = 4096;
const REPEATS: usize = 5;

struct System {
    name: &'static str,
    tables: Tables,
    one_lock: bool,
}

const SYSTEMS: [System; 3] = [
    System { name: "per-core tables", tables: Tables::PerCore, one_lock: false },
    System { name: "shared table", tables: Tables::Shared, one_lock: false },
    System { name: "one big lock", tables: Tables::PerCore, one_lock: true },
];

/// The result of one measurement.
#[derive(Clone, Copy)]
struct Found {
    rounds_per_s: f64,
    targets_per_round: f64,
}

fn round(world: &World, pin: &Pinned, serialise: &impl Fn(&mut dyn FnMut())) {
    let mut start = None;
    let place = Placement::Anywhere { hint: None };
    serialise(&mut || {
        start = world.space.map(pin, place, 1, Mapping::anonymous(Prot::READ | Prot::WRITE)).ok()
    });
    let page = start.expect("there is plenty of space");
    let address = VirtAddr::new(page.get() * PAGE_SIZE);
    serialise(&mut || _ = world.space.fault(pin, address, Access::Write).expect("there is plenty of memory"));
    serialise(&mut || world.space.unmap(pin, PageRange::one(page)).expect("it is mapped"));
}

fn play(world: &World, core: &Attended, system: &System, lock: &Mutex<()>, stop: &AtomicBool) -> u64 {
    let serialise = |step: &mut dyn FnMut()| {
        let _held = system.one_lock.then(|| lock.lock());
        step();
    };
    let mut rounds = 0;
    while !stop.load(Relaxed) {
        round(world, core.pin(), &serialise);
        core.serve();
        rounds += 1;
        if rounds % TICK == 0 {
            world.machine.refcache.tick(core.pin());
        }
    }
    rounds
}

fn measure(system: &System, threads: usize) -> Found {
    let world = World::radix(Setup { cores: threads, ..Setup::new() }, system.tables);
    let (lock, stop, rounds) = (Mutex::new(()), AtomicBool::new(false), AtomicU64::new(0));
    let begin = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(WINDOW);
            stop.store(true, Relaxed);
        });
        world.machine.on_threads(threads, |core| {
            rounds.fetch_add(play(&world, core, system, &lock, &stop), Relaxed);
        });
    });
    let (rounds, seconds) = (rounds.into_inner() as f64, begin.elapsed().as_secs_f64());
    let targets = world.count(Event::IpiTarget) as f64;
    world.finish();
    Found { rounds_per_s: rounds / seconds, targets_per_round: targets / rounds }
}

fn median(mut found: Vec<Found>) -> Found {
    found.sort_by(|a, b| a.rounds_per_s.total_cmp(&b.rounds_per_s));
    found[found.len() / 2]
}

fn main() {
    let most = thread::available_parallelism().map_or(1, |cores| cores.get());
    println!("{:16} {:>7} {:>12} {:>14} {:>9}", "system", "threads", "rounds/s", "targets/round", "speed-up");
    let mut alone = [1.0; SYSTEMS.len()];
    let counts = std::iter::successors(Some(1), |threads| Some(threads * 2));
    for threads in counts.take_while(|&threads| threads <= most) {
        let mut found = [const { Vec::new() }; SYSTEMS.len()];
        for _ in 0..REPEATS {
            SYSTEMS.iter().zip(&mut found).for_each(|(system, found)| found.push(measure(system, threads)));
        }
        for ((system, found), alone) in SYSTEMS.iter().zip(found).zip(&mut alone) {
            let Found { rounds_per_s, targets_per_round } = median(found);
            if threads == 1 {
                *alone = rounds_per_s;
            }
            let speed_up = rounds_per_s / *alone;
            println!(
                "{:16} {threads:7} {rounds_per_s:12.0} {targets_per_round:14.2} {speed_up:9.2}",
                system.name
            );
        }
    }
}
