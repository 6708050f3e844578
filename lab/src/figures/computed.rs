//! Tables of the papers that are not counted in a guest: they follow from sizes of our structures, from
//! snapshots of programs, or from a formula.

use serde::Serialize;

/// A table, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// The names of its columns.
    pub heading: Vec<&'static str>,
    /// Its rows, each with as many cells.
    pub rows: Vec<Vec<String>>,
}

/// Returns a number of bytes in words, exactly if it is one of a unit.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let unit = (1..UNITS.len()).rev().find(|unit| bytes >= 1 << (10 * unit)).unwrap_or(0);
    let value = bytes as f64 / (1_u64 << (10 * unit)) as f64;
    let places = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    let text = format!("{value:.places$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_largest_unit_that_fits() {
        assert_eq!(
            [0, 64, 1023, 4096, 480 << 10, (3 << 30) + (1 << 28), 24_000 << 10].map(bytes),
            ["0 B", "64 B", "1023 B", "4 KiB", "480 KiB", "3.25 GiB", "23.4 MiB"]
        );
    }
}
