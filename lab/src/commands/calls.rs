//! `radixvm bench calls`: the cost of single calls.

use std::path::PathBuf;

use abi::config::{Choice, Huge};
use anyhow::Result;
use clap::Args;

use super::output::Output;
use crate::calls;
use launch::{options, terminal};

/// Options of `radixvm bench calls`.
#[derive(Args)]
#[command(after_help = "\
Each call is a round of a program in user/, under the contention meter, without the iterations of repeated string \
instructions. The JSON is an array with one object per call.")]
pub struct Arguments {
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only calls whose names contain one of these words
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Memory calls only, and none that makes threads or processes
    #[arg(long)]
    quick: bool,
    /// Memory of every guest
    #[arg(short, long, default_value = "1G", value_parser = options::size, value_name = "SIZE")]
    memory: u64,
    /// Huge pages, on either kernel
    #[arg(long, value_parser = options::choice::<Huge>(), default_value = Huge::DEFAULT.word())]
    huge: Huge,
    #[command(flatten)]
    guests: options::Guests,
}

/// Measures and reports.
pub fn run(Arguments { json, only, quick, memory, huge, guests }: Arguments) -> Result<u8> {
    guests.apply();
    let chosen = calls::chosen(&only, quick)?;
    // Opened before the measurement, which takes minutes and could not be stored otherwise.
    let json = json.map(Output::open).transpose()?;
    let costs = calls::run(&chosen, memory, huge)?;
    let table = calls::table(&costs);
    let huge = huge.word();
    terminal::print_plain(format_args!(
        "{table}\nInstructions, user and kernel: the median of rounds; huge pages {huge} on either kernel.\n"
    ))?;
    if let Some(file) = json {
        file.write(&(serde_json::to_string_pretty(&costs)? + "\n"))?;
    }
    Ok(0)
}
