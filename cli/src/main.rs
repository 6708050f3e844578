//! `radixvm`: runs Linux programs on the RadixVM kernel, measures them there and on stock Linux.
#![forbid(unsafe_code)]

mod artifacts;
mod bench;
mod commands;
mod crash;
mod exit_status;
mod guest;
mod meter;
mod options;
mod place;
mod program;
mod progress;
mod symbols;
mod table;
mod terminal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use exit_status::{FAILED, StatusError};

#[derive(Parser)]
#[command(
    name = "radixvm",
    version,
    about = "Runs Linux programs on the RadixVM kernel",
    max_term_width = 100
)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a static Linux program in a guest
    Run(commands::run::Arguments),
    /// Run a word index and a mapping benchmark on RadixVM and on stock Linux, side by side
    Demo(commands::demo::Arguments),
    /// Measure RadixVM and stock Linux with the same programs
    #[command(subcommand)]
    Bench(commands::bench::Bench),
    /// Count what CPUs take from each other: cache lines, interrupts, faults, and which code fights over what
    Contend(commands::contend::Arguments),
    /// Say what is installed, what is missing, how to get it
    Doctor,
    /// List the Linux system calls and how much of each the kernel does
    Syscalls(commands::syscalls::Arguments),
    /// Run all tests
    Test(commands::test::Arguments),
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == guest::guard::ARGUMENT) {
        return guest::guard::main(arguments);
    }
    let command = Command::try_parse().unwrap_or_else(|error| usage(&error));
    match guest::signals::install().and_then(|()| dispatch(command.verb)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => ExitCode::from(explain(&error)),
    }
}

fn dispatch(verb: Verb) -> anyhow::Result<u8> {
    match verb {
        Verb::Run(arguments) => commands::run::run(arguments),
        Verb::Demo(arguments) => commands::demo::run(&arguments),
        Verb::Bench(bench) => commands::bench::run(bench),
        Verb::Contend(arguments) => commands::contend::run(&arguments),
        Verb::Doctor => commands::doctor::run(),
        Verb::Syscalls(arguments) => commands::syscalls::run(&arguments),
        Verb::Test(arguments) => commands::test::run(&arguments),
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
