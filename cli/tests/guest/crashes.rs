//! A wild access kills the program, not the kernel, and stderr says where it was.

use crate::harness::{Compiler, Run, compiled, here, run};

fn crash(compiler: Compiler, how: &str) -> Run {
    let run = run(&["-c", "2"], &[&compiled("segv", compiler), how]);
    assert_eq!((run.status, run.text()), (139, format!("about to fault: {how}\n")), "{run:?}");
    for word in ["SIGSEGV", "0xdead000", "backtrace"] {
        assert!(run.stderr.contains(word), "no {word} in {}", run.stderr);
    }
    run
}

/// The functions of the call chain appear in order, with their source file.
fn in_order(run: &Run, names: &[&str]) {
    let mut rest = run.stderr.as_str();
    for name in names {
        let at = rest.find(name).unwrap_or_else(|| panic!("no {name} in order in {}", run.stderr));
        rest = &rest[at + name.len()..];
    }
    assert!(run.stderr.contains("segv.c:"), "{}", run.stderr);
}

#[test]
fn a_read_is_located_and_decoded() {
    let run = crash(Compiler::Static, "read");
    in_order(&run, &["(read)", "mov ", "inner at", "middle at", "outer at", "main at"]);
}

#[test]
fn a_write_of_a_position_independent_program() {
    in_order(
        &crash(Compiler::StaticPie, "write"),
        &["(written)", "inner at", "middle at", "outer at", "main at"],
    );
}

#[test]
fn a_jump_to_nowhere_shows_its_caller() {
    let run = crash(Compiler::Musl, "exec");
    in_order(&run, &["(executed)", "outside the program", "inner at", "middle at", "outer at", "main at"]);
}

#[test]
fn a_thread_crashes_the_whole_program() {
    in_order(&crash(Compiler::Static, "thread"), &["inner at", "middle at", "outer at"]);
}

/// No room for a handler's frame, or no frame to return by: killed as on Linux, and not without a word.
#[test]
fn a_frame_that_cannot_be_is_a_crash() {
    let program = compiled("frames", Compiler::Static);
    for (how, access) in [("overflow", "(written)"), ("entry", "(written)"), ("return", "(read)")] {
        let run = run(&[], &[&program, how]);
        let (stdout, status) = here(&[program.as_str(), how], b"");
        assert_eq!((Some(run.status), &run.stdout), (status, &stdout), "{run:?}");
        assert!(run.stderr.contains("SIGSEGV") && run.stderr.contains(access), "{how}: {}", run.stderr);
    }
}
