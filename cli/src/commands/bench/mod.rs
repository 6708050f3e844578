//! `radixvm bench`: measurements on RadixVM and on stock Linux.

mod calls;
mod figures;
mod memory;
mod micro;
mod output;

use anyhow::Result;
use clap::Subcommand;

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// local, pipeline and global on RadixVM with per-core tables, with a shared table, and on stock Linux
    Micro(micro::Arguments),
    /// Instructions of single memory calls, fork and exec on one CPU, on RadixVM and on stock Linux
    Calls(calls::Arguments),
    /// What address spaces of real programs cost beside their pages: on Linux and in our core
    Memory(memory::Arguments),
    /// The figures of the RadixVM and Bonsai papers, from counts and the cost model
    Figures(figures::Arguments),
}

/// Measures and reports.
pub fn run(bench: Bench) -> Result<u8> {
    match bench {
        Bench::Micro(arguments) => micro::run(arguments),
        Bench::Calls(arguments) => calls::run(arguments),
        Bench::Memory(arguments) => memory::run(arguments),
        Bench::Figures(arguments) => figures::run(arguments),
    }
}
