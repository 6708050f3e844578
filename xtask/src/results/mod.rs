//! Generates docs/results: runs the measurements and writes a page and a JSON file for each part.

mod elsewhere;
mod machine;
mod page;
mod readme;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

pub use readme::check;

use crate::root;
use crate::shell::{cargo, target_dir};
use machine::Machine;

/// A page of docs/results and the commands whose output it shows.
struct Part {
    /// The name of the page, for `--only`.
    name: &'static str,
    title: &'static str,
    /// Says what the numbers are.
    about: &'static str,
    runs: &'static [Run],
}

/// A measurement, by its words.
enum Run {
    /// `./radixvm WORDS`, which takes `--json FILE`.
    Radixvm(&'static str),
    /// `./radixvm WORDS`, which takes `--svg FILE`: a picture named after the part, for its page.
    Pictured(&'static str),
    /// `./radixvm WORDS`, which takes `--json FILE` and needs no guest.
    Host(&'static str),
    /// `cargo bench WORDS`.
    Native(&'static str),
}

/// The output of a measurement.
struct Outcome {
    command: String,
    text: String,
    /// The name of a picture beside the page, if there is one.
    picture: Option<String>,
    /// One object for each row. Empty where the program writes no JSON.
    rows: Vec<Value>,
}

/// Says what the tables of `radixvm contend` show.
const COUNTS: &str = "Counts per round do not depend on the speed of the machine. [The meter](../guide/meter.md) explains the \
                      columns. *predicted* is rounds per second by its cost model.";

const PARTS: [Part; 14] = [
    Part {
        name: "local",
        title: "Threads that map, touch and unmap pages of their own",
        about: COUNTS,
        runs: &[Run::Radixvm("contend --cpus 1,2,8 -- local")],
    },
    Part {
        name: "pipeline",
        title: "Threads that hand pages to their neighbours",
        about: COUNTS,
        runs: &[Run::Radixvm("contend --cpus 1,2,8 -- pipeline")],
    },
    Part {
        name: "global",
        title: "Threads that all touch the same pages",
        about: COUNTS,
        runs: &[Run::Radixvm("contend --cpus 1,2,8 -- global")],
    },
    Part {
        name: "forkexit",
        title: "Fork, exec and exit",
        about: COUNTS,
        runs: &[
            Run::Radixvm("contend --cpus 1,2,8 -- forkexit"),
            Run::Radixvm("contend --cpus 1,2,8 -- forkexit --exec"),
        ],
    },
    Part {
        name: "designs",
        title: "Other designs of an address space",
        about: "Counts per round on every design, which [its page](../design/designs.md) compares. In `faultstorm` one thread \
                maps for 10 % of its time while the others fault.",
        runs: &[
            Run::Radixvm(
                "contend --cpus 1,2,8 --systems rwlock,faultlock,hybrid,bonsai,pervma,adaptive -- local",
            ),
            Run::Radixvm(
                "contend --cpus 2,8 --systems rwlock,faultlock,hybrid,bonsai,pervma,adaptive -- pipeline",
            ),
            Run::Radixvm(
                "contend --cpus 2,4,8 --systems rwlock,faultlock,hybrid,bonsai,pervma,adaptive -- faultstorm --mmap-fraction 10",
            ),
        ],
    },
    Part {
        name: "counters",
        title: "Counters of a page that all cores share",
        about: "Counts per round, in which a thread takes one reference of the page and gives it back. \
                [The baselines](../design/baselines.md) explains the counters.",
        runs: &[Run::Radixvm(
            "contend --cpus 2,4,8 --systems adaptive --refs refcache,sloppy,snzi,atomic,locked,none -- pageshare --keep",
        )],
    },
    Part {
        name: "commute",
        title: "Calls that commute",
        about: "Percent of tests in which two calls that commute share no line of the kernel that one of them writes, and \
                send no interrupt. [The guide](../guide/commute.md) says what a test is. In the picture a pair of calls is \
                the redder the more of its tests conflict.",
        runs: &[Run::Pictured("commute")],
    },
    Part {
        name: "calls",
        title: "Instructions of single calls",
        about: "Instructions of the median round on 1 CPU, user and kernel together. \
                [The guide](../guide/bench.md#calls) says what each row does.",
        runs: &[Run::Radixvm("bench calls")],
    },
    Part {
        name: "memory",
        title: "Memory of address spaces",
        about: "Bytes that the address spaces of real programs need beside their pages. \
                [The guide](../guide/bench.md#memory) says how they are rebuilt.",
        runs: &[Run::Radixvm("bench memory")],
    },
    Part {
        name: "pool",
        title: "Small mappings on stock Linux, plainly and from the pool",
        about: "Rounds of `local` on this machine, which depend on it and on what else it does. The ratio is \
                the median of neighbouring runs. \
                With `isolate` each thread has an address space of its own. \
                The programs after it gain nothing and show the cost of a start: the last two do little else. \
                [The guide](../guide/native.md) says what the pool is.",
        runs: &[
            Run::Host("bench native --isolate"),
            Run::Host(
                "bench native --isolate -- xz -T2 -3 -c target/x86_64-unknown-none/release/radixvm-kernel",
            ),
            Run::Host("bench native --isolate -- sort --parallel=2 Cargo.lock"),
            Run::Host("bench native --isolate -- true"),
        ],
    },
    Part {
        name: "workloads",
        title: "The workloads of the PATHREADS paper on stock Linux",
        about: "Run times of the ten programs of the paper's table 1, from start to end, which depend on the machine and on what else it \
                does. They are the paper's figures 6(a), 7(b) and 8 with what can be measured without the processor's \
                counters. Its machine had 32 cores and Linux 3.2, or 4.10 for figure 8. \
                [The design](../design/pathreads.md#the-papers-figures) explains what does not come out.",
        runs: &[Run::Host("bench workloads")],
    },
    Part {
        name: "malloc",
        title: "IAmalloc beside other allocators",
        about: "Operations per second of one allocator and those of glibc in the same turn, and the memory of the process. They \
                depend on the machine and on what else it does. \
                [The design](../design/pathreads.md#iamalloc) says what differs. The last line allocates 58 MiB four times, in larger and \
                larger blocks, and frees nine of ten in between.",
        runs: &[Run::Native("-p radixvm-iamalloc")],
    },
    Part {
        name: "native",
        title: "The crates on the host",
        about: "Times of the crates' own benchmarks, by threads of the host. They depend on the machine and on what else it does.",
        runs: &[
            Run::Native("-p radixvm-vm-testkit"),
            Run::Native("-p radixvm-radixmap"),
            Run::Native("-p radixvm-bonsai"),
        ],
    },
    Part {
        name: "baselines",
        title: "Counters and look-ups of the papers' baselines on the host",
        about: "Times of the benchmarks of `crates/baselines`, by threads of the host. They depend on the machine and on what \
                else it does.",
        runs: &[Run::Native("-p radixvm-baselines")],
    },
];

/// Measures all parts, or those named after `--only`, and writes their pages.
pub fn run(words: &[&str]) -> Result<bool> {
    let chosen: Vec<&Part> = match words {
        [] => PARTS.iter().collect(),
        ["--only", names] => names.split(',').map(part).collect::<Result<_>>()?,
        ["--pack", folder] => {
            return of_commit().and_then(|()| elsewhere::pack(folder.as_ref())).map(|()| true);
        }
        ["--unpack", folder] => return elsewhere::unpack(folder.as_ref()).map(|()| true),
        _ => bail!("results takes no option but --only NAME,..., --pack FOLDER or --unpack FOLDER"),
    };
    of_commit()?;
    for part in chosen {
        let outcomes = part.runs.iter().map(|run| measure(part, run)).collect::<Result<Vec<_>>>()?;
        publish(part, &part.machine()?, &outcomes)?;
    }
    Ok(true)
}

/// Fails if there are changes that are not committed.
fn of_commit() -> Result<()> {
    let changes = output(Command::new("git").args(["status", "--porcelain", "--", ".", ":!docs/results"]))?;
    ensure!(changes.is_empty(), "results are of a commit, and there are changes:\n{changes}");
    Ok(())
}

/// Writes the page of a part.
fn publish(part: &Part, machine: &Machine, outcomes: &[Outcome]) -> Result<()> {
    write(part, "md", &page::markdown(part, machine, outcomes))?;
    write(part, "json", &page::json(machine, outcomes))
}

impl Part {
    /// Returns whether all of it runs on the machine itself, and not in guests.
    fn is_of_host(&self) -> bool {
        self.runs.iter().all(|run| matches!(run, Run::Host(_) | Run::Native(_)))
    }

    /// Describes this machine.
    fn machine(&self) -> Result<Machine> {
        if self.is_of_host() { Machine::here() } else { Machine::of_guests() }
    }
}

fn part(name: &str) -> Result<&'static Part> {
    let names = || PARTS.map(|part| part.name).join(", ");
    PARTS
        .iter()
        .find(|part| part.name == name)
        .with_context(|| format!("results has no {name}, but {}", names()))
}

fn folder() -> PathBuf {
    root().join("docs/results")
}

fn write(part: &Part, ending: &str, text: &str) -> Result<()> {
    let file = folder().join(part.name).with_extension(ending);
    fs::write(&file, text).with_context(|| file.display().to_string())
}

fn measure(part: &Part, run: &Run) -> Result<Outcome> {
    match run {
        Run::Radixvm(words) | Run::Host(words) => radixvm(words),
        Run::Pictured(words) => pictured(part, words),
        Run::Native(words) => native(words),
    }
}

fn radixvm(words: &str) -> Result<Outcome> {
    let file = target_dir("results.json");
    let mut command = Command::new("./radixvm");
    command.args(with_json(words, &file.to_string_lossy()).split(' '));
    println!("./radixvm {words}");
    let text = output(&mut command)?;
    counted(words, text, &fs::read_to_string(&file)?)
}

/// Returns the words of a command that writes its rows into `file`. Options end at `--`.
fn with_json(words: &str, file: &str) -> String {
    match words.split_once(" -- ") {
        Some((options, program)) => format!("{options} --json {file} -- {program}"),
        None => format!("{words} --json {file}"),
    }
}

/// Returns the outcome of `./radixvm WORDS` with the rows in `json`.
fn counted(words: &str, text: String, json: &str) -> Result<Outcome> {
    let rows: Vec<Value> = serde_json::from_str(json)?;
    let rows = rows.into_iter().map(page::compact).collect();
    Ok(Outcome { command: format!("./radixvm {words}"), text, picture: None, rows })
}

fn pictured(part: &Part, words: &str) -> Result<Outcome> {
    let picture = format!("{}.svg", part.name);
    let mut command = Command::new("./radixvm");
    command.args(words.split(' ')).arg("--svg").arg(folder().join(&picture));
    println!("./radixvm {words}");
    let text = output(&mut command)?;
    Ok(Outcome { command: format!("./radixvm {words}"), text, picture: Some(picture), rows: Vec::new() })
}

fn native(words: &str) -> Result<Outcome> {
    println!("cargo bench {words}");
    Ok(timed(words, output(cargo("bench --quiet").args(words.split(' ')))?))
}

/// Returns the outcome of `cargo bench WORDS`.
fn timed(words: &str, text: String) -> Outcome {
    Outcome { command: format!("cargo bench {words}"), text, picture: None, rows: Vec::new() }
}

/// Runs a command in the repository and returns what it prints. Its messages go to the terminal.
fn output(command: &mut Command) -> Result<String> {
    let output = command.current_dir(root()).stderr(std::process::Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_asked_for_before_the_program() {
        assert_eq!(with_json("contend -- local", "f"), "contend --json f -- local");
        assert_eq!(with_json("bench calls", "f"), "bench calls --json f");
    }

    #[test]
    fn a_part_is_found_by_its_name() {
        assert_eq!(part("calls").unwrap().title, "Instructions of single calls");
        let error = part("nothing").err().unwrap().to_string();
        assert!(
            error.contains("counters, commute, calls, memory, pool, workloads, malloc, native, baselines"),
            "{error}"
        );
    }
}
