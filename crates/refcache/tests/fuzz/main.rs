//! Random calls of the public functions: threads that come and go, values and waits that call back, misuse.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

mod shared;

use std::sync::Arc;
use std::thread;

use fuzzing::{Dice, forever, rounds};
use refcache::{Config, Refcache};

use crate::shared::Shelf;

/// More cores than the tests of this file use at a time.
const CORES: usize = 16;

/// Returns a domain for each combination of cache size and review budget, made once since a domain lives for
/// ever.
fn domains() -> Vec<&'static Refcache> {
    let sizes = [1, 2, 8].into_iter().flat_map(|slots| [1, 8].map(|budget| (slots, budget)));
    let domain = |(cache_slots, review_budget)| Config { cores: CORES, cache_slots, review_budget };
    sizes.map(|sizes| forever(Refcache::new(domain(sizes)))).collect()
}

fn shelf(domains: &[&'static Refcache], dice: &mut Dice) -> Arc<Shelf> {
    Arc::new(Shelf::new(domains[dice.below(domains.len())]))
}

/// Closes the shelf on a thread of its own, which plays a core for that.
fn close(shelf: Arc<Shelf>) {
    let shelf = Arc::into_inner(shelf).expect("all threads are over");
    thread::spawn(|| shelf.close()).join().unwrap();
}

/// Each thread takes, names and drops values that all of them reach.
#[test]
fn threads_share_values() {
    let domains = domains();
    rounds(30, |dice| {
        let shelf = shelf(&domains, dice);
        thread::scope(|scope| {
            for _ in 0..3 {
                let (shelf, dice) = (&shelf, dice.split());
                scope.spawn(move || shelf.visit(dice));
            }
        });
        close(shelf);
    });
}

/// One of two threads keeps loans across calls, and takes loans in values' drops that outlive the drop.
#[test]
fn loans_are_kept() {
    let test = || {
        let domains = domains();
        rounds(30, |dice| {
            let shelf = shelf(&domains, dice);
            thread::scope(|scope| {
                let (other, dice, mine) = (&shelf, dice.split(), dice.split());
                scope.spawn(move || other.visit(dice));
                shelf.visit_for_ever(mine);
            });
            close(shelf);
        });
    };
    thread::spawn(test).join().unwrap();
}
