//! Random calls of the public functions, by threads that come and go.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

mod shared;

use std::thread;

use fuzzing::{Dice, rounds};
use refcache::{Config, Refcache};

use crate::shared::Shelf;

/// More than the tests of this file use at a time.
const CORES: usize = 16;

fn domain(dice: &mut Dice) -> &'static Refcache {
    let config = Config { cores: CORES, cache_slots: 1 << dice.below(4), review_budget: 1 + dice.below(8) };
    Box::leak(Box::new(Refcache::new(config)))
}

/// Each thread takes, names and gives up values that all of them reach.
#[test]
fn threads_share_values() {
    rounds(10, |dice| {
        let shelf = Shelf::new(domain(dice));
        thread::scope(|scope| {
            for _ in 0..3 {
                let (shelf, mut dice) = (&shelf, dice.split());
                scope.spawn(move || (0..4).for_each(|_| shelf.visit(&mut dice)));
            }
        });
        shelf.close();
    });
}
