//! Counts by the phases that the program marks.

use super::{is_last, number};
use crate::meter::part::{Part, Phase};
use crate::meter::row::Cell;
use crate::table::count;

/// The columns of [`rows`].
pub const HEADING: [&str; 10] = [
    "system",
    "CPUs",
    "phase",
    "instructions",
    "transfers",
    "invalidations",
    "IPIs",
    "targets",
    "faults",
    "flushes",
];

/// Returns a row per phase of every system at its largest number of CPUs. There is none if the program marks
/// no phases.
pub fn rows(cells: &[Cell]) -> Vec<Vec<String>> {
    let last = cells.iter().filter(|cell| is_last(cell, cells));
    last.flat_map(|cell| cell.row.phases.iter().map(|phase| row(cell, phase))).collect()
}

fn row(cell: &Cell, Phase { phase, part }: &Phase) -> Vec<String> {
    let Part { transfers, invalidations, ipis, ipi_targets, faults, tlb_flushes, .. } = *part;
    let counts = [transfers, invalidations, ipis, ipi_targets, faults, tlb_flushes].map(number);
    let words = [cell.system.to_string(), cell.row.cpus.to_string(), phase.to_string()];
    words.into_iter().chain([count(part.instructions.round() as i64)]).chain(counts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::report::tests::cells;

    #[test]
    fn every_phase_has_a_row_at_the_largest_number_of_cpus() {
        let rows = rows(&cells());
        let told: Vec<_> = rows.iter().map(|row| [&*row[1], &*row[2], &*row[4]]).collect();
        assert_eq!(told, [["4", "0", "0.75"], ["4", "1", "2.00"], ["4", "0", "0.75"], ["4", "1", "2.00"]]);
        assert!(rows.iter().all(|row| row.len() == HEADING.len()));
    }
}
