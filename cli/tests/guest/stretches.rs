//! No call keeps its CPU from other tasks, or delays a signal, for long.

use crate::harness::{Compiler, compiled, radixvm_within};

/// The instructions from a kill inside a call until the process is gone with its memory.
const SOON: u64 = 10_000_000;
/// The instructions of two slices.
const TWO_SLICES: i64 = 20_000_000;

/// Returns the number after `word` in a line.
fn number(line: &str, word: &str) -> Option<i64> {
    let rest = line.split(word).nth(1)?.trim_start();
    rest.split(|c: char| c != '-' && !c.is_ascii_digit()).next()?.parse().ok()
}

/// Instructions are counted, so the numbers do not depend on the load of this machine. The kernel counts
/// timers that it handles more than 10^6 instructions late, and a timer expires every 20,000 instructions.
#[test]
fn no_call_keeps_a_cpu_for_more_than_a_million_instructions() {
    let mut command = radixvm_within("1500");
    command.args(["run", "--accel", "count", "-m", "256M", "--", &compiled("stretches", Compiler::Musl)]);
    let run = command.output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    let calls: Vec<_> = text.lines().filter(|line| line.contains(": longest ")).collect();
    assert!(run.status.success() && calls.len() > 25, "{run:?}");
    for line in calls {
        assert!(number(line, " late ") == Some(0) && line.ends_with("status 0"), "{line}\n{text}");
    }
    let kills: Vec<_> = text.lines().filter_map(|line| number(line, ": killed in ")).collect();
    assert!(kills.len() > 7 && kills.iter().all(|&took| (took as u64) < SOON), "{text}");
    assert!(!text.contains("over before the kill"), "{text}");
}

/// The pages of removed files, 440 MiB, take more than two slices to free. A task that does not free them
/// waits for less.
#[test]
fn only_one_task_waits_until_removed_files_are_freed() {
    let mut command = radixvm_within("600");
    let program = compiled("freeing", Compiler::Musl);
    command.args(["run", "--accel", "count", "-m", "1G", "--", &program, "220"]);
    let run = command.output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    let late = number(&text, "late ");
    assert!(run.status.success() && late.is_some_and(|late| late > 0 && late < TWO_SLICES), "{run:?}");
}
