//! The counters of `--stats`.

use crate::harness::{Compiler, compiled, run, scratch};

/// The program that maps is a child, and has ended when the counters are reported.
#[test]
fn counters_are_of_all_programs() {
    // A program of user/, which the command has built.
    let local = scratch("..").join("x86_64-unknown-linux-musl/release/local");
    let file_arg = format!("{}:/in/local", local.display());
    let starter = compiled("starter", Compiler::Static);
    let words = [starter.as_str(), "/in/local", "--threads", "2", "--iterations", "150"];
    let run = run(&["-c", "2", "--file", &file_arg], &words);
    let total = |counter| run.counter(counter);
    assert_eq!(run.status, 0, "{run:?}");
    assert!(total("munmap") >= 300 && total("alloc_faults") >= 300 && total("mmap") >= 300, "{run:?}");
    assert!(total("radix_nodes_created") > total("radix_nodes_collapsed"), "{run:?}");
}
