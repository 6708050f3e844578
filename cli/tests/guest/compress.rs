//! Pages that are compressed when memory is short.

use crate::harness::{Compiler, compiled, radixvm, run};

/// Threads, calls and children write and read twice the memory of the machine.
#[test]
fn there_is_more_memory_than_there_is() {
    for tables in ["percore", "shared", "adaptive"] {
        let options = ["-m", "32M", "-c", "2", "--tables", tables, "--compress"];
        let run = run(&options, &[&compiled("compress", Compiler::Musl), "48"]);
        assert!(run.status == 0 && !run.stderr.contains("out of memory"), "{run:?}");
        assert!(run.counter("page_outs") > 0 && run.counter("page_ins") > 0, "{run:?}");
    }
}

#[test]
fn without_the_option_it_runs_out() {
    let run = run(&["-m", "32M", "-c", "2"], &[&compiled("compress", Compiler::Musl), "48"]);
    assert!(run.status == 128 + 9 && run.stderr.contains("out of memory"), "{run:?}");
}

/// A program whose pages always compress is ended too when that memory is full.
#[test]
fn the_largest_program_ends_when_compressed_memory_is_full() {
    let run = run(&["-m", "32M", "-c", "2", "--compress"], &[&compiled("greedy", Compiler::Musl), "1"]);
    assert_eq!((run.status, run.text().as_str()), (0, "large: signal 9\nsmall: status 3\n"), "{run:?}");
}

#[test]
fn designs_that_cannot_compress_say_so() {
    let program = compiled("hello", Compiler::Musl);
    let output = radixvm().args(["run", "--compress", "--vm", "bonsai", &program]).output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(125) && stderr.contains("--vm bonsai cannot compress"), "{stderr}");
}
