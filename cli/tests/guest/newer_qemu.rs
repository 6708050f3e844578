//! QEMU 9 and later, whose translator has the x2APIC and whose plugins have another interface. The tests run
//! if there is such a QEMU: `RADIXVM_QEMU`, or the one on the PATH.

use std::process::Command;

use crate::harness::{Compiler, compiled, run};
use crate::meter::{contend, number};
use crate::skipped::skip;

/// The first version that has both.
const FIRST: u32 = 9;

/// Returns whether the guests' QEMU is so new, and prints that if it is not.
fn is_newer() -> bool {
    let program = std::env::var("RADIXVM_QEMU").unwrap_or_else(|_| "qemu-system-x86_64".to_owned());
    let output = Command::new(&program).arg("--version").output();
    let text = String::from_utf8(output.unwrap_or_else(|error| panic!("{program}: {error}")).stdout).unwrap();
    let version = text.split("version ").nth(1).and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    let newer = version.unwrap_or_else(|| panic!("{program} says no version: {text}")) >= FIRST;
    if !newer {
        let first = text.lines().next().unwrap();
        skip(&format!("RADIXVM_QEMU names no QEMU {FIRST} or later: {first}"));
    }
    newer
}

/// The plugin supports that QEMU's interface, and counts the same.
#[test]
fn the_meter_counts_in_a_newer_qemu() {
    if !is_newer() {
        return;
    }
    let rows = contend("newer", &["--systems", "adaptive", "--cpus", "1,2,8"], &["local"]);
    for row in &rows {
        assert_eq!(number(row, "transfers", "median"), 0.0, "{row}");
        assert_eq!(
            number(row, "instructions", "median"),
            number(&rows[0], "instructions", "median"),
            "{row}"
        );
    }
    let rows = contend("newer-ipis", &["--systems", "percore", "--cpus", "2"], &["pipeline"]);
    assert_eq!(number(&rows[0], "ipis", "median"), 1.0, "{rows:?}");
}

/// The kernel uses the x2APIC if the CPUs have it. All of them come up, and threads on 32 of them pass pages
/// on and interrupt each other.
fn runs_with_x2apic(cpus: &str) {
    if !is_newer() {
        return;
    }
    let options = ["-v", "-c", cpus, "-m", "2G"];
    let run = run(&options, &[&compiled("x2apic", Compiler::Static)]);
    assert_eq!((run.status, run.text()), (0, "x2APIC\n".to_owned()), "{run:?}");
    assert!(run.stderr.contains(&format!("booted with {cpus} CPUs")), "{}", run.stderr);
    let words = ["pipeline", "--threads", "32", "--iterations", "8", "--json"];
    let report = crate::harness::run(&options, &words).report();
    assert!(report["counters"]["ipis"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn sixty_four_cpus_have_an_x2apic() {
    runs_with_x2apic("64");
}

#[test]
fn two_hundred_and_fifty_five_cpus_have_an_x2apic() {
    runs_with_x2apic("255");
}
