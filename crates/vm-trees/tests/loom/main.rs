//! The designs with a tree of regions under a model checker.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p radixvm-vm-trees --test loom --release`
#![cfg(loom)]

#[path = "../../../vm/tests/loom/domains.rs"]
mod domains;
mod faults;
mod locks;
#[allow(dead_code)] // these models use one page table, and compress nothing
#[path = "../../../vm/tests/loom/machine.rs"]
mod machine;
#[allow(dead_code)]
#[path = "../../../vm/tests/loom/memory.rs"]
mod memory;
mod world;

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
