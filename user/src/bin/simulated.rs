//! The VM core on the simulated machine of `vm-testkit`: each thread plays a core, maps a page, faults on it
//! and unmaps it.
//!
//! No system call is made in a round, so under the contention meter the program shows what the crates
//! themselves share, and on hardware how they scale on any kernel. One table for all cores is not offered:
//! each round would interrupt all cores, and a core whose thread waits at the window's barrier takes no
//! interrupts.

use programs::args::Parsed;
use programs::benchmark::{Options, Program};
use serde_json::Map;
use vm::{Access, Mapping, PAGE_SIZE, PageRange, Placement, Prot, Tables, VirtAddr};
use vm_testkit::{Attended, Setup, World};

const PROGRAM: Program<'_> = Program {
    usage: "usage: simulated [OPTIONS]\nEach thread plays a core of a simulated machine, on which it maps a page, faults on it, unmaps it.",
    options: "  --tables TABLES adaptive or percore (default adaptive)\n",
    pages: (0, 0),
    iterations: 100_000,
};
/// Rounds from one epoch to the next: some milliseconds, as with a timer.
const TICK: u64 = 4096;

fn main() {
    let (options, tables) = Options::parse_with(&PROGRAM, |args, _| tables(args.value("--tables")?));
    let world = World::radix(Setup { cores: options.threads, ..Setup::new() }, tables);
    options.run_with(
        "simulated",
        Map::new(),
        |worker| world.machine.attend(worker.index),
        |_, core, number| round(&world, core, number),
    );
    world.finish();
}

fn tables(word: Option<String>) -> Parsed<Tables> {
    match word.as_deref() {
        None | Some("adaptive") => Ok(Tables::Adaptive),
        Some("percore") => Ok(Tables::PerCore),
        Some(other) => Err(format!("--tables {other}: give adaptive or percore")),
    }
}

fn round(world: &World, core: &Attended, number: u64) {
    let pin = core.pin();
    let page = world.space.map(
        pin,
        Placement::Anywhere { hint: None },
        1,
        Mapping::anonymous(Prot::READ | Prot::WRITE),
    );
    let page = page.expect("there is plenty of space");
    let address = VirtAddr::new(page.get() * PAGE_SIZE);
    world.space.fault(pin, address, Access::Write).expect("there is plenty of memory");
    world.space.unmap(pin, PageRange::one(page)).expect("it is mapped");
    core.serve();
    if number % TICK == TICK - 1 {
        world.machine.tick(pin);
    }
}
