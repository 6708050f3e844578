//! System calls with bad arguments: wild pointers, pointers to the kernel and to read-only pages, lengths
//! that overflow, invalid numbers. Each must give the error that Linux gives, and none may harm the kernel or
//! the program.
//!
//! The expectations are Linux's: the program passes there as it must pass on the RadixVM kernel. Where Linux
//! itself varies (by version, privilege or CPU) or POSIX leaves the choice, a case accepts several outcomes.

mod brk;
mod cases;
mod crowd;
mod files;
mod fixture;
mod machine;
mod memory;
mod misc;
mod signals;
mod threads;
mod users;

use cases::{Case, Cases, Outcome};
use fixture::Fixture;
use programs::args::options;
use programs::say;
use std::process::ExitCode;

const USAGE: &str = "usage: hostile [--verbose]\nMakes system calls with bad arguments and compares the errors with those of Linux.\n\n  \
    --verbose  also name the calls that passed";

fn main() -> ExitCode {
    let verbose = options(USAGE, |mut args| {
        let verbose = args.flag("--verbose");
        args.end().map(|()| verbose)
    });
    let fixture = Fixture::new();
    let mut failed = 0;
    let cases = all(&fixture);
    for case in &cases {
        let outcome = case.run();
        failed += usize::from(!judge(case, outcome, verbose));
    }
    let surprises = machine::surprises().chain(brk::surprises()).chain(crowd::surprises());
    failed += surprises.inspect(|surprise| eprintln!("FAILED {surprise}")).count();
    let total = cases.len() + machine::CHECKS + brk::CHECKS + crowd::CHECKS;
    say(format_args!("{} passed, {failed} failed", total - failed));
    ExitCode::from(u8::from(failed > 0))
}

fn all(fixture: &Fixture) -> Vec<Case> {
    let mut cases = Cases::new(fixture);
    memory::add(&mut cases, fixture);
    files::add(&mut cases, fixture);
    threads::add(&mut cases, fixture);
    signals::add(&mut cases, fixture);
    misc::add(&mut cases, fixture);
    users::add(&mut cases, fixture);
    cases.list
}

/// Returns whether the outcome is an expected one, and reports it if it is not.
fn judge(case: &Case, outcome: Outcome, verbose: bool) -> bool {
    let good = case.accepts(outcome);
    if !good {
        eprintln!("FAILED {case}: got {}, expected {}", cases::show(&outcome), case.expected());
    } else if verbose {
        say(format_args!("ok {case}: {}", cases::show(&outcome)));
    }
    good
}
