//! Models of the protocols that need no machine.
#![cfg(loom)]

mod linkage;
mod presence;

use loom::model::Builder;

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}
