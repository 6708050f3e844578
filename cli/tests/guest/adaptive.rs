//! Adaptive tables: a block is shared no longer than several cores use it.

use crate::harness::{Compiler, compiled, run};

/// Returns the targets of interrupts in `rounds` rounds of one thread, after four threads have shared its
/// block.
fn targets(rounds: u32) -> i64 {
    let run = run(&["-c", "4"], &[&compiled("demotion", Compiler::Musl), &rounds.to_string()]);
    assert!(run.status == 0 && run.text() == "demotion: done\n", "{run:?}");
    run.counter("ipi_targets")
}

/// At first each round interrupts the three other cores, whose threads still spin. The further rounds,
/// however many, interrupt no core.
#[test]
fn a_block_that_only_one_thread_still_uses_is_owned_again() {
    let (few, many) = (targets(100), targets(2000));
    assert!(few >= 4, "{few}: nothing was shared");
    assert!(many <= 40, "{many} in 2000 rounds, {few} in 100");
}

/// A core fills in tables of a space that it has left, for a process that runs there now. It has dropped
/// stale entries before.
#[test]
fn a_process_written_to_from_a_core_that_it_left_is_not_mistaken() {
    for tables in ["adaptive", "percore"] {
        let run = run(&["-c", "2", "--tables", tables], &[&compiled("remote_write", Compiler::Musl), "60"]);
        assert!(run.status == 0 && run.text() == "remote_write: done\n", "{run:?}");
        assert_eq!(run.stats["leaked_frames"], 0, "{run:?}");
    }
}
