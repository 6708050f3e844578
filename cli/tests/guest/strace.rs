//! System calls that are printed and counted.

use crate::harness::{Compiler, compiled, radixvm};

/// Runs a line for a shell with options, and returns what is on stderr.
fn traced(options: &[&str], line: &str) -> String {
    let output = radixvm().arg("run").args(options).args(["--", "sh", "-c", line]).output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"said\n"[..]), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn calls_are_shown_with_strings_and_errors() {
    let text = traced(&["--strace", "-c", "2"], "echo said; mkdir /none/folder 2>&-; exit 3");
    let has = |wanted: &str| assert!(text.lines().any(|line| line.contains(wanted)), "{wanted}: {text}");
    has("sh[1] write(1, 0x");
    has(", 5) = 5");
    has("/mkdir\", 0x");
    has("] mkdir(\"/none/folder\", 0o777) = -1 ENOENT");
    has("sh[1] wait4(-1, 0x");
    has("sh[1] exit_group(3) = ?");
}

#[test]
fn calls_are_chosen_by_name_and_counted() {
    let text = traced(&["--strace=exit_group", "--syscall-summary"], "echo said; cd /none 2>&-; exit 3");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "sh[1] exit_group(3) = ?", "{text}");
    let row = |name: &str| -> Vec<&str> {
        let mut row = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
        row.rfind(|row| row[0] == name).unwrap_or_else(|| panic!("{name}: {text}"))
    };
    assert_eq!(row("chdir"), ["chdir", "1", "1", "ENOENT", "1"]);
    assert_eq!(row("exit_group"), ["exit_group", "1"]);
    assert!(!text.contains("write("), "{text}");
}

#[test]
fn mistakes_are_named() {
    let program = compiled("hello", Compiler::Musl);
    let words = [&["--strace=reed", "--", "sh"][..], &["--strace", "--system", "linux", "--", &program]];
    for (words, reason) in words.into_iter().zip(["no call reed", "for the RadixVM kernel"]) {
        let output = radixvm().arg("run").args(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(reason) && output.status.code() == Some(125), "{output:?}");
    }
}
