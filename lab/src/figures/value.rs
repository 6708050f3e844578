//! The value of a run: the load of the plotted operation, and the value on the axis from the model's rate of
//! it.

use super::Plot;
use super::measure::Measured;
use launch::meter::model::{FREQUENCY, Load};
use launch::meter::output::ROUNDS_KEPT;
use launch::meter::part::Part;
use launch::meter::row::Row;

/// The phase of `faultstorm` that takes faults.
const FAULTING: u8 = 0;
/// The phase of `treelookup` that looks up.
const LOOKING: u8 = 1;

/// Returns the plotted value of one run. `apart` of its CPUs do other work.
pub fn value(plot: Plot, apart: u16, measured: &Measured, cpus: u16) -> Option<f64> {
    match (measured, plot) {
        (Measured::Metered { counters, .. }, Plot::Counter(of, per)) => {
            let count = |name| counters.get(name).copied();
            let value = count(of)? / per.map_or(Some(1.0), count)?;
            Some(value).filter(|value| value.is_finite())
        }
        (Measured::Metered { row, .. }, Plot::Instructions) => Some(row.instructions.mean),
        (Measured::Metered { row, .. }, Plot::InPhase(number, pages)) => {
            let phase = row.phases.iter().find(|phase| phase.phase == number)?;
            Some(phase.part.instructions / pages)
        }
        (Measured::Metered { .. }, _) => {
            let (rate, _) = load(plot, apart, measured)?.throughput(cpus.into());
            Some(of_rate(plot, apart, rate, cpus))
        }
        // Other programs may have given back more tables than this one has taken.
        (Measured::Reported(counters), _) => counters.get("table_pages").map(|pages| *pages.max(&0) as f64),
    }
}

/// Returns the load of the operation that `plot` counts: a round, a job (all rounds of the window), a fault,
/// or a look-up.
pub fn load(plot: Plot, apart: u16, measured: &Measured) -> Option<Load> {
    let Measured::Metered { row, load, .. } = measured else { return None };
    let phase = |number| row.phases.iter().find(|phase| phase.phase == number).map(|phase| &phase.part);
    match plot {
        Plot::Jobs => Some(load.times(ended(row))),
        Plot::FaultRelative => {
            phase(FAULTING).filter(|of| of.faults > 0.0).map(|of| load_of(of).times(1.0 / of.faults))
        }
        Plot::Lookups(each) => {
            let lookups = each * f64::from(row.cpus.checked_sub(apart)?);
            phase(LOOKING).map(|of| load_of(of).times(ended(row) / lookups))
        }
        _ => Some(*load),
    }
}

/// Returns the number of rounds that a mean is of: the counted ones, and the first of each CPU if that is not
/// counted.
pub fn ended(row: &Row) -> f64 {
    let (rounds, cpus) = (row.rounds as f64, f64::from(row.cpus));
    if rounds > ROUNDS_KEPT as f64 * cpus { rounds + cpus } else { rounds }
}

/// Returns the load of a phase. A phase does not distinguish kinds of transfers, so all are taken as loads of
/// lines modified elsewhere.
pub fn load_of(part: &Part) -> Load {
    let &Part { instructions, string_iterations: iterations, transfers, ipi_targets, .. } = part;
    Load { instructions, iterations, read_modified: transfers, targets: ipi_targets, ..Load::default() }
}

/// Returns the plotted value if all CPUs did `rate` operations per second.
pub fn of_rate(plot: Plot, apart: u16, rate: f64, cpus: u16) -> f64 {
    let all = f64::from(cpus);
    match plot {
        Plot::PerRound(each) => rate * each,
        Plot::PerRoundAndCore(each) => rate * each * all,
        Plot::Jobs => rate * 3600.0,
        Plot::Cycles | Plot::FaultRelative => all * FREQUENCY / rate,
        Plot::Lookups(_) => rate * (all - f64::from(apart)).max(0.0) / all,
        Plot::TablePages | Plot::Counter(..) | Plot::Instructions | Plot::InPhase(..) => rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::cell;
    use launch::guest::system::System;
    use std::collections::BTreeMap;

    fn run(cpus: u16) -> Measured {
        let cell = cell(System::PERCORE, cpus);
        Measured::Metered { row: Box::new(cell.row), load: cell.load, counters: BTreeMap::new() }
    }

    #[test]
    fn lookups_are_those_of_the_cpus_that_look_up() {
        // Phase 1 has 1500 instructions and two transfers in each of four rounds.
        let each = load(Plot::Lookups(60.0), 1, &run(2)).unwrap();
        assert_eq!((each.instructions, each.read_modified), (1500.0 * 4.0 / 60.0, 2.0 * 4.0 / 60.0));
        let of_both = each.throughput(2.0).0;
        assert_eq!(value(Plot::Lookups(60.0), 1, &run(2), 2), Some(of_both / 2.0));
        assert_eq!(of_rate(Plot::Lookups(60.0), 5, 1.0, 4), 0.0);
    }

    #[test]
    fn counters_are_those_that_the_program_reports() {
        let Measured::Metered { row, load, .. } = run(2) else { panic!("metered") };
        let counters = [("words", 12.0), ("queries", 4.0), ("none", 0.0)];
        let counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
        let run = Measured::Metered { row, load, counters };
        let of = |of, per| value(Plot::Counter(of, per), 0, &run, 2);
        assert_eq!((of("words", Some("queries")), of("words", None)), (Some(3.0), Some(12.0)));
        assert_eq!((of("words", Some("none")), of("other", None)), (None, None));
    }

    #[test]
    fn a_phase_is_counted_by_itself() {
        // Phase 1 has 1500 instructions in each round.
        assert_eq!(value(Plot::InPhase(1, 20.0), 0, &run(2), 2), Some(75.0));
        assert_eq!(value(Plot::InPhase(9, 20.0), 0, &run(2), 2), None);
        assert!(value(Plot::Instructions, 0, &run(2), 2).unwrap() > 1500.0);
    }

    #[test]
    fn a_phase_without_faults_has_no_cost_of_one() {
        assert!(value(Plot::FaultRelative, 0, &run(2), 2).unwrap() > 0.0);
        let Measured::Metered { mut row, load, counters } = run(2) else { panic!("metered") };
        row.phases.clear();
        assert_eq!(value(Plot::FaultRelative, 0, &Measured::Metered { row, load, counters }, 2), None);
    }
}
