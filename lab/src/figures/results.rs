//! What the JSON says: every figure with our numbers.

use abi::config::Tables;
use serde::Serialize;

use super::claims::Compared;
use super::curve::Curve;
use super::identity::Identity;
use super::times::{self, Times};
use super::{Across, Content, Figure, Panel, Series};
use crate::memory::row;

/// Everything: the JSON.
#[derive(Debug, Serialize)]
pub struct Results {
    /// Machine and build.
    #[serde(flatten)]
    pub identity: Identity,
    /// Whether few rounds were done.
    pub quick: bool,
    /// The numbers of CPUs.
    pub cpus: Vec<u16>,
    /// Runs that were done now.
    pub measured: usize,
    /// Runs that were found.
    pub kept: usize,
    /// The figures.
    pub figures: Vec<Drawn>,
}

/// A figure with our numbers.
#[derive(Debug, Serialize)]
pub struct Drawn {
    /// As on the command line.
    pub id: &'static str,
    /// Which paper, and where in it.
    pub paper: &'static str,
    /// Its caption there.
    pub title: &'static str,
    /// What differs here.
    #[serde(skip)]
    pub note: &'static str,
    /// What is varied.
    pub x: &'static str,
    /// What is drawn.
    pub y: &'static str,
    /// Its plots.
    pub panels: Vec<Plotted>,
    /// Rows of table 1.
    pub times: Vec<Times>,
    /// Rows of table 2.
    pub rows: Vec<row::Row>,
}

/// A plot.
#[derive(Debug, Serialize)]
pub struct Plotted {
    /// What tells it from the others.
    pub title: &'static str,
    /// Its curves.
    pub series: Vec<Curve>,
    /// The paper's numbers and ours.
    pub claims: Vec<Compared>,
}

impl Drawn {
    /// A figure whose curves are made one by one.
    pub fn new(
        figure: &Figure,
        mut curve: impl FnMut(Across, &Panel, &Series) -> Curve,
    ) -> anyhow::Result<Self> {
        let &Figure { id, paper, title, note, ref content } = figure;
        let (x, y) = match content {
            Content::Curves(axes, _) => (axes.across.label(), axes.up),
            Content::Times(_) => ("design", "seconds of all CPUs"),
            Content::Memory => ("program", "bytes"),
        };
        let (across, panels) = content.panels();
        let mut curves =
            |panel: &Panel| panel.series.iter().map(|of| curve(across, panel, of)).collect::<Vec<_>>();
        let (panels, times) = match content {
            Content::Times(jobs) => {
                (Vec::new(), jobs.iter().flat_map(|job| times::rows(job, &curves(&job.panel))).collect())
            }
            _ => (panels.iter().map(|panel| Plotted::new(panel, curves(panel))).collect(), Vec::new()),
        };
        let rows = if matches!(content, Content::Memory) { memory()? } else { Vec::new() };
        Ok(Drawn { id, paper, title, note, x, y, panels, times, rows })
    }
}

fn memory() -> anyhow::Result<Vec<row::Row>> {
    row::recorded()?.iter().map(|of| row::Row::of(of, Tables::Percore)).collect()
}

impl Across {
    fn label(self) -> &'static str {
        match self {
            Across::Cores => "cores",
            Across::Argument(label, _) => label,
        }
    }
}

impl Plotted {
    fn new(panel: &Panel, series: Vec<Curve>) -> Self {
        let claims = panel.claims.iter().map(|claim| claim.compare(&series)).collect();
        Plotted { title: panel.title, series, claims }
    }
}
