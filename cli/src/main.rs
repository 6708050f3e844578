//! `radixvm`: runs Linux programs on the RadixVM kernel, and measures them there and on stock Linux.
#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use launch::front;

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
    Bench(commands::bench::Arguments),
    /// Run a Linux program on this machine, with small mappings made in the process
    Native(commands::native::Arguments),
    /// Count cache lines, interrupts and faults between CPUs, and name the contended lines and their code
    Contend(commands::contend::Arguments),
    /// Say where the kernel makes a program slow with more threads, by the places in the program
    Why(commands::why::Arguments),
    /// Test pairs of calls that commute, and count the pairs that conflict over a line of the kernel
    Commute(commands::commute::Arguments),
    /// Show what is installed, what is missing, and how to get it
    Doctor,
    /// List the Linux system calls and how much of each the kernel does
    Syscalls(commands::syscalls::Arguments),
    /// Make a folder with all that running guests needs, without the checkout and without Rust
    Install(commands::install::Arguments),
    /// Run all tests
    Test(commands::test::Arguments),
}

fn main() -> ExitCode {
    front::main(dispatch)
}

fn dispatch(Command { verb }: Command) -> anyhow::Result<u8> {
    match verb {
        Verb::Run(arguments) => commands::run::run(arguments),
        Verb::Native(arguments) => commands::native::run(&arguments),
        Verb::Demo(arguments) => commands::demo::run(&arguments),
        Verb::Bench(arguments) => commands::bench::run(&arguments),
        Verb::Contend(arguments) => commands::contend::run(&arguments),
        Verb::Why(arguments) => commands::why::run(&arguments),
        Verb::Commute(arguments) => commands::commute::run(&arguments),
        Verb::Doctor => commands::doctor::run(),
        Verb::Syscalls(arguments) => commands::syscalls::run(&arguments),
        Verb::Install(arguments) => commands::install::run(&arguments),
        Verb::Test(arguments) => commands::test::run(&arguments),
    }
}
