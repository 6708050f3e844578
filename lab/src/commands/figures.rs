//! `radixvm bench figures`: the figures of the papers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::output::Output;
use crate::figures::boots;
use crate::figures::compact::Compact;
use crate::figures::compare::{Comparison, File};
use crate::figures::identity::{self, Identity};
use crate::figures::job::Job;
use crate::figures::measure::Effort;
use crate::figures::plan::{Extent, Known};
use crate::figures::results::Results;
use crate::figures::store::Store;
use crate::figures::{self, Figure, publish};
use launch::exit_status::FAILED;
use launch::guest::linux;
use launch::{artifacts, options, place, terminal};

/// Sizes, and those of a quick look.
const SIZES: [&[u16]; 2] = [&[1, 2, 4, 8, 16], &[1, 2]];

/// Options of `radixvm bench figures`.
#[derive(Args)]
#[command(after_help = "\
Draws the figures of the RadixVM paper (EuroSys 2013: fig4 to fig9, table2, tables), of the Bonsai paper (ASPLOS 2012: fig13 to \
fig18) and of the LODIC paper (ATC 2021: lodic7 to lodic15, lodic-table1 to lodic-table3, lodic-equation1) from counts in metered guests and from the cost model; docs/results/figures.md says how. DIR gets index.html, figures.json, counts.json \
(the compared counts in short, from which all is drawn), a picture of each plot, and a file for each guest that is done: a command that was stopped goes on where it was, unless kernel or programs \
have changed. A program runs in two to 32 guests, until its mean counts are known, or in as many as --boots allows.")]
pub struct Arguments {
    /// Only these figures
    #[arg(long, value_delimiter = ',', value_parser = figure, value_name = "FIGURE,...")]
    only: Vec<&'static Figure>,
    /// Numbers of virtual CPUs [default: 1,2,4,8,16]
    #[arg(long, value_delimiter = ',', value_parser = options::metered_cpus, value_name = "N,...")]
    cpus: Option<Vec<u16>>,
    /// Folder for page, pictures, JSON and runs
    #[arg(long, default_value = "figures", value_name = "DIR")]
    report: PathBuf,
    /// Write the JSON here, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// 1 and 2 CPUs unless --cpus is given, few rounds, one guest for each run
    #[arg(long)]
    quick: bool,
    /// Boot at most N guests for each run, also where its mean counts are not known yet
    #[arg(long, default_value_t = boots::MOST, value_parser = number_of_boots, value_name = "N")]
    boots: usize,
    /// Text that a job of Metis, Psearchy or Dedup works on, about so much [default: 440K to 1M; as much as
    /// --memory holds]
    #[arg(long, value_parser = options::amount, value_name = "SIZE")]
    size: Option<u64>,
    /// Keep the counts, pictures and page in docs/results, too, with --only those of these figures in place
    /// of the old ones; refused if the tree has changes
    #[arg(long)]
    publish: bool,
    /// Do not use runs that are done
    #[arg(long)]
    fresh: bool,
    /// Memory of every guest
    #[arg(short, long, default_value = "1G", value_parser = options::size, value_name = "SIZE")]
    memory: u64,
    /// Measure nothing: say which counts differ between two runs, by their counts.json or figures.json,
    /// with status 1 if any does
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"])]
    compare: Option<Vec<PathBuf>>,
    /// Measure nothing: draw a counts.json
    #[arg(long, value_name = "counts.json", conflicts_with_all = ["compare", "only", "cpus", "json", "quick", "boots", "fresh", "size"])]
    draw: Option<PathBuf>,
    #[command(flatten)]
    guests: options::Guests,
}

fn figure(id: &str) -> Result<&'static Figure, String> {
    let known = || figures::all().map(|figure| figure.id).collect::<Vec<_>>().join(", ");
    figures::all().find(|figure| figure.id == id).ok_or_else(|| format!("figures are {}", known()))
}

fn number_of_boots(word: &str) -> Result<usize, String> {
    let number = word.parse().ok().filter(|number| (1..=boots::MOST).contains(number));
    number.ok_or_else(|| format!("a number from 1 to {}", boots::MOST))
}

/// Measures what is not done yet, and draws all of it.
pub fn run(arguments: Arguments) -> Result<u8> {
    if let Some(files) = &arguments.compare {
        return compare(files);
    }
    if let Some(file) = &arguments.draw {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let compact = Compact::parse(&text).with_context(|| file.display().to_string())?;
        draw(&compact, &arguments.report, arguments.publish)?;
        return Ok(0);
    }
    arguments.guests.apply();
    let (json, report, publishes) = (arguments.json.clone(), arguments.report.clone(), arguments.publish);
    let only: Vec<&str> = arguments.only.iter().map(|figure| figure.id).collect();
    let json = json.map(Output::open).transpose()?;
    let job = prepare(arguments)?;
    let (results, skipped) = job.measure()?;
    let text = serde_json::to_string_pretty(&results)? + "\n";
    fs::write(report.join("figures.json"), &text).with_context(|| report.display().to_string())?;
    // The compact file rounds, so what is drawn is read from its text: `--draw` gives the same page.
    let compact = Compact::parse(&Compact::of(&results).text()?)?;
    // A figure that lacks runs is no result to keep.
    draw(&compact, &report, publishes && skipped == 0 && only.is_empty())?;
    if publishes && skipped == 0 && !only.is_empty() {
        publish::publish(&publish::with_newer(compact, &only)?)?;
    }
    json.map_or(Ok(()), |file| file.write(&text))?;
    terminal::print_plain(format_args!("{}\n", told(&results, &report)))?;
    Ok(if skipped == 0 { 0 } else { FAILED })
}

/// Writes what a compact file gives into a folder, or into the repository.
fn draw(compact: &Compact, folder: &Path, publishes: bool) -> Result<()> {
    publish::write(folder, &publish::files(compact)?)?;
    if publishes { publish::publish(compact) } else { Ok(()) }
}

fn compare(files: &[PathBuf]) -> Result<u8> {
    let read = |path: &PathBuf| -> Result<File> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        File::parse(&text).with_context(|| path.display().to_string())
    };
    let comparison = Comparison::new(read(&files[0])?, read(&files[1])?);
    terminal::print_plain(format_args!("{comparison}"))?;
    Ok(u8::from(!comparison.agrees()))
}

fn told(results: &Results, folder: &Path) -> String {
    let (measured, kept) = (results.measured, results.kept);
    format!("{measured} runs done, {kept} found done; {}", folder.join("index.html").display())
}

/// Builds and fetches, so that what fails every run fails before the first.
fn prepare(arguments: Arguments) -> Result<Job> {
    let Arguments { only, cpus, report, quick, boots, fresh, memory, size, publish, .. } = arguments;
    place::checkout("radixvm bench figures")?;
    if publish {
        ensure!(!quick, "--publish keeps full runs: without --quick");
        publish::check(&Identity::here().commit)?;
    }
    let kind = if quick { "quick" } else { "full" };
    let linux = linux::kernel().context("cannot get a stock Linux kernel to compare with")?;
    let identity = Identity::here();
    let mut files = vec![artifacts::kernel()?, artifacts::meter()?, linux.path.clone()];
    files.extend(artifacts::programs()?.values().cloned());
    let build = format!(
        "{} {kind} {memory}{}",
        identity::digest(&files)?,
        size.map_or_else(String::new, |of| format!(" {of}"))
    );
    let store = Store::open(&report, build, fresh)?;
    Ok(Job {
        figures: if only.is_empty() { figures::all().collect() } else { only },
        extent: Extent { cpus: sizes(cpus, quick), quick },
        effort: Effort { quick, boots, memory, size },
        known: Known::load()?,
        store,
        identity,
    })
}

/// Returns the numbers of CPUs in rising order, each once.
fn sizes(asked: Option<Vec<u16>>, quick: bool) -> Vec<u16> {
    let mut cpus = asked.unwrap_or_else(|| SIZES[usize::from(quick)].to_vec());
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_asked_for_each_once_or_few_for_a_quick_look() {
        assert_eq!(sizes(Some(vec![4, 1, 4]), true), [1, 4]);
        assert_eq!((sizes(None, true), sizes(None, false).len()), (vec![1, 2], 5));
    }

    #[test]
    fn a_run_has_one_boot_at_least_and_32_at_most() {
        assert_eq!((number_of_boots("1"), number_of_boots("32")), (Ok(1), Ok(32)));
        for word in ["0", "33", "-1", "many"] {
            assert_eq!(number_of_boots(word), Err("a number from 1 to 32".to_owned()));
        }
    }

    #[test]
    fn an_unknown_figure_is_answered_with_the_known_ones() {
        assert_eq!(figure("fig5").unwrap().id, "fig5");
        let error = figure("fig1").err().unwrap();
        assert!(error.contains("fig4, fig5") && error.contains("table2"), "{error}");
    }
}
