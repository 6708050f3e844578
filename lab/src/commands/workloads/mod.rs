//! `radixvm bench workloads`: the workloads of the PATHREADS paper's table 1, for its figures 6 to 8.

mod inputs;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::sys::wait::wait;
use serde::Serialize;

use super::native::powers_of_two;
use super::output::Output;
use super::ways::{Way, median};
use inputs::Content;
use launch::progress::Step;
use launch::table::{Table, count};
use launch::{artifacts, options, terminal};

/// Options of `radixvm bench workloads`.
#[derive(Args)]
#[command(after_help = "\
Runs the ten pthread programs of the paper's table 1 from start to end, with its sizes of data (linear_regression: a fifth). Runs are interleaved, and
a ratio is the median of the ratios of neighbouring runs. Input files, of up to 1.4 GB, are made in TMPDIR and removed.
The machine should be idle.")]
pub struct Arguments {
    /// Runs of each kind
    #[arg(short = 'n', long, default_value = "3", value_parser = options::repeats, value_name = "N")]
    repeat: u32,
    /// Numbers of threads [default: 1, 2, 4, ... up to the processors]
    #[arg(long, value_delimiter = ',', value_parser = options::cpus, value_name = "N,...")]
    threads: Vec<u16>,
    /// Some of the workloads
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// A fiftieth of the data or less
    #[arg(long)]
    small: bool,
    /// Write the results as JSON: an array with one object per row
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The data of a workload.
#[derive(Clone, Copy)]
enum Data {
    /// A file: its content, and its bytes.
    File(Content, u64),
    /// The argument of `--size`.
    Size(u64),
}

/// A workload of table 1.
struct Workload {
    name: &'static str,
    data: Data,
    small: Data,
    /// The ratio of the run times in the paper (figure 6(a), section 5.2).
    paper: &'static str,
}

const fn of_file(name: &'static str, content: Content, bytes: u64, paper: &'static str) -> Workload {
    let [data, small] = [Data::File(content, bytes), Data::File(content, bytes / 50)];
    Workload { name, data, small, paper }
}

const fn of_size(name: &'static str, size: u64, small: u64, paper: &'static str) -> Workload {
    Workload { name, data: Data::Size(size), small: Data::Size(small), paper }
}

/// The data sets are those of the table. For "Large" they are PARSEC's. `linear_regression` has a fifth: its
/// threads share cache lines, so it becomes slower with more cores.
const WORKLOADS: [Workload; 10] = [
    of_file("string_match", Content::Words, 500_000_000, "about 1"),
    of_file("histogram", Content::Bytes, 1_400_000_000, "2.17 on 32"),
    of_file("linear_regression", Content::Bytes, 100_000_000, "8.15 on 16"),
    of_size("matrix_multiply", 2000, 400, "about 1"),
    of_size("kmeans", 100_000, 5_000, "below 1"),
    of_size("pca", 4000, 500, "below 1"),
    of_size("swaptions", 20_000, 400, "below 1"),
    of_size("fluidanimate", 300_000, 10_000, "below 1"),
    of_size("blackscholes", 65_536, 1_000, "below 1"),
    of_file("dedup", Content::Repeats, 184_000_000, "3.19 on 32"),
];

/// The ways that are compared with the plain one.
const WAYS: [Way; 3] = [Way::Pool, Way::Isolate, Way::IsolateMalloc];

/// The cost of a run.
#[derive(Clone, Copy)]
struct Taken {
    seconds: f64,
    /// Time on a CPU, of all threads.
    cpu_seconds: f64,
    context_switches: f64,
}

/// One row of the tables.
#[derive(Serialize)]
struct Row {
    workload: &'static str,
    threads: u16,
    plain_s: f64,
    plain_cpu_s: f64,
    plain_context_switches: f64,
    ways: Vec<Compared>,
}

/// A way to run a workload beside its plain runs: the plain run's values as multiples of this way's.
#[derive(Serialize)]
struct Compared {
    way: &'static str,
    time: f64,
    cpu_time: f64,
    context_switches: f64,
}

/// Measures and reports.
pub fn run(arguments: Arguments) -> Result<u8> {
    let json = arguments.json.clone().map(Output::open).transpose()?;
    let counts = match &arguments.threads[..] {
        [] => powers_of_two(std::thread::available_parallelism()?.get().min(64) as u16),
        counts => counts.to_vec(),
    };
    set_child_subreaper(true)?;
    let mut rows = Vec::new();
    for workload in chosen(&arguments.only)? {
        let data = if arguments.small { workload.small } else { workload.data };
        let input = Input::of(workload.name, data)?;
        for &threads in &counts {
            let _step = Step::new(&format!("{}, {threads} threads", workload.name));
            let take = |way| once(way, &input, threads);
            rows.push(compare(workload.name, threads, arguments.repeat, take)?);
        }
    }
    terminal::print_plain(format_args!(
        "{}\nplain: seconds. The others: plain runs take this many times as long. paper: the same of PATHREADS, on cores.\n\n\
         {}\nplain: seconds on a CPU, and context switches. The others: plain runs take this many times as much.\n",
        times(&rows),
        costs(&rows)
    ))?;
    if let Some(file) = json {
        file.write(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
    }
    Ok(0)
}

fn chosen(names: &[String]) -> Result<Vec<&'static Workload>> {
    if let Some(unknown) = names.iter().find(|name| WORKLOADS.iter().all(|workload| workload.name != **name))
    {
        bail!("there is no workload {unknown}, but {}", WORKLOADS.map(|workload| workload.name).join(", "));
    }
    let is_chosen = |workload: &&Workload| names.is_empty() || names.iter().any(|name| name == workload.name);
    Ok(WORKLOADS.iter().filter(is_chosen).collect())
}

/// A program with its arguments, and the file that it reads.
struct Input {
    program: PathBuf,
    words: Vec<String>,
    /// Removes the file at the end.
    _folder: Option<tempfile::TempDir>,
}

impl Input {
    fn of(name: &str, data: Data) -> Result<Self> {
        let program = artifacts::workload(name)?;
        match data {
            Data::Size(size) => {
                Ok(Input { program, words: vec!["--size".to_owned(), size.to_string()], _folder: None })
            }
            Data::File(content, bytes) => {
                let folder = tempfile::tempdir()?;
                let file = folder.path().join("input");
                inputs::write(&file, content, bytes)?;
                Ok(Input { program, words: vec![text(&file)?], _folder: Some(folder) })
            }
        }
    }
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("{}: not UTF-8", path.display()))
}

/// Runs a workload once.
fn once(way: Way, input: &Input, threads: u16) -> Result<(Taken, Vec<u8>)> {
    let mut command = way.command(&input.program)?;
    command.args(["--threads", &threads.to_string()]).args(&input.words);
    let (before, start) = (of_children()?, Instant::now());
    let output = command.output()?;
    let seconds = start.elapsed().as_secs_f64();
    // Threads in address spaces of their own may end a moment later, and are this process's children then.
    while wait().is_ok() {}
    let after = of_children()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {} {complaint}", input.program.display(), output.status);
    let taken = Taken { seconds, cpu_seconds: after.0 - before.0, context_switches: after.1 - before.1 };
    Ok((taken, output.stdout))
}

/// Returns the seconds on a CPU and the context switches of all children that have ended.
fn of_children() -> Result<(f64, f64)> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
    Ok((microseconds as f64 / 1e6, switches as f64))
}

/// Runs plainly and in each way in turn, and compares what they print.
fn compare(
    workload: &'static str,
    threads: u16,
    repeat: u32,
    run: impl Fn(Way) -> Result<(Taken, Vec<u8>)>,
) -> Result<Row> {
    let mut turns = Vec::new();
    for _ in 0..repeat {
        let (plain, expected) = run(Way::Plain)?;
        let mut turn = vec![plain];
        for way in WAYS {
            let (taken, printed) = run(way)?;
            ensure!(printed == expected, "{workload}: other output with {}", way.name());
            turn.push(taken);
        }
        turns.push(turn);
    }
    let middle = |value: &dyn Fn(&[Taken]) -> f64| median(turns.iter().map(|turn| value(turn)).collect());
    let compared = (1..).zip(WAYS).map(|(at, way)| Compared {
        way: way.name(),
        time: middle(&|turn| turn[0].seconds / turn[at].seconds),
        cpu_time: middle(&|turn| turn[0].cpu_seconds / turn[at].cpu_seconds.max(1e-6)),
        context_switches: middle(&|turn| turn[0].context_switches / turn[at].context_switches.max(1.0)),
    });
    Ok(Row {
        workload,
        threads,
        plain_s: middle(&|turn| turn[0].seconds),
        plain_cpu_s: middle(&|turn| turn[0].cpu_seconds),
        plain_context_switches: middle(&|turn| turn[0].context_switches),
        ways: compared.collect(),
    })
}

fn times(rows: &[Row]) -> Table {
    let heading = ["workload", "threads", "plain"].into_iter().chain(WAYS.map(Way::name)).chain(["paper"]);
    let mut table = Table::new(heading);
    for row in rows {
        let paper = WORKLOADS.iter().find(|workload| workload.name == row.workload);
        let mut cells = vec![row.workload.to_owned(), row.threads.to_string(), format!("{:.3}", row.plain_s)];
        cells.extend(row.ways.iter().map(|way| format!("{:.2}", way.time)));
        cells.extend(paper.map(|workload| workload.paper.to_owned()));
        table.row(cells);
    }
    table
}

fn costs(rows: &[Row]) -> Table {
    let [pool, isolate, malloc] = WAYS.map(Way::name);
    let mut table = Table::new([
        "workload", "threads", "CPU time", pool, isolate, malloc, "switches", pool, isolate, malloc,
    ]);
    for row in rows {
        let mut cells =
            vec![row.workload.to_owned(), row.threads.to_string(), format!("{:.3}", row.plain_cpu_s)];
        cells.extend(row.ways.iter().map(|way| format!("{:.2}", way.cpu_time)));
        cells.push(count(row.plain_context_switches as i64));
        cells.extend(row.ways.iter().map(|way| format!("{:.2}", way.context_switches)));
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(seconds: f64) -> Taken {
        Taken { seconds, cpu_seconds: 2.0 * seconds, context_switches: 100.0 * seconds }
    }

    #[test]
    fn ratios_are_plain_by_the_other() {
        let row = compare("pca", 4, 3, |way| {
            let seconds = match way {
                Way::Plain => 6.0,
                Way::Pool => 3.0,
                Way::Isolate => 12.0,
                Way::IsolateMalloc => 2.0,
            };
            Ok((taken(seconds), b"the same".to_vec()))
        });
        let row = row.unwrap();
        let times = row.ways.iter().map(|way| way.time).collect::<Vec<_>>();
        assert_eq!((times, row.plain_s), (vec![2.0, 0.5, 3.0], 6.0));
        assert_eq!((row.ways[0].cpu_time, row.ways[2].context_switches), (2.0, 3.0));
        assert!(self::times(&[row]).to_string().contains("2.00     0.50            3.00  below 1"));
    }

    #[test]
    fn another_output_is_an_error() {
        let run = |way: Way| Ok((taken(1.0), way.name().into()));
        let error = compare("pca", 4, 1, run).err().unwrap();
        assert_eq!(error.to_string(), "pca: other output with pool");
    }

    #[test]
    fn the_workloads_are_those_that_can_be_built() {
        assert_eq!(WORKLOADS.map(|workload| workload.name), artifacts::WORKLOADS);
        let error = chosen(&["histogramm".to_owned()]).err().unwrap().to_string();
        assert!(error.starts_with("there is no workload histogramm, but string_match, "), "{error}");
        assert_eq!(chosen(&["pca".to_owned()]).unwrap().len(), 1);
    }
}
