//! The compact file. It has the counts by which runs are compared and the values that are drawn, one line for
//! each series and number of CPUs.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::curve::Curve;
use super::identity::Identity;
use super::results::{Drawn, Results};
use super::times::{Split, Times};
use super::{Content, Figure, Panel, all};
use crate::memory::row::Row as Memory;

/// The names of the columns in a line of `points`.
const COLUMNS: [&str; 13] = [
    "figure",
    "panel",
    "series",
    "x",
    "cpus",
    "boots",
    "instructions",
    "transfers",
    "invalidations",
    "targets",
    "faults",
    "value",
    "steady",
];

/// The contents of a compact file.
#[derive(Debug, Deserialize)]
pub struct Compact {
    /// Where the counts come from.
    pub origin: Origin,
    /// Lines of all curves.
    pub points: Vec<Point>,
    /// Lines of table 1.
    times: Vec<Time>,
    /// Lines of table 2.
    memory: Vec<Memory>,
}

/// Where counts come from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The commit, with `-dirty` after it if files had been changed since.
    pub commit: String,
    /// `full`, or `quick` for few rounds.
    pub effort: String,
    /// The kernels in the guests.
    pub kernels: Vec<String>,
    /// The emulator's version.
    pub qemu: String,
    /// The option for huge pages, on either kernel.
    pub huge: String,
    /// Further notes about these counts.
    pub notes: Vec<String>,
}

/// A point of a curve: counted, or predicted if there were no boots.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// As on the command line.
    pub figure: String,
    /// The plot.
    pub panel: String,
    /// The curve.
    pub series: String,
    /// Where it is drawn.
    pub x: f64,
    /// The number of CPUs.
    pub cpus: u16,
    /// The number of guests of which it is the mean.
    pub boots: usize,
    /// Instructions, transfers, invalidations, targets and faults a round, if they were counted.
    pub counts: Option<[f64; 5]>,
    /// The plotted value, by the cost model.
    pub value: f64,
    /// For a prediction, the value if counts per round stayed as they were last.
    pub steady: Option<f64>,
}

impl<'de> Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        type Line = (
            String,
            String,
            String,
            f64,
            u16,
            usize,
            Option<f64>,
            Option<f64>,
            Option<f64>,
            Option<f64>,
            Option<f64>,
            f64,
            Option<f64>,
        );
        let (figure, panel, series, x, cpus, boots, a, b, c, d, e, value, steady) =
            Line::deserialize(deserializer)?;
        let counts = [a, b, c, d, e];
        let known = counts.iter().flatten().count();
        if known != 0 && known != counts.len() {
            return Err(D::Error::custom(format!("{figure}, {series}: some counts are missing")));
        }
        let counts = (known > 0).then(|| counts.map(|of| of.unwrap_or_default()));
        Ok(Point { figure, panel, series, x, cpus, boots, counts, value, steady })
    }
}

/// A line of table 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Time {
    job: String,
    design: String,
    cpus: u16,
    instructions: [f64; 2],
    ours: Split,
}

impl Compact {
    /// Takes the data that the file keeps from `results`.
    pub fn of(results: &Results) -> Self {
        let curves = |figure: &Drawn| -> Vec<Point> {
            let series =
                figure.panels.iter().flat_map(|panel| panel.series.iter().map(move |of| (panel.title, of)));
            series.flat_map(|(panel, curve)| curve.record(figure.id, panel)).collect()
        };
        let time = |of: &Times| Time {
            job: of.job.to_owned(),
            design: of.design.to_owned(),
            cpus: of.cpus,
            instructions: of.instructions,
            ours: of.ours,
        };
        Compact {
            origin: origin(results),
            points: results.figures.iter().flat_map(curves).collect(),
            times: results.figures.iter().flat_map(|figure| &figure.times).map(time).collect(),
            memory: results.figures.iter().flat_map(|figure| figure.rows.clone()).collect(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Fails if the text is no compact file, or has a line of a series that no figure draws.
    pub fn parse(text: &str) -> Result<Self> {
        let compact: Compact = serde_json::from_str(text).context("not a compact file of `bench figures`")?;
        match compact.points.iter().find(|point| !is_drawn(point)) {
            Some(Point { figure, panel, series, .. }) => bail!("no figure has {figure}, {panel}, {series}"),
            None => Ok(compact),
        }
    }

    /// Returns the text of the file.
    pub fn text(&self) -> Result<String> {
        let mut text = String::from("{\n");
        writeln!(text, "\"origin\": {},", serde_json::to_string_pretty(&self.origin)?)?;
        writeln!(text, "\"columns\": {},", serde_json::to_string(&COLUMNS)?)?;
        let points: Vec<String> = self.points.iter().map(Point::line).collect::<Result<_>>()?;
        writeln!(text, "\"points\": [\n{}\n],", points.join(",\n"))?;
        writeln!(text, "\"times\": [\n{}\n],", lines(&self.times)?)?;
        writeln!(text, "\"memory\": [\n{}\n]\n}}", lines(&self.memory)?)?;
        Ok(text)
    }

    /// Takes the figures with these names from `newer`, with its notes, and keeps the others.
    pub fn replace(&mut self, newer: Self, figures: &[&str], note: &str) {
        let is_newer = |point: &Point| figures.contains(&point.figure.as_str());
        self.points.retain(|point| !is_newer(point));
        self.points.extend(newer.points.into_iter().filter(is_newer));
        let place = |point: &Point| all().position(|figure| figure.id == point.figure);
        self.points.sort_by_key(place);
        let notes = std::mem::take(&mut self.origin.notes);
        self.origin.notes = notes.iter().filter_map(|old| without(old, figures)).collect();
        self.origin.notes.push(note.to_owned());
    }

    /// Returns the figures of which it has data. Those that are computed need none.
    pub fn figures(&self) -> Vec<Drawn> {
        let has = |figure: &&Figure| match figure.content {
            Content::Curves(..) => self.points.iter().any(|point| point.figure == figure.id),
            Content::Computed(..) => true,
            Content::Times(_) => !self.times.is_empty(),
            Content::Memory => !self.memory.is_empty(),
        };
        all().filter(has).map(|figure| self.figure(figure)).collect()
    }

    fn figure(&self, figure: &'static Figure) -> Drawn {
        let (across, _) = figure.content.panels();
        let curve = |panel: &Panel, series: &super::Series| {
            let of = self.points.iter().filter(|point| point.is_of(figure.id, panel.title, series.label));
            Curve::recorded(series, across, panel.plot, &of.collect::<Vec<_>>())
        };
        match figure.content {
            Content::Curves(_, panels) => {
                Drawn::of_panels(figure, panels, |panel, series| curve(panel, series))
            }
            Content::Computed(table, _, panels) => {
                Drawn { computed: table().ok(), ..Drawn::of_panels(figure, panels, curve) }
            }
            Content::Times(jobs) => {
                let times = self.times.iter().filter_map(|time| time.row(jobs)).collect();
                Drawn { times, ..Drawn::empty(figure) }
            }
            Content::Memory => Drawn { rows: self.memory.clone(), ..Drawn::empty(figure) },
        }
    }
}

fn is_drawn(point: &Point) -> bool {
    let panels = |figure: &Figure| figure.content.panels().1;
    all().any(|figure| {
        panels(figure)
            .iter()
            .any(|panel| panel.series.iter().any(|series| point.is_of(figure.id, panel.title, series.label)))
    })
}

fn origin(Results { identity, quick, figures, .. }: &Results) -> Origin {
    let Identity { commit, .. } = identity;
    let curves = figures.iter().flat_map(|figure| figure.panels.iter().flat_map(|panel| &panel.series));
    let rows: Vec<_> = curves.flat_map(|curve| curve.counts.last()).collect();
    let mut kernels: Vec<String> = rows.iter().map(|row| row.kernel.clone()).collect();
    kernels.sort();
    kernels.dedup();
    let first = |of: fn(&launch::meter::row::Row) -> &String| {
        rows.first().map_or_else(String::new, |row| of(row).clone())
    };
    Origin {
        commit: commit.clone(),
        effort: if *quick { "quick" } else { "full" }.to_owned(),
        kernels,
        qemu: first(|row| &row.qemu),
        huge: first(|row| &row.huge),
        notes: Vec::new(),
    }
}

impl Point {
    fn is_of(&self, figure: &str, panel: &str, series: &str) -> bool {
        (self.figure.as_str(), self.panel.as_str(), self.series.as_str()) == (figure, panel, series)
    }

    fn line(&self) -> Result<String> {
        let words = [&self.figure, &self.panel, &self.series].map(serde_json::to_string);
        let words: Vec<String> = words.into_iter().collect::<Result<_, _>>()?;
        let null = || "null".to_owned();
        let counts = (0..5).map(|at| self.counts.map_or_else(null, |counts| digits(counts[at])));
        let numbers =
            [digits(self.x), self.cpus.to_string(), self.boots.to_string()].into_iter().chain(counts);
        let drawn = [digits(self.value), self.steady.map_or_else(null, digits)];
        let line: Vec<String> = words.into_iter().chain(numbers).chain(drawn).collect();
        Ok(format!("[{}]", line.join(",")))
    }
}

/// Returns a line for each of these. Numbers with fractions are rounded as by `digits`, so that they are read
/// as they were written.
fn lines(of: &[impl Serialize]) -> Result<String> {
    let line = |of| anyhow::Ok(rounded(serde_json::to_value(of)?).to_string());
    Ok(of.iter().map(line).collect::<Result<Vec<_>>>()?.join(",\n"))
}

fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            digits(number.as_f64().unwrap_or_default()).parse::<f64>().map_or(Value::Null, Value::from)
        }
        Value::Array(values) => values.into_iter().map(rounded).collect(),
        Value::Object(of) => of.into_iter().map(|(key, value)| (key, rounded(value))).collect(),
        value => value,
    }
}

/// Formats a number with six significant digits, or more if its whole part has more.
fn digits(value: f64) -> String {
    let power = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let places = usize::try_from(5 - power).unwrap_or(0);
    let text = format!("{value:.places$}");
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    short.to_owned()
}

impl Time {
    /// Returns the time as a row of the table, with the paper's numbers, or `None` if the table has no
    /// such job or design.
    fn row(&self, jobs: &'static [super::Timed]) -> Option<Times> {
        let job = jobs.iter().find(|job| job.panel.title == self.job)?;
        let at = job.panel.series.iter().position(|series| series.label == self.design)?;
        Some(Times {
            job: job.panel.title,
            design: job.panel.series[at].label,
            cpus: self.cpus,
            instructions: self.instructions,
            ours: self.ours,
            paper: job.paper.get(at).copied(),
        })
    }
}

/// Returns a note about figures without those of a newer one, or nothing if none is left.
fn without(note: &str, newer: &[&str]) -> Option<String> {
    let Some((figures, rest)) = note.split_once(": ") else { return Some(note.to_owned()) };
    let kept: Vec<&str> = figures.split(", ").filter(|figure| !newer.contains(figure)).collect();
    (!kept.is_empty()).then(|| format!("{}: {rest}", kept.join(", ")))
}

#[cfg(test)]
pub mod tests {
    use super::super::curve::tests::filled;
    use super::super::{Plot, Series};
    use super::*;

    /// Returns results in which every curve is the same.
    pub fn results() -> Results {
        let curve = |of: &Series| Curve {
            label: of.label,
            color: (of.color(), false),
            ..filled(Plot::PerRound(1.0))
        };
        let figures = all().map(|figure| Drawn::new(figure, |_, _, series| curve(series)).unwrap());
        let figures = figures.collect();
        Results { identity: Identity::here(), quick: true, cpus: vec![1, 2], measured: 0, kept: 0, figures }
    }

    #[test]
    fn a_newer_note_takes_figures_from_older_ones() {
        let note = "lodic7, lodic8: counted at commit 0123abc, in guests with 2 CPUs.";
        let rest = "lodic8: counted at commit 0123abc, in guests with 2 CPUs.";
        assert_eq!(without(note, &["lodic7", "lodic9"]).as_deref(), Some(rest));
        assert_eq!(without(note, &["lodic8", "lodic7"]), None);
        assert_eq!(without("a word", &["lodic8"]).as_deref(), Some("a word"));
    }

    #[test]
    fn written_counts_are_read_again() {
        let compact = Compact::of(&results());
        let text = compact.text().unwrap();
        let again = Compact::parse(&text).unwrap();
        assert_eq!((again.points.len(), again.text().unwrap()), (compact.points.len(), text));
        assert_eq!(again.figures().len(), all().count());
    }

    #[test]
    fn newer_figures_take_the_place_of_the_old_ones() {
        let text = Compact::of(&results()).text().unwrap();
        let [mut kept, mut newer] = [(); 2].map(|()| Compact::parse(&text).unwrap());
        newer.points.retain(|point| point.figure != "lodic7" || point.x == 1.0);
        newer.points.iter_mut().for_each(|point| point.value = 7.0);
        let of = |compact: &Compact, figure: &str| -> Vec<f64> {
            compact.points.iter().filter(|point| point.figure == figure).map(|point| point.value).collect()
        };
        let (old, order) = (of(&kept, "fig5"), |compact: &Compact| {
            let mut figures: Vec<String> = compact.points.iter().map(|point| point.figure.clone()).collect();
            figures.dedup();
            figures
        });
        let before = order(&kept);
        kept.replace(newer, &["lodic7", "lodic8"], "lodic7, lodic8: newer");
        assert_eq!((of(&kept, "fig5"), order(&kept)), (old, before));
        let values = of(&kept, "lodic7");
        assert!(!values.is_empty() && values.iter().all(|value| *value == 7.0));
        let again = Compact::parse(&text).unwrap();
        kept.replace(again, &["lodic7", "lodic8"], "lodic7, lodic8: newest");
        assert_eq!(kept.origin.notes, ["lodic7, lodic8: newest"]);
    }

    #[test]
    fn a_line_of_no_figure_is_refused() {
        let text = Compact::of(&results()).text().unwrap();
        let error = Compact::parse(&text.replace("Shared counter", "Another counter")).unwrap_err();
        assert_eq!(error.to_string(), "no figure has fig8, one shared page, Another counter");
        assert!(Compact::parse("{}").is_err());
    }

    #[test]
    fn six_digits_are_kept() {
        assert_eq!(
            [0.0, 1.0, 1234567.8, 0.001234567, 66.66666].map(digits),
            ["0", "1", "1234568", "0.00123457", "66.6667"]
        );
    }
}
