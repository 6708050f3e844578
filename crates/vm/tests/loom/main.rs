//! The protocols of this crate under a model checker.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p radixvm-vm --test loom --release`
#![cfg(loom)]

mod clock;
mod demotion;
mod domains;
mod linkage;
#[allow(dead_code)] // the models of vm-trees use the rest
mod machine;
#[allow(dead_code)]
mod memory;
mod presence;
mod programs;

use loom::model::Builder;
use test_memory::Poison;

#[global_allocator]
static ALLOCATOR: Poison = Poison;

/// Explores `model` with at most `preemptions` preemptions in an execution.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}
