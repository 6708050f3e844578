//! The laboratory, the program behind `radixvm bench`. It measures RadixVM and stock Linux with the same
//! programs, and draws the papers' figures.
#![forbid(unsafe_code)]

mod calls;
mod commands;
mod figures;
#[cfg(test)]
mod fixture;
mod memory;
mod micro;
mod plot;
mod row;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use launch::front;

#[derive(Parser)]
#[command(
    name = "radixvm bench",
    bin_name = "radixvm bench",
    version,
    about = "Measures RadixVM and stock Linux with the same programs",
    max_term_width = 100
)]
struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// local, pipeline and global on RadixVM with per-core tables, with a shared table, and on stock Linux
    Micro(commands::micro::Arguments),
    /// Instructions of single memory calls, fork and exec on one CPU, on RadixVM and on stock Linux
    Calls(commands::calls::Arguments),
    /// Cost of address spaces of real programs beside their pages, on Linux and in our core
    Memory(commands::memory::Arguments),
    /// Programs on this machine, plainly and with the pool of `radixvm native`
    Native(commands::native::Arguments),
    /// The workloads of the PATHREADS paper on this machine, plainly and with `radixvm native`
    Workloads(commands::workloads::Arguments),
    /// The figures of the RadixVM and Bonsai papers, from counts and the cost model
    Figures(commands::figures::Arguments),
}

fn main() -> ExitCode {
    front::main(measure)
}

fn measure(Bench { what }: Bench) -> anyhow::Result<u8> {
    match what {
        What::Micro(arguments) => commands::micro::run(arguments),
        What::Calls(arguments) => commands::calls::run(arguments),
        What::Memory(arguments) => commands::memory::run(arguments),
        What::Native(arguments) => commands::native::run(arguments),
        What::Workloads(arguments) => commands::workloads::run(arguments),
        What::Figures(arguments) => commands::figures::run(arguments),
    }
}
