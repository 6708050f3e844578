//! What the programs of this folder share: options, pinned threads and the measured window, memory calls,
//! counters, reports.
//!
//! Every program is one static ELF that runs unchanged on Linux and on the RadixVM kernel; the only thing
//! that differs is where [`counters`] finds its numbers.

pub mod args;
pub mod benchmark;
pub mod cores;
pub mod counters;
pub mod marker;
pub mod memory;
pub mod processes;
pub mod random;
pub mod spin;
pub mod window;

use std::fmt::Display;
use std::io::Write;

/// Prints a result and a line end. A reader that has gone away is no error of ours.
pub fn say(result: impl Display) {
    let _reader_is_gone = writeln!(std::io::stdout(), "{result}");
}

/// Ends the process with status 1 after one line on stderr: something that was tried did not work.
pub fn die(what: impl Display) -> ! {
    eprintln!("error: {what}");
    std::process::exit(1)
}

/// The value, or the end of the process naming what was tried.
pub fn require<T, E: Display>(result: Result<T, E>, what: impl Display) -> T {
    result.unwrap_or_else(|error| die(format_args!("{what}: {error}")))
}
