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

/// What is to be done.
pub struct Job {
    /// The figures.
    pub figures: Vec<&'static Figure>,
    /// How far curves go.
    pub extent: Extent,
    /// How much is run.
    pub effort: Effort,
    /// What this build has.
    pub known: Known,
    /// What is done.
    pub store: Store,
    /// What this build is.
    pub identity: Identity,
}

/// What the boots of a run left.
struct Booted {
    boots: usize,
    mean: Measured,
}

/// Every run with what became of it.
type Done = Vec<(Run, Result<Booted>)>;

impl Job {
    /// The results, and how many runs gave none.
    ///
    /// # Errors
    /// A folder that cannot be written; snapshots that cannot be read; a signal.
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
        boots::suffice(boots, self.effort.quick)
    }

    /// Finds or does one run. One that fails is told and left out.
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

    /// One guest, or another one if it fails: of a thousand that boot the stock kernel on a busy machine
    /// some never say a word.
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

/// Where a run is drawn.
fn place(across: Across, run: &Run) -> f64 {
    match across {
        Across::Cores => run.cpus.into(),
        Across::Argument(..) => run.x.and_then(|x| x.parse().ok()).unwrap_or(0.0),
    }
}
