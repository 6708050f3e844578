//! The results of a run: every figure with our numbers, as the JSON file has them.

use abi::config::Tables;
use serde::Serialize;

use super::claims::Compared;
use super::computed::Table;
use super::curve::Curve;
use super::identity::Identity;
use super::times::{self, Times};
use super::{Across, Content, Figure, Panel, Plot, Series};
use crate::memory::row;

/// All results. They become the JSON file.
#[derive(Debug, Serialize)]
pub struct Results {
    /// Machine and build.
    #[serde(flatten)]
    pub identity: Identity,
    /// Whether few rounds were done.
    pub quick: bool,
    /// The numbers of CPUs.
    pub cpus: Vec<u16>,
    /// The number of runs that were measured now.
    pub measured: usize,
    /// The number of runs that were found finished.
    pub kept: usize,
    /// The figures.
    pub figures: Vec<Drawn>,
}

/// A figure with our numbers.
#[derive(Debug, Serialize)]
pub struct Drawn {
    /// As on the command line.
    pub id: &'static str,
    /// The paper, and the place in it.
    pub paper: &'static str,
    /// Its caption there.
    pub title: &'static str,
    /// The differences here.
    #[serde(skip)]
    pub note: &'static str,
    /// The variable.
    pub x: &'static str,
    /// The plotted quantity.
    pub y: &'static str,
    /// Its plots.
    pub panels: Vec<Plotted>,
    /// The computed table.
    pub computed: Option<Table>,
    /// Rows of table 1.
    pub times: Vec<Times>,
    /// Rows of table 2.
    pub rows: Vec<row::Row>,
}

/// A plot.
#[derive(Debug, Serialize)]
pub struct Plotted {
    /// The distinction from the other plots.
    pub title: &'static str,
    /// The plotted quantity.
    #[serde(skip)]
    pub plot: Plot,
    /// Its curves.
    pub series: Vec<Curve>,
    /// The paper's numbers and ours.
    pub claims: Vec<Compared>,
}

impl Drawn {
    /// Returns a figure, with each curve as `curve` makes it.
    pub fn new(
        figure: &Figure,
        mut curve: impl FnMut(Across, &Panel, &Series) -> Curve,
    ) -> anyhow::Result<Self> {
        let (across, _) = figure.content.panels();
        Ok(match figure.content {
            Content::Curves(_, panels) => {
                Drawn::of_panels(figure, panels, |panel, of| curve(across, panel, of))
            }
            Content::Computed(table, _, panels) => Drawn {
                computed: Some(table()?),
                ..Drawn::of_panels(figure, panels, |panel, of| curve(across, panel, of))
            },
            Content::Times(jobs) => {
                let mut curves = |panel: &Panel| -> Vec<Curve> {
                    panel.series.iter().map(|of| curve(across, panel, of)).collect()
                };
                let times = jobs.iter().flat_map(|job| times::rows(job, &curves(&job.panel))).collect();
                Drawn { times, ..Drawn::empty(figure) }
            }
            Content::Memory => Drawn { rows: memory()?, ..Drawn::empty(figure) },
        })
    }

    /// Returns a figure without data.
    pub fn empty(&Figure { id, paper, title, note, ref content }: &Figure) -> Self {
        let (x, y) = match content {
            Content::Curves(axes, _) | Content::Computed(_, axes, _) => (axes.across.label(), axes.up),
            Content::Times(_) => ("design", "seconds of all CPUs"),
            Content::Memory => ("program", "bytes"),
        };
        let (panels, times, rows) = (Vec::new(), Vec::new(), Vec::new());
        Drawn { id, paper, title, note, x, y, panels, computed: None, times, rows }
    }

    /// Returns a figure of curves.
    pub fn of_panels(
        figure: &Figure,
        panels: &[Panel],
        mut curve: impl FnMut(&Panel, &Series) -> Curve,
    ) -> Self {
        let plotted =
            |panel: &Panel| Plotted::new(panel, panel.series.iter().map(|of| curve(panel, of)).collect());
        Drawn { panels: panels.iter().map(plotted).collect(), ..Drawn::empty(figure) }
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
    /// Returns whether any of its curves has a point.
    pub fn is_drawn(&self) -> bool {
        self.series.iter().any(Curve::is_drawn)
    }

    fn new(panel: &Panel, mut series: Vec<Curve>) -> Self {
        for at in 1..series.len() {
            let same = |other: &Curve| other.color.0 == series[at].color.0;
            series[at].color.1 = series[..at].iter().any(same);
        }
        let claims = panel.claims.iter().map(|claim| claim.compare(&series)).collect();
        Plotted { title: panel.title, plot: panel.plot, series, claims }
    }
}
