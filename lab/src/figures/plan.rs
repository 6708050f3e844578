//! The plan of the measurement: every run that some figure needs, once.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use super::{Across, Figure, Machine, Plot, Series, Work};
use launch::artifacts;

/// A program on a machine with a number of CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The machine.
    pub on: Machine,
    /// The program and its work.
    pub work: Work,
    /// The value of `{x}`.
    pub x: Option<&'static str>,
    /// The number of CPUs.
    pub cpus: u16,
    /// Set if the meter counts it. Otherwise the program's own report is used.
    pub metered: bool,
}

impl Run {
    /// Returns a name for its file, which consists of letters, digits and dashes.
    pub fn name(&self) -> String {
        let kind = if self.metered { "metered" } else { "reported" };
        let words = [self.work.program, kind].into_iter().chain(self.on.words());
        let arguments = self
            .work
            .arguments
            .iter()
            .map(|word| self.x.map_or_else(|| (*word).to_owned(), |x| word.replace("{x}", x)));
        let words = words.map(str::to_owned).chain(arguments).chain([format!("{}cpus", self.cpus)]);
        let text = words.collect::<Vec<_>>().join("-");
        let plain: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        plain.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
    }
}

/// The extent of the curves.
pub struct Extent {
    /// Numbers of CPUs.
    pub cpus: Vec<u16>,
    /// Set if an argument that is varied takes only its first and its last value.
    pub quick: bool,
}

/// Returns the runs of one series.
pub fn runs(across: Across, plot: Plot, series: &Series, Extent { cpus, quick }: &Extent) -> Vec<Run> {
    let run = |cpus, x| Run { on: series.on, work: series.work, x, cpus, metered: plot.is_metered() };
    let most = cpus.iter().copied().max().unwrap_or(1);
    match across {
        Across::Cores => {
            let enough = cpus.iter().filter(|cpus| **cpus > series.work.apart);
            enough.map(|cpus| run(*cpus, None)).collect()
        }
        Across::Argument(_, values) if *quick => {
            values.first().into_iter().chain(values.last()).map(|x| run(most, Some(*x))).collect()
        }
        Across::Argument(_, values) => values.iter().map(|x| run(most, Some(*x))).collect(),
    }
}

/// Returns all runs of these figures that this build can do, each once, in the order of the figures.
pub fn all(figures: &[&Figure], extent: &Extent, known: &Known) -> Vec<Run> {
    let mut all = Vec::new();
    for figure in figures {
        let (across, panels) = figure.content.panels();
        for (plot, series) in panels.iter().flat_map(|panel| panel.series.iter().map(|of| (panel.plot, of))) {
            let missing = known.missing(series).is_some();
            let runs = if missing { Vec::new() } else { runs(across, plot, series, extent) };
            runs.into_iter().for_each(|run| {
                if !all.contains(&run) {
                    all.push(run)
                }
            });
        }
    }
    all
}

/// The names of this build's programs, with their bytes. A program has the options whose names are in its
/// bytes.
pub struct Known(BTreeMap<String, Vec<u8>>);

impl Known {
    /// Builds the programs and reads them.
    pub fn load() -> Result<Self> {
        let read = |(name, path): (&String, &std::path::PathBuf)| {
            Ok((name.clone(), fs::read(path).with_context(|| path.display().to_string())?))
        };
        artifacts::programs()?.iter().map(read).collect::<Result<_>>().map(Known)
    }

    /// Returns the part of a series that this build lacks.
    pub fn missing(&self, series: &Series) -> Option<String> {
        if let Err(why) = series.on.system() {
            return Some(why);
        }
        let Work { program, arguments, .. } = series.work;
        let Some(bytes) = self.0.get(program) else { return Some(format!("program {program}")) };
        let written = |option: &&&str| bytes.windows(option.len()).any(|part| part == option.as_bytes());
        let unknown = arguments.iter().filter(|word| word.starts_with("--")).find(|option| !written(option));
        unknown.map(|option| format!("{program}'s option {option}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RADIX, all as figures, ours};
    use super::*;
    use std::collections::BTreeSet;

    fn known() -> Known {
        Known(BTreeMap::from([("local".to_owned(), b"... --pages N ...".to_vec())]))
    }

    fn series(on: Machine, work: Work) -> Series {
        Series { label: "", on, work }
    }

    #[test]
    fn missing_parts_are_named() {
        let missing = |on, program, arguments| known().missing(&series(on, Work::new(program, arguments)));
        assert_eq!(missing(RADIX, "local", &["--pages", "4"]), None);
        assert_eq!(missing(ours("odd", "percore", "refcache"), "local", &[]), Some("design odd".to_owned()));
        assert_eq!(missing(RADIX, "global", &[]), Some("program global".to_owned()));
        assert_eq!(missing(RADIX, "local", &["--depth", "4"]), Some("local's option --depth".to_owned()));
    }

    #[test]
    fn figures_that_need_the_same_run_share_it_and_files_differ() {
        let figures: Vec<_> = figures().collect();
        let runs = all(&figures, &Extent { cpus: vec![1, 2], quick: true }, &known());
        let names: BTreeSet<_> = runs.iter().map(Run::name).collect();
        assert_eq!(names.len(), runs.len());
        let local = "local-metered-radix-percore-refcache-2cpus";
        assert_eq!(runs.iter().filter(|run| run.name() == local).count(), 1, "{names:?}");
        assert_eq!(runs.len(), 2 * 5, "per-core, shared and adaptive tables, Bonsai, and Linux: {names:?}");
    }

    #[test]
    fn an_argument_is_varied_on_the_most_cpus() {
        let (across, work) =
            (Across::Argument("part", &["0", "20", "50"]), Work::new("local", &["--pages", "{x}"]));
        let of = |quick| {
            let extent = Extent { cpus: vec![1, 4], quick };
            runs(across, Plot::Cycles, &series(RADIX, work), &extent)
        };
        let (all, ends) = (of(false), of(true));
        assert_eq!(all[2].name(), "local-metered-radix-percore-refcache-pages-50-4cpus");
        assert!(all.iter().all(|run| run.cpus == 4) && all.len() == 3);
        assert_eq!(ends, [all[0].clone(), all[2].clone()]);
    }
}
