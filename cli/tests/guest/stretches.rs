//! No call keeps its CPU from others, nor a signal waiting.

use crate::harness::{Compiler, compiled, radixvm_within};

/// Instructions from a kill inside of a call until the process is gone, its memory included.
const SOON: u64 = 10_000_000;

/// The number behind `word` in a line.
fn number(line: &str, word: &str) -> Option<i64> {
    let rest = line.split(word).nth(1)?.trim_start();
    rest.split(|c: char| c != '-' && !c.is_ascii_digit()).next()?.parse().ok()
}

/// Instructions are counted, so the numbers do not depend on what else this machine does. The kernel says itself when it looks
/// up later than 10^6 instructions after a timer rang, and a timer rings every 20,000.
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
