//! Models of the protocols that the runtime keeps without a lock, and of the requests between members.
//! The kernel's mappings and the program's memory are loom's cells: an access that is not ordered after the
//! last change is reported, and so is one without the right to it.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p radixvm-pathreads --test loom --release`
#![cfg(loom)]

mod blocks;
mod chunks;
mod delivery;
mod kept;
mod member_reservations;
mod parts;
mod requests;
mod reservations;
mod stale;

use sync::loom;

/// Explores all orders of a model's threads with at most this number of preemptions.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}
