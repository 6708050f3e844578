//! `radixvm bench native`: programs on this machine, plainly and with the pool of `radixvm native`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::output::Output;
use launch::table::{Table, count};
use launch::{artifacts, options, terminal};

/// Options of `radixvm bench native`.
#[derive(Args)]
#[command(after_help = "\
Without a program: rounds of local, whose threads map memory, write to each page and unmap it. With one: how long it
takes. Runs are interleaved, and the ratio is the median of the ratios of neighbouring runs. The machine should be idle.")]
pub struct Arguments {
    /// Runs of each kind
    #[arg(short = 'n', long, default_value = "5", value_parser = options::repeats, value_name = "N")]
    repeat: u32,
    /// Write the results as JSON: an array with one object per row
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM ARGS")]
    program: Vec<OsString>,
}

/// One row of the table. Speeds are rounds or runs per second.
#[derive(Serialize)]
struct Row {
    program: String,
    plain: f64,
    pool: f64,
    ratio: f64,
}

/// Bytes of a round of `local` in pages, and its rounds for each thread.
const SIZES: [(u32, u32); 4] = [(1, 40_000), (4, 20_000), (16, 5_000), (64, 1_500)];

/// Measures and reports.
pub fn run(arguments: Arguments) -> Result<u8> {
    let json = arguments.json.map(Output::open).transpose()?;
    let rows = match &arguments.program[..] {
        [] => local(arguments.repeat)?,
        words => vec![program(words, arguments.repeat)?],
    };
    let mut table = Table::new(["program", "plain", "pool", "ratio"]);
    for row in &rows {
        table.row([&row.program, &speed(row.plain), &speed(row.pool), &format!("{:.2}", row.ratio)]);
    }
    terminal::print_plain(format_args!(
        "{table}\nplain, pool: rounds or runs per second. ratio: above 1, the pool is that many times faster.\n"
    ))?;
    if let Some(file) = json {
        file.write(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
    }
    Ok(0)
}

fn speed(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { count(value as i64) }
}

fn local(repeat: u32) -> Result<Vec<Row>> {
    let program = artifacts::program("local")?;
    let mut rows = Vec::new();
    for (pages, rounds) in SIZES {
        for threads in [1, 2] {
            let words = format!("--threads {threads} --pages {pages} --iterations {rounds} --json");
            let words: Vec<OsString> = words.split(' ').map(Into::into).collect();
            let name = format!("local, {} KiB, {threads} threads", pages * 4);
            rows.push(compare(name, repeat, |pool| {
                let output = command(pool, program.as_os_str().into(), &words)?.output()?;
                ensure!(output.status.success(), "local: {}", output.status);
                let report: Value = serde_json::from_slice(&output.stdout)?;
                report["rounds_per_s"].as_f64().context("local says its rounds")
            })?);
        }
    }
    Ok(rows)
}

fn program(words: &[OsString], repeat: u32) -> Result<Row> {
    let name = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    compare(name, repeat, |pool| {
        let mut command = command(pool, words[0].clone(), &words[1..])?;
        let start = Instant::now();
        let status = command.stdout(Stdio::null()).status()?;
        ensure!(status.success(), "{}: {status}", words[0].to_string_lossy());
        Ok(1.0 / start.elapsed().as_secs_f64())
    })
}

/// Runs plainly and with the pool in turn.
fn compare(program: String, repeat: u32, speed: impl Fn(bool) -> Result<f64>) -> Result<Row> {
    let pairs = (0..repeat).map(|_| Ok((speed(false)?, speed(true)?)));
    let pairs = pairs.collect::<Result<Vec<_>>>()?;
    let middle = |value: fn(&(f64, f64)) -> f64| median(pairs.iter().map(value).collect());
    Ok(Row {
        program,
        plain: middle(|pair| pair.0),
        pool: middle(|pair| pair.1),
        ratio: middle(|pair| pair.1 / pair.0),
    })
}

fn command(pool: bool, program: OsString, words: &[OsString]) -> Result<Command> {
    let mut command = match pool {
        true => {
            let mut command = Command::new(artifacts::runtime()?);
            command.arg("--").arg(program);
            command
        }
        false => Command::new(program),
    };
    command.args(words).stdin(Stdio::null());
    Ok(command)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_of_neighbours() {
        let runs = std::cell::Cell::new(0);
        let row = compare("p".to_owned(), 3, |pool| {
            runs.set(runs.get() + 1);
            let slow = f64::from((runs.get() + 1) / 2);
            Ok(if pool { 8.0 / slow } else { 2.0 / slow })
        });
        assert_eq!(row.unwrap().ratio, 4.0);
    }
}
