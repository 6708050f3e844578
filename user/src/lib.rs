//! The code that the programs of this folder share: options, pinned threads and the measured window, memory
//! calls, counters, reports, and the parts of both indexes.
//!
//! Every program is one static ELF that runs unchanged on Linux and on the RadixVM kernel. The only
//! difference is where [`counters`] finds its numbers.

pub mod arena;
pub mod args;
pub mod benchmark;
pub mod buffer;
pub mod cores;
pub mod counters;
pub mod marker;
pub mod memory;
pub mod processes;
pub mod random;
pub mod shared_file;
pub mod spin;
pub mod table;
pub mod window;
pub mod words;

use std::fmt::Display;
use std::io::Write;

/// Prints a result and a line end. A closed reader is not treated as an error.
pub fn say(result: impl Display) {
    let _reader_is_gone = writeln!(std::io::stdout(), "{result}");
}

/// Prints one line on stderr about a failure, and ends the process with status 1.
pub fn die(what: impl Display) -> ! {
    eprintln!("error: {what}");
    std::process::exit(1)
}

/// Returns the value, or ends the process with an error that names `what`.
pub fn require<T, E: Display>(result: Result<T, E>, what: impl Display) -> T {
    result.unwrap_or_else(|error| die(format_args!("{what}: {error}")))
}
