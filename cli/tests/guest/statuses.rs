//! Exit statuses: the program's own, and the documented ones of the command.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::harness::{Compiler, bench, compiled, radixvm, run, scratch};

#[test]
fn the_programs_own() {
    let hello = compiled("hello", Compiler::Static);
    for status in [0, 1, 42, 125, 255] {
        assert_eq!(run(&[], &[&hello, &status.to_string()]).status, status);
    }
}

#[test]
fn killed_by_a_signal() {
    let abort = compiled("abort", Compiler::Static);
    for (how, signal) in [("abort", 6), ("raise", 15), ("ill", 4), ("fpe", 8), ("trap", 5), ("kill", 9)] {
        let run = run(&[], &[&abort, how]);
        assert_eq!((run.status, run.text()), (128 + signal, format!("about to die: {how}\n")), "{run:?}");
    }
}

/// Status and stderr of a command that starts no guest.
fn refused(words: &[&str]) -> (i32, String) {
    let output = radixvm().args(words).output().unwrap();
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_dynamic_program_is_explained() {
    let (status, text) = refused(&["run", "--host-files", "never", "/bin/ls"]);
    assert_eq!(status, 126);
    assert!(
        text.contains("/bin/ls") && text.contains("dynamically linked") && text.contains("-static"),
        "{text}"
    );
}

#[test]
fn a_file_that_is_no_program_is_explained() {
    let folder = scratch("no-programs");
    let file = |name: &str, content: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let (status, text) = refused(&["run", &file("text", b"hello")]);
    assert_eq!((status, text.contains("not an ELF program")), (126, true), "{text}");
    let script = file("script", b"#!/bin/sh\n");
    let (status, text) = refused(&["run", "--host-files=never", &script]);
    assert_eq!((status, text.contains("a script")), (126, true), "{text}");
    let (status, text) = refused(&["run", &script]);
    assert_eq!((status, text.contains("chmod +x")), (126, true), "{text}");
    let mut other = fs::read(compiled("hello", Compiler::Static)).unwrap();
    other[18] = 183;
    let (status, text) = refused(&["run", &file("arm", &other)]);
    assert_eq!((status, text.contains("another machine")), (126, true), "{text}");
    let hello = fs::read(compiled("hello", Compiler::Static)).unwrap();
    let (status, text) = refused(&["run", &file("half", &hello[..hello.len() / 2])]);
    assert_eq!((status, text.contains("damaged ELF")), (126, true), "{text}");
    let (status, text) = refused(&["run", &file("no-right", &hello)]);
    assert_eq!((status, text.contains("chmod +x")), (126, true), "{text}");
}

#[test]
fn a_named_pipe_is_not_waited_for() {
    let pipe = scratch("no-programs").join("pipe").display().to_string();
    let made = Command::new("sh").args(["-c", "[ -p \"$0\" ] || mkfifo \"$0\"", &pipe]).status();
    assert!(made.unwrap().success());
    let (status, text) = refused(&["run", &pipe]);
    assert_eq!((status, text), (126, format!("radixvm: {pipe}: not a regular file\n")));
}

#[test]
fn missing_things_are_named() {
    let (status, text) = refused(&["run", "./no-such-program"]);
    assert_eq!((status, text.contains("./no-such-program")), (127, true), "{text}");
    let hello = compiled("hello", Compiler::Static);
    let (status, text) = refused(&["run", "--file", "/no/such/file", &hello]);
    assert_eq!((status, text.contains("/no/such/file")), (125, true), "{text}");
    let (status, text) = refused(&["run", "--file", &format!("{hello}:/dev/null"), &hello]);
    assert_eq!((status, text.contains("/dev is the guest's own")), (125, true), "{text}");
}

#[test]
fn bad_options_are_ours() {
    let hello = compiled("hello", Compiler::Static);
    for (options, said) in [
        (["-c", "0"], "1 to 255"),
        (["-c", "256"], "1 to 255"),
        (["-m", "lots"], "512M"),
        (["--tables", "none"], "percore"),
        (["-e", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE=VALUE"),
        (["--tabels", "shared"], "'--tables'"),
    ] {
        let (status, text) = refused(&[&["run"], &options[..], &[&hello]].concat());
        assert_eq!((status, text.contains(said)), (125, true), "{options:?}: {text}");
    }
}

#[test]
fn bad_words_of_the_other_verbs_are_ours_too() {
    for (words, said) in [
        (&["test", "bogus"][..], "check, unit, asan, guest, bochs, loom, native, miri"),
        (&["demo", "--repeats", "0"], "1 or more"),
        (
            &["run", "--system", "linux", "-m", "64M", &compiled("hello", Compiler::Static)],
            "at least 128 MiB",
        ),
    ] {
        let (status, text) = refused(words);
        assert_eq!((status, text.contains(said)), (125, true), "{words:?}: {text}");
    }
}

#[test]
fn the_laboratory_ends_like_the_other_verbs() {
    let output = bench("600").args(["micro", "--json", "/no/such/folder/x"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), text.contains("/no/such/folder/x: ")), (Some(125), true), "{text}");
}

#[test]
fn a_program_too_large_for_the_guest_is_refused() {
    let big = scratch("big").join("big");
    fs::write(&big, vec![0; 24 << 20]).unwrap();
    let hello = compiled("hello", Compiler::Static);
    let (status, text) = refused(&["run", "-m", "32M", "--file", &big.display().to_string(), &hello]);
    assert_eq!((status, text.contains("-m")), (125, true), "{text}");
}

/// It is our failure, and not told as the end of a pipe.
#[test]
fn a_full_disk_under_the_output_is_told() {
    let hello = compiled("hello", Compiler::Static);
    let full = || Stdio::from(fs::File::create("/dev/full").unwrap());
    for (words, said) in [
        (&["run", &hello][..], "the program's output cannot be written: No space left on device"),
        (&["syscalls"], "standard output: No space left on device"),
    ] {
        let output = radixvm().args(words).stdout(full()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), text.contains(said)), (Some(125), true), "{words:?}: {text}");
    }
}

/// The processes that a process has started.
fn children(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap()
}

#[test]
fn an_interrupt_during_the_demo_ends_it_as_a_shell_expects() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixvm"));
    command
        .args(["demo", "--repeats", "50"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    drop(radixvm());
    let mut demo = command.spawn().unwrap();
    let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("running both programs")));
    while children(demo.id()).is_empty() {
        std::thread::yield_now();
    }
    let interrupted = Command::new("sh").args(["-c", &format!("kill -INT {}", demo.id())]).status();
    assert!(interrupted.unwrap().success());
    let rest: Vec<String> = lines.collect();
    assert_eq!(demo.wait().unwrap().code(), Some(130), "{rest:?}");
}
