//! The main function of the commands: reads the options, and turns what becomes of the work into an exit status.

use std::process::ExitCode;

use clap::Parser;

use crate::exit_status::{FAILED, StatusError};
use crate::guest::{guard, signals};
use crate::terminal;

/// Reads the options and does the work, or is the guard of a guest that such work starts.
pub fn main<Options: Parser>(work: impl FnOnce(Options) -> anyhow::Result<u8>) -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == guard::ARGUMENT) {
        return guard::main(arguments);
    }
    let options = Options::try_parse().unwrap_or_else(|error| usage(&error));
    match signals::install().and_then(|()| work(options)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => ExitCode::from(explain(&error)),
    }
}

/// Help and version go to stdout with status 0; a bad option fails like everything that is our own failure, so
/// that the statuses below stay the program's.
fn usage(error: &clap::Error) -> ! {
    if error.use_stderr() {
        // It repeats what it was given.
        terminal::eprint_plain(&error.render().to_string());
        std::process::exit(FAILED.into());
    }
    // Nothing is left to do if the terminal is gone.
    let _ = error.print();
    std::process::exit(0)
}

/// Says what went wrong; the status to exit with.
fn explain(error: &anyhow::Error) -> u8 {
    if is_broken_pipe(error) {
        return 128 + 13;
    }
    terminal::message(format_args!("{error:#}"));
    error.downcast_ref::<StatusError>().map_or(FAILED, |error| error.status)
}

/// Whether our own reader went away, as in `radixvm syscalls | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::BrokenPipe)
}
