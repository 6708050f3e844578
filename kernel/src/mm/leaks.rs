//! After a program's end: is everything back?

use super::epoch;
use super::space::SpaceHandle;
use crate::control;
use crate::counters::{self, Counter};

/// Rounds of epochs until the last node is gone: a dead node's parent dies after it.
const ROUNDS: usize = 8;

/// Reports the counters, and what the retired space has not given back. Its root node and what is left of its
/// page tables go with its handle, so they are not missing.
pub fn report(space: &SpaceHandle) {
    let nodes = || counters::sum(Counter::LiveNodes) - 1;
    for _ in 0..ROUNDS {
        if nodes() > 0 {
            epoch::drain();
        }
    }
    let frames =
        counters::sum(Counter::FramesUsed) + counters::sum(Counter::TablePages) - space.table_pages() as i64;
    control::stats(space, frames.unsigned_abs(), nodes().unsigned_abs());
}
