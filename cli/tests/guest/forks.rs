//! Forks of processes with threads.

use crate::harness::{Compiler, compiled, run};

/// The memory is so large that it is copied piece by piece while the other threads are frozen.
#[test]
fn a_child_of_threads_is_a_copy_of_one_moment() {
    let program = compiled("snapshot", Compiler::Static);
    for (cpus, tables) in [("1", "adaptive"), ("2", "percore"), ("4", "adaptive"), ("3", "shared")] {
        let run = run(&["-c", cpus, "--tables", tables, "-m", "256M"], &[&program, "5"]);
        assert!(run.status == 0 && run.text().lines().count() == 4, "{cpus} {tables}: {run:?}");
    }
}

/// Three threads read `/proc/PID/status` of children that exit at once.
#[test]
fn processes_that_end_are_read_meanwhile() {
    let program = compiled("exit_readers", Compiler::Musl);
    let run = run(&["-c", "4", "-m", "256M"], &[&program, "3000"]);
    assert!(run.status == 0 && run.text().lines().count() == 3, "{run:?}");
}
