//! The main function of the commands: it reads the options, and turns the outcome of the work into an exit
//! status.

use std::process::ExitCode;

use clap::Parser;

use crate::exit_status::{FAILED, StatusError};
use crate::guest::{guard, signals};
use crate::terminal;

/// Reads the options and does the work. If the first argument says so, acts as the guard of a guest instead.
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

/// Prints help or version to stdout with status 0. A bad option fails like every failure of this command, so
/// that the statuses below stay the program's.
fn usage(error: &clap::Error) -> ! {
    if error.use_stderr() {
        // The message repeats the arguments.
        terminal::eprint_plain(&error.render().to_string());
        std::process::exit(FAILED.into());
    }
    // Nothing can be done if the terminal is gone.
    let _ = error.print();
    std::process::exit(0)
}

/// Prints the error, and returns the exit status.
fn explain(error: &anyhow::Error) -> u8 {
    if is_broken_pipe(error) {
        return 128 + 13;
    }
    terminal::message(format_args!("{error:#}"));
    error.downcast_ref::<StatusError>().map_or(FAILED, |error| error.status)
}

/// Returns whether the reader of our output went away, as in `radixvm syscalls | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::BrokenPipe)
}
