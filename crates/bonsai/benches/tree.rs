//! Nodes that an insertion and a removal allocate, with and without updating in place, and lookups per second
//! of 1, 2, 4, ... host threads, alone and beside a writer.
//!
//! `cargo bench -p radixvm-bonsai [-- THREADS]`. Times depend on the machine. The counts do not.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bonsai::{Bonsai, Update};
use percore::{CoreId, Pinned};
use rcu::{Config, Domain};

const LOOKUPS: u64 = 3_000_000;
const ENTRIES: u64 = 1024;

type Tree<'d> = Bonsai<u64, u64, &'d Domain>;

/// An order in which keys come.
struct Order {
    name: &'static str,
    key: fn(u64) -> u64,
}

const ORDERS: [Order; 2] =
    [Order { name: "at random", key: scattered }, Order { name: "ascending", key: |at| at }];

/// Different for different numbers, and without a pattern. (The finish of SplitMix64.)
fn scattered(number: u64) -> u64 {
    let mut key = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

/// This thread as a core of a domain.
fn as_core<R>(domain: &Domain, core: usize, act: impl FnOnce(&Pinned) -> R) -> R {
    let _core = percore::threads::enter(CoreId::new(core));
    let pin = percore::pin();
    domain.online(&pin);
    let result = act(&pin);
    domain.offline(&pin);
    result
}

fn domain(cores: usize) -> Domain {
    Domain::new(Config { cores, batch: 64, bound: 10_000 })
}

/// Calls `change` for each number below `entries`. Returns how many nodes were made and how many updated in
/// place, per call.
fn per_change(
    tree: &Tree<'_>,
    domain: &Domain,
    pin: &Pinned,
    entries: u64,
    change: impl Fn(&Tree<'_>, u64),
) -> (f64, f64) {
    let before = tree.stats();
    for at in 0..entries {
        change(tree, at);
        domain.quiesce(pin);
    }
    let after = tree.stats();
    let each = |count: u64| count as f64 / entries as f64;
    (each(after.made - before.made), each(after.avoided - before.avoided))
}

fn allocations(order: &Order, entries: u64, update: Update) {
    let domain = domain(1);
    as_core(&domain, 0, |pin| {
        let tree = Bonsai::with_update(&domain, update);
        let key = order.key;
        let (insert, saved) = per_change(&tree, &domain, pin, entries, |tree, at| {
            tree.write(pin).insert(key(at), at).unwrap();
        });
        let (remove, saved_there) = per_change(&tree, &domain, pin, entries, |tree, at| {
            assert_eq!(tree.write(pin).remove(key(at)), Ok(true));
        });
        println!(
            "{entries:8} keys {:9} {update:8?}  nodes made per insertion {insert:5.2} (saved {saved:5.2}), \
             per removal {remove:5.2} (saved {saved_there:5.2})",
            order.name
        );
    });
}

/// One reader's rate, per second.
fn look_up(tree: &Tree<'_>, domain: &Domain, pin: &Pinned) -> f64 {
    let begin = Instant::now();
    let mut found = 0;
    for round in 0..LOOKUPS / 64 {
        let reader = tree.read(pin);
        for at in round * 64..(round + 1) * 64 {
            found += u64::from(reader.floor(scattered(at % ENTRIES)).is_some());
        }
        drop(reader);
        domain.quiesce(pin);
    }
    assert_eq!(found, LOOKUPS, "all keys are there");
    LOOKUPS as f64 / begin.elapsed().as_secs_f64()
}

/// Inserts and removes keys that no reader looks for, until told to stop. Returns the rate.
fn churn(tree: &Tree<'_>, domain: &Domain, pin: &Pinned, stop: &AtomicBool) -> f64 {
    let (begin, mut changes) = (Instant::now(), 0_u64);
    while !stop.load(Ordering::Relaxed) {
        let key = scattered(ENTRIES + changes / 2 % ENTRIES);
        let mut writer = tree.write(pin);
        let _ = if changes.is_multiple_of(2) { writer.insert(key, 0) } else { writer.remove(key) };
        drop(writer);
        changes += 1;
        domain.quiesce(pin);
    }
    changes as f64 / begin.elapsed().as_secs_f64()
}

/// Lookups per second of all readers together, and changes per second of the writer.
fn rates(readers: usize, with_writer: bool) -> (f64, f64) {
    let domain = domain(readers + 1);
    let tree = Bonsai::new(&domain);
    as_core(&domain, readers, |pin| {
        (0..ENTRIES).for_each(|at| _ = tree.write(pin).insert(scattered(at), at).unwrap());
    });
    let (start, stop) = (Barrier::new(readers), AtomicBool::new(!with_writer));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| as_core(&domain, readers, |pin| churn(&tree, &domain, pin, &stop)));
        let players: Vec<_> = (0..readers)
            .map(|core| {
                let (tree, domain, start) = (&tree, &domain, &start);
                scope.spawn(move || {
                    as_core(domain, core, |pin| {
                        start.wait();
                        look_up(tree, domain, pin)
                    })
                })
            })
            .collect();
        let lookups = players.into_iter().map(|player| player.join().unwrap()).sum();
        stop.store(true, Ordering::Relaxed);
        (lookups, writer.join().unwrap())
    })
}

fn main() {
    for order in &ORDERS {
        for entries in [64, 1024, 16_384] {
            [Update::InPlace, Update::Copying].iter().for_each(|&update| allocations(order, entries, update));
        }
    }
    let wanted = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let most = wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    for readers in
        std::iter::successors(Some(1), |readers| Some(readers * 2)).take_while(|&many| many <= most)
    {
        let (alone, _) = rates(readers, false);
        let (beside, changes) = rates(readers, true);
        println!(
            "{ENTRIES} keys, {readers:3} readers: {:6.1} lookups/us alone, {:6.1} beside a writer of {:5.2} changes/us",
            alone / 1e6,
            beside / 1e6,
            changes / 1e6
        );
    }
}
