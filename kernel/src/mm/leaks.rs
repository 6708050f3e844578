//! The check, after a program's end, that all its memory is free again.

use super::epoch;
use super::space::SpaceHandle;
use super::statistics::{sum, visit_all};
use crate::control;
use crate::counters::Counter;

/// Rounds of epochs until the last node is freed: a node's parent is freed after it.
const ROUNDS: usize = 8;

/// Reports the counters, and what the retired space has not given back. Its root node and what is left of its
/// page tables go with its handle, and files stay, so they are not missing.
pub fn report(space: &SpaceHandle) {
    let in_tables = space.table_pages() as i64;
    let in_files = || sum(Counter::FilePages);
    let of_programs = || sum(Counter::FramesUsed) + sum(Counter::CompressedFrames);
    let nodes = || sum(Counter::LiveNodes) - 1;
    let frames = || of_programs() + sum(Counter::TablePages) - in_tables - in_files();
    for _ in 0..ROUNDS {
        if nodes() > 0 || frames() > 0 {
            epoch::drain();
        }
    }
    control::stats(|f| visit_all(space, f), frames().unsigned_abs(), nodes().unsigned_abs());
}
