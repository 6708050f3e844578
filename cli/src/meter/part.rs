//! Counts of a part of the window: of each phase that a program marks, and of user and kernel.

use serde::{Deserialize, Serialize};

use super::output::{FLUSHES, Output, TRANSFERS, Total};

/// The mean counts of a part per round. A round may pass through many phases, and a phase may last many
/// rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Instructions.
    pub instructions: f64,
    /// Iterations of repeated string instructions.
    pub string_iterations: f64,
    /// Transfers of all kinds.
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

/// A phase that a program marked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// The program's number of the phase. Phase 0 comes before all others.
    pub phase: u8,
    /// The counts in it.
    #[serde(flatten)]
    pub part: Part,
}

impl Part {
    /// Returns the counts with this privilege, "user" or "kernel".
    pub fn privileged(output: &Output, privilege: &str) -> Self {
        Part::of(output, |total| total.privilege == privilege)
    }

    fn of(output: &Output, wanted: impl Fn(&Total) -> bool) -> Self {
        let mean = |names: &[&str]| output.mean_where(names, &wanted);
        Part {
            instructions: mean(&["instructions"]),
            string_iterations: mean(&["rep_iterations"]),
            transfers: mean(&TRANSFERS),
            invalidations: mean(&["invalidations"]),
            ipis: mean(&["ipis_sent"]),
            ipi_targets: mean(&["ipis_received"]),
            faults: mean(&["faults"]),
            tlb_flushes: mean(&FLUSHES),
            cold: mean(&["cold"]),
        }
    }
}

/// Returns the phases in the window, or none if the program marked none.
pub fn phases(output: &Output) -> Vec<Phase> {
    let mut numbers: Vec<u8> = output.totals.iter().map(|total| total.phase).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers == [0] {
        return Vec::new();
    }
    let part = |phase| Part::of(output, |total| total.phase == phase);
    numbers.into_iter().map(|phase| Phase { phase, part: part(phase) }).collect()
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
            phases.iter().map(|Phase { phase, part }| (*phase, part.instructions, part.transfers)).collect();
        assert_eq!(told, [(0, 1520.0, 0.75), (1, 1500.0, 2.0)]);
        assert_eq!(told.iter().map(|phase| phase.2).sum::<f64>(), output.mean(&TRANSFERS));
        let [first, second] = [&phases[0].part, &phases[1].part];
        assert_eq!((first.ipis, second.ipis, second.tlb_flushes), (0.0, 0.25, 0.75));
    }

    #[test]
    fn a_program_that_marks_none_has_none() {
        let text = FIXTURE.replace(r#""phase":1"#, r#""phase":0"#);
        assert_eq!(phases(&Output::parse(&text).unwrap()), []);
    }

    #[test]
    fn user_and_kernel_are_together_the_window() {
        let output = Output::parse(FIXTURE).unwrap();
        let [user, kernel] = ["user", "kernel"].map(|privilege| Part::privileged(&output, privilege));
        assert_eq!((user.instructions, kernel.instructions), (120.0, 2900.0));
        assert_eq!((user.transfers, kernel.transfers, kernel.ipi_targets), (0.0, 2.75, 0.25));
    }
}
