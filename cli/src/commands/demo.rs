//! `radixvm demo`: runs the same two programs in the same emulator on RadixVM and on stock Linux.

use std::path::Path;

use abi::config::Huge;
use anyhow::{Context, Result, ensure};
use clap::Args;

use launch::guest::linux;
use launch::guest::qemu::Accel;
use launch::guest::system::{Size, System};
use launch::measure::{Report, Task, accel, measure};
use launch::meter::benchmarks;
use launch::meter::model::MOST;
use launch::meter::row::Row;
use launch::meter::statistics::median;
use launch::progress::Step;
use launch::table::{Table, count};
use launch::{artifacts, options, place, terminal};

const SYSTEMS: [System; 2] = [System::DEFAULT, System::Linux];
const MEMORY: u64 = 1 << 30;
/// A text that every Debian system has. Every clone has another one.
const TEXT: &str = "/usr/share/common-licenses/GPL-3";

/// Options of `radixvm demo`.
#[derive(Args)]
pub struct Arguments {
    /// Virtual CPUs, and threads of the programs
    #[arg(short, long, default_value = "2", value_parser = options::cpus, value_name = "N")]
    cpus: u16,
    /// Runs of each program on each system, of which the median counts
    #[arg(long, default_value = "3", value_parser = options::repeats, value_name = "N")]
    repeats: u32,
    #[command(flatten)]
    guests: options::Guests,
}

/// One program on one system.
struct Entry {
    system: System,
    report: Report,
    /// The meter's counts per round, if it ran.
    counts: Option<Row>,
}

/// Runs the demo. Returns status 1 if the two systems computed different results.
pub fn run(arguments: &Arguments) -> Result<u8> {
    arguments.guests.apply();
    prepare()?;
    let accel = accel()?;
    let (index, local) = (wordindex(arguments.cpus), local(arguments.cpus));
    let mut results = compare(&[&index, &local], arguments, accel)?;
    count_rounds(arguments.cpus, &mut results[1])?;
    print(&results, arguments.cpus, accel)?;
    let agree = digests_agree(&results[0]);
    terminal::print_plain(format_args!("\n{}\n", verdict(&results[0], agree)))?;
    Ok(u8::from(!agree))
}

/// Builds and fetches everything, so that the measurements are not interrupted.
fn prepare() -> Result<()> {
    artifacts::kernel()?;
    artifacts::programs()?;
    linux::kernel().context("cannot get a stock Linux kernel to compare with")?;
    Ok(())
}

fn wordindex(cpus: u16) -> Task {
    let text = if Path::new(TEXT).exists() { TEXT.into() } else { place::root().join("LICENSE-APACHE") };
    let text = text.display().to_string();
    let options = ["--threads", &cpus.to_string(), "--repeat", "400", "--block", "64K", &text];
    Task { program: "wordindex", arguments: options.map(str::to_owned).to_vec(), files: vec![text.clone()] }
}

fn local(cpus: u16) -> Task {
    let options = ["--threads", &cpus.to_string(), "--iterations", "10000"];
    Task { program: "local", arguments: options.map(str::to_owned).to_vec(), files: Vec::new() }
}

/// Runs every task on both systems, interleaved, and returns the median run of each.
fn compare(tasks: &[&Task], arguments: &Arguments, accel: Accel) -> Result<Vec<Vec<Entry>>> {
    let step = Step::new("running both programs on both systems");
    let size = Size { cpus: arguments.cpus, memory: MEMORY, accel };
    let mut runs = vec![vec![Vec::new(); SYSTEMS.len()]; tasks.len()];
    for repeat in 1..=arguments.repeats {
        for (task, runs) in tasks.iter().zip(&mut runs) {
            for (system, runs) in SYSTEMS.iter().zip(runs) {
                step.tell(&format!("run {repeat} of {}: {} on {system}", arguments.repeats, task.program));
                runs.push(measure(*system, Huge::DEFAULT, task, size)?);
            }
        }
    }
    runs.into_iter().map(medians).collect()
}

fn medians(runs: Vec<Vec<Report>>) -> Result<Vec<Entry>> {
    let entry = |(system, runs): (&System, Vec<Report>)| {
        let digests_differ = runs.windows(2).any(|pair| pair[0].digest != pair[1].digest);
        ensure!(!digests_differ, "two runs on {system} computed different digests");
        let report = median(runs, |report| -report.seconds).context("no runs")?;
        Ok(Entry { system: *system, report, counts: None })
    };
    SYSTEMS.iter().zip(runs).map(entry).collect()
}

/// Counts the work of a round of `local` with the meter.
fn count_rounds(cpus: u16, entries: &mut [Entry]) -> Result<()> {
    if cpus > MOST {
        return Ok(());
    }
    let cells = benchmarks::experiment("local", &[], &[cpus], &SYSTEMS, MEMORY)?.run()?;
    for entry in entries {
        let cell = cells.iter().find(|cell| cell.system == entry.system);
        entry.counts = cell.map(|cell| cell.row.clone());
    }
    Ok(())
}

fn digests_agree(entries: &[Entry]) -> bool {
    let first = &entries[0].report.digest;
    first.is_some() && entries.iter().all(|entry| entry.report.digest == *first)
}

fn verdict(entries: &[Entry], agree: bool) -> String {
    let digest = |entry: &Entry| entry.report.digest.clone().unwrap_or_else(|| "none".to_owned());
    match agree {
        true => format!("Both systems computed the same index: digest {}.", digest(&entries[0])),
        false => format!("THE INDEXES DIFFER: {} and {}.", digest(&entries[0]), digest(&entries[1])),
    }
}

fn print(results: &[Vec<Entry>], cpus: u16, accel: Accel) -> Result<()> {
    let heading = ["", "seconds", "rounds/s", "faults", "shootdowns", "IPIs", "instructions", "transfers"];
    let mut table = Table::new(heading);
    for (name, entries) in ["wordindex", "local"].iter().zip(results) {
        entries.iter().for_each(|entry| table.row(row(name, entry)));
        table.row(ratios(entries));
    }
    terminal::print_plain(format_args!(
        "The same ELF files on both systems, {cpus} CPUs each, executed by {accel}:\n\n{table}\n{NOTES}"
    ))?;
    Ok(())
}

const NOTES: &str = "\
local: threads map a page, write to it, unmap it. wordindex: a word index of a text, by MapReduce.
shootdowns: unmaps that had to reach other cores (on Linux: as received); IPIs: interrupts between cores.
instructions, transfers: per round of local (the median round), by the contention meter: user and kernel; cache lines
that one CPU took from another.
ratio: above 1, RadixVM is that many times faster, or does with that many times fewer instructions.
";

fn row(name: &str, Entry { system, report, counts }: &Entry) -> [String; 8] {
    let known = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| count(value as i64));
    let speed = (report.rounds > 0).then(|| (report.rounds as f64 / report.seconds) as u64);
    let faults = report.alloc_faults() + report.fill_faults().unwrap_or(0);
    let shootdowns = report.counter("shootdowns").or(report.counter("tlb_shootdowns"));
    [
        format!("{name} on {system}"),
        format!("{:.3}", report.seconds),
        known(speed),
        count(faults as i64),
        known(shootdowns),
        known(report.ipis()),
        known(counts.as_ref().map(|row| row.instructions.median as u64)),
        known(counts.as_ref().map(|row| row.transfers.median as u64)),
    ]
}

/// Returns how many times better ours is, where that is known.
fn ratios(entries: &[Entry]) -> [String; 8] {
    let [ours, linux] = entries else { return Default::default() };
    let times = |factor: f64| format!("{factor:.1}x");
    let speed = times(linux.report.seconds / ours.report.seconds);
    let counts = ours.counts.as_ref().zip(linux.counts.as_ref());
    let instructions =
        counts.map(|(ours, linux)| times(linux.instructions.median / ours.instructions.median));
    let mut cells: [String; 8] = Default::default();
    cells[0] = "  ratio".to_owned();
    cells[1] = speed.clone();
    cells[2] = if ours.report.rounds > 0 { speed } else { String::new() };
    cells[6] = instructions.unwrap_or_default();
    cells
}
