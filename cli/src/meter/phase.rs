//! What a program did in each of the phases that it marked.

use serde::{Deserialize, Serialize};

use super::output::{FLUSHES, Output, TRANSFERS};

/// Counts of one phase per round, in the mean: a round may pass through many phases, or a phase last many rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// As the program numbers it; 0 is the one before all others.
    pub phase: u8,
    /// User and kernel.
    pub instructions: f64,
    /// Of all kinds.
    pub transfers: f64,
    /// Copies that other CPUs lost to a store.
    pub invalidations: f64,
    /// Writes to the interrupt command register.
    pub ipis: f64,
    /// Interrupts from other CPUs, counted where they arrive.
    pub ipi_targets: f64,
    /// Page faults.
    pub faults: f64,
    /// invlpg and loads of CR3.
    pub tlb_flushes: f64,
    /// Lines that no CPU had.
    pub cold: f64,
}

/// The phases in the window; none if the program marked none.
pub fn phases(output: &Output) -> Vec<Phase> {
    let mut numbers: Vec<u8> = output.totals.iter().map(|total| total.phase).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers == [0] {
        Vec::new()
    } else {
        numbers.into_iter().map(|number| phase(output, number)).collect()
    }
}

fn phase(output: &Output, number: u8) -> Phase {
    let mean = |names: &[&str]| output.mean_where(names, |total| total.phase == number);
    Phase {
        phase: number,
        instructions: mean(&["instructions"]),
        transfers: mean(&TRANSFERS),
        invalidations: mean(&["invalidations"]),
        ipis: mean(&["ipis_sent"]),
        ipi_targets: mean(&["ipis_received"]),
        faults: mean(&["faults"]),
        tlb_flushes: mean(&FLUSHES),
        cold: mean(&["cold"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::output::tests::FIXTURE;

    #[test]
    fn phases_are_apart_and_together_the_window() {
        let output = Output::parse(FIXTURE).unwrap();
        let phases = phases(&output);
        let told: Vec<_> =
            phases.iter().map(|phase| (phase.phase, phase.instructions, phase.transfers)).collect();
        assert_eq!(told, [(0, 1520.0, 0.75), (1, 1500.0, 2.0)]);
        assert_eq!(told.iter().map(|phase| phase.2).sum::<f64>(), output.mean(&TRANSFERS));
        assert_eq!((phases[0].ipis, phases[1].ipis, phases[1].tlb_flushes), (0.0, 0.25, 0.75));
    }

    #[test]
    fn a_program_that_marks_none_has_none() {
        let text = FIXTURE.replace(r#""phase":1"#, r#""phase":0"#);
        assert_eq!(phases(&Output::parse(&text).unwrap()), []);
    }
}
