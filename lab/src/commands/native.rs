//! `radixvm bench native`: programs on this machine, plainly and with `radixvm native`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::output::Output;
use super::ways::{Way, median};
use launch::table::{Table, count};
use launch::{artifacts, options, terminal};

/// Options of `radixvm bench native`.
#[derive(Args)]
#[command(after_help = "\
Without a program: costs of threads, and rounds of local, whose threads map memory, write to each page and unmap it. With
one: how long it takes. Runs are interleaved, and a ratio is the median of the ratios of neighbouring runs. The machine should be idle.")]
pub struct Arguments {
    /// Runs of each kind
    #[arg(short = 'n', long, default_value = "5", value_parser = options::repeats, value_name = "N")]
    repeat: u32,
    /// Numbers of threads of local [default: 1, 2, 4, ... up to the processors]
    #[arg(long, value_delimiter = ',', value_parser = options::cpus, value_name = "N,...", conflicts_with = "program")]
    threads: Vec<u16>,
    /// Also with threads in address spaces of their own
    #[arg(long)]
    isolate: bool,
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
    ways: Vec<Compared>,
}

/// A way to run a program beside its plain runs.
#[derive(Serialize)]
struct Compared {
    way: &'static str,
    speed: f64,
    ratio: f64,
}

/// A size of `local`: pages of a round, and rounds. Plain threads share them, and others each have as many.
type Size = (u32, u32);

const SIZES: [Size; 5] = [(1, 40_000), (4, 20_000), (16, 5_000), (64, 1_500), (256, 400)];
/// The most threads of `local`.
const MOST_THREADS: usize = 256;
/// A thread has at least this many rounds.
const LEAST_ROUNDS: u32 = 100;

/// Measures and reports.
pub fn run(arguments: Arguments) -> Result<u8> {
    let json = arguments.json.clone().map(Output::open).transpose()?;
    let ways = if arguments.isolate { &[Way::Pool, Way::Isolate][..] } else { &[Way::Pool] };
    let rows = match &arguments.program[..] {
        [] => local(&arguments, ways)?,
        words => vec![program(words, arguments.repeat, ways)?],
    };
    terminal::print_plain(format_args!(
        "{}\n\
         Speeds are rounds or runs per second. ratio: the speed before it as a multiple of plain.\n",
        table(&rows, ways)
    ))?;
    if let Some(file) = json {
        file.write(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
    }
    Ok(0)
}

fn table(rows: &[Row], ways: &[Way]) -> Table {
    let names = ways.iter().flat_map(|way| [way.name(), "ratio"]);
    let mut table = Table::new(["program", "plain"].into_iter().chain(names));
    for row in rows {
        let ways = row.ways.iter().flat_map(|way| [speed(way.speed), format!("{:.2}", way.ratio)]);
        table.row([row.program.clone(), speed(row.plain)].into_iter().chain(ways));
    }
    table
}

fn speed(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { count(value as i64) }
}

fn local(arguments: &Arguments, ways: &[Way]) -> Result<Vec<Row>> {
    let program = artifacts::program("local")?;
    let counts = match &arguments.threads[..] {
        [] => powers_of_two(available_parallelism()?.get().min(MOST_THREADS) as u16),
        counts => counts.to_vec(),
    };
    let mut rows = of_threads(arguments.repeat, ways)?;
    for size in SIZES {
        for &threads in &counts {
            let name = format!("local, {} KiB, {threads} threads", size.0 * 4);
            rows.push(compare(name, arguments.repeat, ways, |way| {
                let words = words_of_local(size, threads, way);
                let output = way.command(&program)?.args(&words).output()?;
                ensure!(output.status.success(), "local: {}", output.status);
                let report: Value = serde_json::from_slice(&output.stdout)?;
                report["rounds_per_s"].as_f64().context("local says its rounds")
            })?);
        }
    }
    Ok(rows)
}

/// Costs of threads themselves: the words of `user/workloads/threads.c`, and what it does.
const OF_THREADS: [([&str; 3], &str); 3] = [
    (["create", "--size", "2000"], "make and join a thread"),
    (["at-once", "--size", "2000"], "the same with 50 threads at a time"),
    (["turns", "--size", "20000"], "hand a turn on, 2 threads"),
];

fn of_threads(repeat: u32, ways: &[Way]) -> Result<Vec<Row>> {
    let program = artifacts::workload(artifacts::OF_THREADS)?;
    let rows = OF_THREADS.map(|(words, name)| {
        compare(name.to_owned(), repeat, ways, |way| {
            let output = way.command(&program)?.args(words).output()?;
            ensure!(output.status.success(), "threads: {}", output.status);
            String::from_utf8(output.stdout)?.trim().parse().context("threads says its speed")
        })
    });
    rows.into_iter().collect()
}

/// Returns 1, 2, 4 and so on up to `most`, and `most`.
pub fn powers_of_two(most: u16) -> Vec<u16> {
    let below = (0..16).map(|power| 1 << power).take_while(|&count| count < most);
    below.chain([most]).collect()
}

/// Returns the arguments of `local`. On Linux more threads are no faster, so each has fewer rounds.
fn words_of_local((pages, rounds): Size, threads: u16, way: Way) -> Vec<OsString> {
    let rounds = if way == Way::Plain { (rounds / u32::from(threads)).max(LEAST_ROUNDS) } else { rounds };
    let words = format!("--threads {threads} --pages {pages} --iterations {rounds} --json");
    words.split(' ').map(Into::into).collect()
}

fn program(words: &[OsString], repeat: u32, ways: &[Way]) -> Result<Row> {
    let name = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    compare(name, repeat, ways, |way| {
        let mut command = way.command(&words[0])?;
        let start = Instant::now();
        let status = command.args(&words[1..]).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "{}: {status}", words[0].to_string_lossy());
        Ok(1.0 / start.elapsed().as_secs_f64())
    })
}

/// Runs plainly and in each way in turn.
fn compare(program: String, repeat: u32, ways: &[Way], speed: impl Fn(Way) -> Result<f64>) -> Result<Row> {
    let all = [&[Way::Plain], ways].concat();
    let runs = (0..repeat).map(|_| all.iter().map(|&way| speed(way)).collect());
    let runs = runs.collect::<Result<Vec<Vec<f64>>>>()?;
    let middle = |value: &dyn Fn(&[f64]) -> f64| median(runs.iter().map(|run| value(run)).collect());
    let compared = (1..).zip(ways).map(|(at, way)| Compared {
        way: way.name(),
        speed: middle(&|run| run[at]),
        ratio: middle(&|run| run[at] / run[0]),
    });
    Ok(Row { program, plain: middle(&|run| run[0]), ways: compared.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_of_neighbours() {
        let runs = std::cell::Cell::new(0);
        let row = compare("p".to_owned(), 3, &[Way::Pool, Way::Isolate], |way| {
            runs.set(runs.get() + 1);
            let slow = f64::from((runs.get() + 2) / 3);
            Ok(match way {
                Way::Plain => 2.0 / slow,
                Way::Pool => 8.0 / slow,
                Way::Isolate | Way::IsolateMalloc => 1.0 / slow,
            })
        });
        assert_eq!(row.unwrap().ways.iter().map(|way| way.ratio).collect::<Vec<_>>(), [4.0, 0.5]);
    }

    #[test]
    fn numbers_of_threads_end_with_the_processors() {
        assert_eq!(powers_of_two(1), [1]);
        assert_eq!(powers_of_two(2), [1, 2]);
        assert_eq!(powers_of_two(12), [1, 2, 4, 8, 12]);
    }

    #[test]
    fn linux_has_fewer_rounds_with_more_threads() {
        let rounds = |threads, way| words_of_local((1, 800), threads, way)[5].clone();
        assert_eq!(
            [rounds(4, Way::Plain), rounds(4, Way::Pool), rounds(16, Way::Plain)],
            ["200", "800", "100"]
        );
    }
}
