//! Tests that cannot run on this machine.

use std::io::{self, Write};
use std::thread;

/// Says that this test is skipped, and why. `cargo xtask test` counts it as skipped then, and not as passed.
/// The line is not held back with a passed test's output.
pub fn skip(reason: &str) {
    let line = format!("skipped: {}: {reason}\n", thread::current().name().unwrap_or("a test"));
    io::stdout().lock().write_all(line.as_bytes()).expect("stdout takes a line");
}
