//! An invalid access kills the program, not the kernel, and stderr names its place.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::harness::{Compiler, Run, compiled, here, radixvm, run, scratch};

fn crash(compiler: Compiler, how: &str) -> Run {
    let run = run(&["-c", "2"], &[&compiled("segv", compiler), how]);
    assert_eq!((run.status, run.text()), (139, format!("about to fault: {how}\n")), "{run:?}");
    for word in ["SIGSEGV", "0xdead000", "backtrace"] {
        assert!(run.stderr.contains(word), "no {word} in {}", run.stderr);
    }
    run
}

/// Checks that the functions of the call chain appear in order, with their source file.
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

/// With `--strict` a call that is not supported is as a crash, and otherwise an error.
#[test]
fn a_call_that_is_not_supported_ends_a_strict_run() {
    let program = compiled("segv", Compiler::Static);
    let run = run(&["--strict"], &[&program, "call"]);
    assert_eq!((run.status, run.text().as_str()), (159, "about to fault: call\n"), "{run:?}");
    in_order(&run, &["died of SIGSYS", "io_setup (number 206): 0x11, 0x22", "inner at", "main at"]);
    crash(Compiler::Static, "call");
}

/// The first program does not live on without its child.
#[test]
fn a_child_ends_a_strict_run() {
    let file_arg = format!("{}:/in/fault", compiled("segv", Compiler::StaticPie));
    let starter = compiled("starter", Compiler::Static);
    let run = run(&["--strict", "--file", &file_arg], &[&starter, "/in/fault", "call"]);
    assert_eq!((run.status, run.text().as_str()), (159, "about to fault: call\n"), "{run:?}");
    in_order(&run, &["fault died of SIGSYS", "io_setup", "inner at"]);
}

/// A handler's frame has no room, or no valid return. The program is killed as on Linux, and the crash is
/// reported.
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

/// Runs `segv read` as a child, from `/in/fault` or from a copy that the guest made. The first program lives
/// on.
fn crash_of_a_child(words: &[&str]) -> Run {
    let file_arg = format!("{}:/in/fault", compiled("segv", Compiler::StaticPie));
    let starter = compiled("starter", Compiler::Static);
    let run = run(&["--file", &file_arg], &[&[starter.as_str()], words].concat());
    assert_eq!((run.status, run.text()), (0, "about to fault: read\n".to_owned()), "{run:?}");
    run
}

#[test]
fn the_program_that_died_is_named_and_located() {
    let run = crash_of_a_child(&["/in/fault", "read"]);
    assert!(run.stderr.contains("radixvm: fault died of SIGSEGV"), "{}", run.stderr);
    in_order(&run, &["(read)", "mov ", "inner at", "middle at", "outer at", "main at"]);
}

#[test]
fn of_a_program_that_is_not_known_here_no_names_are_told() {
    let run = crash_of_a_child(&["copy", "/in/fault", "read"]);
    for told in ["radixvm: copy died of SIGSEGV", "0xdead000", "no backtrace: /tmp/copy was not handed over"]
    {
        assert!(run.stderr.contains(told), "no {told} in {}", run.stderr);
    }
    assert!(!run.stderr.contains("inner"), "{}", run.stderr);
}

/// A file name and symbols contain escape sequences. The terminal gets them escaped.
#[test]
fn names_cannot_act_on_the_terminal() {
    let mut program = fs::read(compiled("segv", Compiler::Static)).unwrap();
    let name = b"inner\0";
    let places: Vec<_> = (0..program.len() - 6).filter(|at| program[*at..].starts_with(name)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| program[at..at + 5].copy_from_slice(b"\x1b]0;\n"));
    let file = scratch("escapes").join("se\x1b[31mgv\nradixvm: ok");
    fs::write(&file, program).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    let run = run(&["-v"], &[file.to_str().unwrap(), "read"]);
    assert_eq!(run.status, 139, "{run:?}");
    assert!(
        run.stderr.chars().all(|character| character == '\n' || !character.is_control()),
        "{:?}",
        run.stderr
    );
    assert!(run.stderr.contains(r"radixvm: se\x1b[31mgv\x0aradixvm: ok died of SIGSEGV"), "{}", run.stderr);
    assert!(run.stderr.contains(r"\x1b]0;\x0a at"), "{}", run.stderr);
    let missing = radixvm().args(["run", "\x1b[2Jmissing", "--\x07no"]).output().unwrap();
    assert!(missing.stderr.iter().all(|byte| *byte == b'\n' || *byte >= b' '), "{missing:?}");
}
