//! Standard streams are the program's own, byte for byte.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use crate::harness::{Compiler, compiled, feed, radixvm, run, run_with, scratch};

/// Returns bytes of every value, in an order that is not simple.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn every_byte_comes_through_both_ways() {
    let stdin = noise(300_000);
    let run = run_with(&["-c", "2"], &[&compiled("stdin", Compiler::Static)], &stdin);
    assert_eq!(run.status, 0);
    assert!(run.stdout == stdin, "{} bytes came back of {}", run.stdout.len(), stdin.len());
    assert_eq!(run.stderr, "stdin: 300000 bytes\n");
}

#[test]
fn the_stock_kernel_passes_every_byte_too() {
    let stdin = noise(100_000);
    let mut command = radixvm();
    command.args(["run", "--system", "linux", &compiled("stdin", Compiler::Musl)]);
    let output = feed(command, &stdin);
    assert!(output.stdout == stdin, "{} bytes came back of {}", output.stdout.len(), stdin.len());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "stdin: 100000 bytes\n");
}

#[test]
fn stderr_and_stdout_are_apart_and_hold_nothing_else() {
    let run = run(&["-e", "GREETING=good day", "-e", "HOME=/"], &[&compiled("hello", Compiler::Musl)]);
    assert_eq!(run.text(), "GREETING=good day\nterminals: 000\nhello: done\n");
    assert_eq!(run.stderr, "hello on stderr\n");
}

#[test]
fn remarks_come_with_verbose_only() {
    let hello = compiled("hello", Compiler::Static);
    let run = run(&["-v", "-c", "3"], &[&hello]);
    assert!(run.stderr.contains("radixvm: booted with 3 CPUs"), "{}", run.stderr);
    assert!(run.stderr.contains("hello on stderr\n"), "{}", run.stderr);
    let abort = compiled("abort", Compiler::Static);
    for (options, told) in [(&["-v"][..], true), (&[], false)] {
        let run = crate::harness::run(options, &[&abort, "kill"]);
        assert_eq!(run.stderr.contains("radixvm: abort-Static was killed by SIGKILL\n"), told, "{run:?}");
    }
}

#[test]
fn standard_input_may_be_a_file_or_closed() {
    let stdin = compiled("stdin", Compiler::Static);
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = radixvm().args(["run", &stdin]).stdin(File::open(text).unwrap()).output().unwrap();
    assert_eq!(output.stdout, std::fs::read(text).unwrap());
    let closed = format!("exec {} run {stdin} <&-", env!("CARGO_BIN_EXE_radixvm"));
    let output = Command::new("timeout").args(["600", "sh", "-c", &closed]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{output:?}");
}

#[test]
fn input_that_the_program_does_not_read_stays_for_the_next_one() {
    let script =
        format!("{} run {} && cat", env!("CARGO_BIN_EXE_radixvm"), compiled("hello", Compiler::Static));
    let mut command = Command::new("timeout");
    command.args(["600", "sh", "-c", &script]);
    let output = feed(command, b"for the next one");
    assert!(output.stdout.ends_with(b"hello: done\nfor the next one"), "{output:?}");
}

#[test]
fn a_reader_that_goes_away_ends_the_run() {
    let mut command = radixvm();
    command.args(["run", &compiled("stdin", Compiler::Static)]).stdin(File::open("/dev/zero").unwrap());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [1; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!((first, child.wait().unwrap().code()), ([0; 10], Some(128 + 13)));
}

#[test]
fn folders_are_handed_over_and_names_follow() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src:/in");
    let run = run(&["--file", folder], &[&compiled("files", Compiler::Static), "/in/guest/qemu.rs"]);
    assert!(run.text().contains("/in/guest/qemu.rs: "), "{run:?}");
    assert_eq!(run.status, 0, "{run:?}");
}

/// Skipped files are reported before the program starts. The rest is copied, links as copies of their
/// targets.
#[test]
fn a_folder_goes_into_a_folder_on_both_systems() {
    let folder = scratch("handed");
    std::fs::write(folder.join("file"), "text\n").unwrap();
    for (to, name) in [("file", "link"), ("nowhere", "dangling")] {
        let _of_an_earlier_run = std::fs::remove_file(folder.join(name));
        std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
    }
    let file_arg = format!("{}:/tmp/", folder.display());
    for system in ["radixvm", "linux"] {
        let mut command = radixvm();
        command.args(["run", "--system", system, "--file", &file_arg]);
        let output =
            command.args([&compiled("files", Compiler::Static), "/tmp/handed/link"]).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && stdout.contains("/tmp/handed/link: "), "{output:?}");
        let told = format!("skipped 1 dangling link ({}/dangling)\n", folder.display());
        assert!(String::from_utf8_lossy(&output.stderr).contains(&told), "{output:?}");
    }
}
