//! The check, after a program's end, that all its memory is free again.

use super::epoch;
use super::space::SpaceHandle;
use crate::control;
use crate::counters::{self, Counter};

/// Rounds of epochs until the last node is freed: a node's parent is freed after it.
const ROUNDS: usize = 8;

/// Reports the counters, and what the retired space has not given back. Its root node and what is left of its
/// page tables go with its handle, and files stay, so they are not missing.
pub fn report(space: &SpaceHandle) {
    let in_tables = space.table_pages() as i64;
    let in_files = || counters::sum(Counter::FilePages);
    let of_programs = || counters::sum(Counter::FramesUsed) + counters::sum(Counter::CompressedFrames);
    let nodes = || counters::sum(Counter::LiveNodes) - 1;
    let frames = || of_programs() + counters::sum(Counter::TablePages) - in_tables - in_files();
    for _ in 0..ROUNDS {
        if nodes() > 0 || frames() > 0 {
            epoch::drain();
        }
    }
    control::stats(space, frames().unsigned_abs(), nodes().unsigned_abs());
}
