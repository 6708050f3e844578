//! `radixvm bench figures`: the figures of the papers.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use super::output::Output;
use crate::bench::figures::compare::{Comparison, File};
use crate::bench::figures::curve::Curve;
use crate::bench::figures::identity::{self, Identity};
use crate::bench::figures::measure::{self, Effort, Measured};
use crate::bench::figures::plan::{self, Extent, Known, Run};
use crate::bench::figures::results::{Drawn, Results};
use crate::bench::figures::store::Store;
use crate::bench::figures::{self, Across, Axes, Figure, Panel, Series, page};
use crate::guest::linux;
use crate::meter::report::style;
use crate::refusal::FAILED;
use crate::{artifacts, options};

/// Sizes, and those of a quick look.
const SIZES: [&[u16]; 2] = [&[1, 2, 4, 8, 16], &[1, 2]];

/// Options of `radixvm bench figures`.
#[derive(Args)]
#[command(after_help = "\
Draws the figures of the RadixVM paper (EuroSys 2013: fig4 to fig9, table2, tables) and of the Bonsai paper (ASPLOS 2012: fig13 to \
fig18) from counts in metered guests and from the cost model; docs/figures.md says how. DIR gets index.html, figures.json, a picture \
of each plot, and a file for each run that is done: a command that was stopped goes on where it was, unless kernel or programs \
have changed.")]
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
    /// 1 and 2 CPUs unless --cpus is given, few rounds
    #[arg(long)]
    quick: bool,
    /// Do not use runs that are done
    #[arg(long)]
    fresh: bool,
    /// Memory of every guest
    #[arg(short, long, default_value = "1G", value_parser = options::size, value_name = "SIZE")]
    memory: u64,
    /// Measure nothing: say which counts differ between the JSON of two runs, with status 1 if any does
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"])]
    compare: Option<Vec<PathBuf>>,
}

fn figure(id: &str) -> Result<&'static Figure, String> {
    let known = || figures::all().map(|figure| figure.id).collect::<Vec<_>>().join(", ");
    figures::all().find(|figure| figure.id == id).ok_or_else(|| format!("figures are {}", known()))
}

/// Measures what is not done yet, and draws all of it.
pub fn run(arguments: Arguments) -> Result<u8> {
    if let Some(files) = &arguments.compare {
        return compare(files);
    }
    let json = arguments.json.clone().map(Output::open).transpose()?;
    let job = Job::prepare(arguments)?;
    let (results, left_out) = job.measure()?;
    let text = serde_json::to_string_pretty(&results)? + "\n";
    draw(&job.report, &results, &text)?;
    json.map_or(Ok(()), |file| file.write(&text))?;
    writeln!(std::io::stdout(), "{}", told(&results, &job.report))?;
    Ok(if left_out == 0 { 0 } else { FAILED })
}

fn compare(files: &[PathBuf]) -> Result<u8> {
    let read = |path: &PathBuf| -> Result<File> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    };
    let comparison = Comparison::new(&read(&files[0])?, &read(&files[1])?);
    write!(std::io::stdout(), "{comparison}")?;
    Ok(u8::from(!comparison.agrees()))
}

fn told(results: &Results, folder: &Path) -> String {
    let (measured, kept) = (results.measured, results.kept);
    format!("{measured} runs done, {kept} found done; {}", folder.join("index.html").display())
}

/// What is to be done.
struct Job {
    figures: Vec<&'static Figure>,
    extent: Extent,
    effort: Effort,
    report: PathBuf,
    known: Known,
    store: Store,
    identity: Identity,
}

/// Every run with what became of it.
type Done = Vec<(Run, Result<Measured>)>;

impl Job {
    /// Builds and fetches, so that what fails every run fails before the first.
    fn prepare(arguments: Arguments) -> Result<Self> {
        let Arguments { only, cpus, report, quick, fresh, memory, .. } = arguments;
        let identity = Identity::here();
        let kind = if quick { "quick" } else { "full" };
        let linux = linux::kernel().context("cannot get a stock Linux kernel to compare with")?;
        let mut files = vec![artifacts::kernel()?, artifacts::meter()?, linux];
        files.extend(artifacts::programs()?.values().cloned());
        let build = format!("{} {kind} {memory}", identity::digest(&files)?);
        let store = Store::open(&report, build, fresh)?;
        Ok(Job {
            figures: if only.is_empty() { figures::all().collect() } else { only },
            extent: Extent { cpus: sizes(cpus, quick), quick },
            effort: Effort { quick, memory },
            report,
            known: Known::load()?,
            store,
            identity,
        })
    }

    /// The results, and how many runs gave none.
    fn measure(&self) -> Result<(Results, usize)> {
        let runs = plan::all(&self.figures, &self.extent, &self.known);
        let kept = runs.iter().filter(|run| self.store.get(run).is_some()).count();
        let of = runs.len();
        let done = runs.into_iter().enumerate().map(|(number, run)| self.once(run, number + 1, of));
        let done: Done = done.collect::<Result<_>>()?;
        let left_out = done.iter().filter(|(_, result)| result.is_err()).count();
        let figures = self
            .figures
            .iter()
            .map(|figure| Drawn::new(figure, |axes, panel, series| self.curve(&done, axes, panel, series)));
        let figures = figures.collect::<Result<_>>()?;
        let (identity, cpus) = (self.identity.clone(), self.extent.cpus.clone());
        let measured = of - kept - left_out;
        Ok((Results { identity, quick: self.effort.quick, cpus, measured, kept, figures }, left_out))
    }

    /// Finds or does one run. One that fails is told and left out.
    fn once(&self, run: Run, number: usize, of: usize) -> Result<(Run, Result<Measured>)> {
        if let Some(kept) = self.store.get(&run) {
            return Ok((run, Ok(kept)));
        }
        let name = run.name();
        let result = measure::run(&run, self.effort, format!("run {number} of {of}: {name}"));
        match &result {
            Ok(measured) => self.store.put(&run, measured.clone())?,
            Err(error) => eprintln!("radixvm: left out: {name}: {error:#}"),
        }
        Ok((run, result))
    }

    fn curve(&self, done: &Done, axes: &Axes, panel: &Panel, series: &Series) -> Curve {
        let mut curve = Curve::empty(series);
        curve.not_in_this_build = self.known.missing(series);
        if curve.not_in_this_build.is_some() {
            return curve;
        }
        let mut points = Vec::new();
        for run in plan::runs(axes.across, panel.plot, series, &self.extent) {
            let x = place(axes.across, &run);
            match done.iter().find(|(other, _)| *other == run).map(|(_, result)| result) {
                Some(Ok(measured)) => points.push((x, run.cpus, measured.clone())),
                Some(Err(error)) => curve.left_out.push(format!("{x}: {error:#}")),
                None => curve.left_out.push(format!("{x}: not planned")),
            }
        }
        curve.fill(axes.across, panel.plot, &points);
        curve
    }
}

/// Where a run is drawn.
fn place(across: Across, run: &Run) -> f64 {
    match across {
        Across::Cores => run.cpus.into(),
        Across::Argument(..) => run.x.and_then(|x| x.parse().ok()).unwrap_or(0.0),
    }
}

/// Each number once.
fn sizes(asked: Option<Vec<u16>>, quick: bool) -> Vec<u16> {
    let mut cpus = asked.unwrap_or_else(|| SIZES[usize::from(quick)].to_vec());
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// Page, pictures and JSON.
fn draw(folder: &Path, results: &Results, json: &str) -> Result<()> {
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| file.display().to_string())
    };
    for figure in &results.figures {
        for panel in &figure.panels {
            let name = format!(
                "{}-{}.svg",
                figure.id,
                panel.title.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
            );
            write(&name, &page::picture(figure, panel).file(style::CSS))?;
        }
    }
    write("index.html", &page::page(results))?;
    write("figures.json", json)
}
