//! All runs of some figures, one after the other, and the figures made of them.

use anyhow::Result;

use super::boots;
use super::curve::Curve;
use super::identity::Identity;
use super::measure::{self, Effort, Measured};
use super::plan::{self, Extent, Known, Run};
use super::results::{Drawn, Results};
use super::store::Store;
use super::{Across, Figure, Panel, Series};
use launch::exit_status::is_interrupt;
use launch::terminal;

/// The figures to draw and the way to measure them.
pub struct Job {
    /// The figures.
    pub figures: Vec<&'static Figure>,
    /// The extent of the curves.
    pub extent: Extent,
    /// The effort of the measurement.
    pub effort: Effort,
    /// The designs and programs of this build.
    pub known: Known,
    /// The finished runs.
    pub store: Store,
    /// The identity of this build.
    pub identity: Identity,
}

/// The results of the boots of a run.
struct Booted {
    boots: usize,
    mean: Measured,
}

/// Every run with its result.
type Done = Vec<(Run, Result<Booted>)>;

impl Job {
    /// Measures everything. Returns the results, and the number of runs without a result.
    ///
    /// # Errors
    /// If a folder cannot be written, snapshots cannot be read, or a signal came.
    pub fn measure(&self) -> Result<(Results, usize)> {
        let runs = plan::all(&self.figures, &self.extent, &self.known);
        let kept = runs.iter().filter(|run| self.is_done(&self.store.boots(run))).count();
        let of = runs.len();
        let done = runs.into_iter().enumerate().map(|(number, run)| self.once(run, number + 1, of));
        let done: Done = done.collect::<Result<_>>()?;
        let skipped = done.iter().filter(|(_, result)| result.is_err()).count();
        let figures = self.figures.iter().map(|figure| {
            Drawn::new(figure, |across, panel, series| self.curve(&done, across, panel, series))
        });
        let figures = figures.collect::<Result<_>>()?;
        let (identity, cpus) = (self.identity.clone(), self.extent.cpus.clone());
        let measured = of - kept - skipped;
        Ok((Results { identity, quick: self.effort.quick, cpus, measured, kept, figures }, skipped))
    }

    fn is_done(&self, boots: &[Measured]) -> bool {
        boots.len() >= self.effort.boots || boots::suffice(boots, self.effort.quick)
    }

    /// Looks a run up or does it. A run that fails is reported and left out.
    fn once(&self, run: Run, number: usize, of: usize) -> Result<(Run, Result<Booted>)> {
        let name = run.name();
        let mut boots = self.store.boots(&run);
        while !self.is_done(&boots) {
            let boot = boots.len() + 1;
            match self.boot(&run, &format!("run {number} of {of}: {name}, boot {boot}")) {
                Ok(measured) => {
                    self.store.put(&run, boot, measured.clone())?;
                    boots.push(measured);
                }
                Err(error) if is_interrupt(&error) => return Err(error),
                Err(error) => {
                    terminal::message(format_args!("skipped: {name}: {error:#}"));
                    return Ok((run, Err(error)));
                }
            }
        }
        Ok((run, Ok(Booted { boots: boots.len(), mean: boots::mean(&boots)? })))
    }

    /// Boots one guest, or another one if it fails. Of a thousand guests with the stock kernel on a busy
    /// machine some never write a line.
    fn boot(&self, run: &Run, step: &str) -> Result<Measured> {
        let boot = || measure::run(run, self.effort, step.to_owned());
        boot().or_else(|error| {
            if is_interrupt(&error) {
                return Err(error);
            }
            terminal::message(format_args!("once more: {}: {error:#}", run.name()));
            boot()
        })
    }

    fn curve(&self, done: &Done, across: Across, panel: &Panel, series: &Series) -> Curve {
        let mut curve = Curve::empty(series);
        curve.not_in_this_build = self.known.missing(series);
        if curve.not_in_this_build.is_some() {
            return curve;
        }
        let mut points = Vec::new();
        for run in plan::runs(across, panel.plot, series, &self.extent) {
            let x = place(across, &run);
            match done.iter().find(|(other, _)| *other == run) {
                Some((_, Ok(Booted { boots, mean }))) => {
                    points.push((x, run.cpus, mean.clone()));
                    curve.boots.push(*boots);
                }
                Some((_, Err(error))) => curve.skipped.push(format!("{x}: {error:#}")),
                None => (),
            }
        }
        curve.fill(across, panel.plot, &points);
        curve
    }
}

/// Returns the place of a run on the axis.
fn place(across: Across, run: &Run) -> f64 {
    match across {
        Across::Cores => run.cpus.into(),
        Across::Argument(..) => run.x.and_then(|x| x.parse().ok()).unwrap_or(0.0),
    }
}
