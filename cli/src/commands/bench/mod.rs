//! `radixvm bench`: measurements on RadixVM and on stock Linux.

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
    /// What address spaces of real programs cost beside their pages: on Linux and in our core
    Memory(memory::Arguments),
}

/// Measures and reports.
pub fn run(bench: Bench) -> Result<u8> {
    match bench {
        Bench::Micro(arguments) => micro::run(arguments),
        Bench::Memory(arguments) => memory::run(arguments),
    }
}
