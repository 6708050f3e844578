//! Any sequence of operations by any cores does what the model does. After each one, every translation that
//! any core could use is judged.

mod common;

use common::{CORES, setup, step};
use proptest::prelude::*;
use proptest::sample::select;
use vm::Tables;
use vm_testkit::{Design, Setup, Step, Trial};
use vm_trees::Locking;

fn run(setup: Setup, design: Design, steps: &[(usize, Step)]) {
    let mut trial = Trial::new(setup, design);
    steps.iter().for_each(|(core, step)| trial.step(*core, step));
    trial.finish();
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    prop::collection::vec((0..CORES, step()), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn per_core_tables_do_what_the_model_does(setup in setup(), steps in steps()) {
        run(setup, Design::Radix(Tables::PerCore), &steps);
    }

    #[test]
    fn a_shared_table_does_what_the_model_does(setup in setup(), steps in steps()) {
        run(setup, Design::Radix(Tables::Shared), &steps);
    }

    #[test]
    fn a_tree_does_what_the_model_does(setup in setup(), locking in select(&Locking::ALL), steps in steps()) {
        run(setup, Design::Tree(locking), &steps);
    }

    #[test]
    fn adaptive_tables_do_what_the_model_does(setup in setup(), steps in steps()) {
        run(setup, Design::Radix(Tables::Adaptive), &steps);
    }
}
