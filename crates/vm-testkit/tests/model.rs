//! Any sequence of operations by any cores does what the model does; after each one, every translation that
//! any core could use is judged.

mod common;

use common::{CORES, setup, step};
use proptest::prelude::*;
use vm::Tables;
use vm_testkit::{Setup, Step, Trial};

fn run(setup: Setup, tables: Tables, steps: &[(usize, Step)]) {
    let mut trial = Trial::new(setup, tables);
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
        run(setup, Tables::PerCore, &steps);
    }

    #[test]
    fn a_shared_table_does_what_the_model_does(setup in setup(), steps in steps()) {
        run(setup, Tables::Shared, &steps);
    }

    #[test]
    fn adaptive_tables_do_what_the_model_does(setup in setup(), steps in steps()) {
        run(setup, Tables::Adaptive, &steps);
    }
}
