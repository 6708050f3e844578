//! Checks that the README's counts are those of docs/results.

use std::fs;

use anyhow::Result;

use super::folder;
use crate::root;

/// Returns whether each row of counts in the README stands in docs/results. Names the rows that do not.
pub fn check() -> Result<bool> {
    let readme = fs::read_to_string(root().join("README.md"))?;
    let results = fs::read_to_string(folder().join("local.md"))?;
    let wrong = unknown(&readme, &results);
    wrong.iter().for_each(|row| println!("README.md: not in docs/results/local.md: {row}"));
    Ok(wrong.is_empty() && readme.lines().any(is_count))
}

/// Returns the rows of counts of a page that the results lack.
fn unknown<'a>(page: &'a str, results: &str) -> Vec<&'a str> {
    let lacks = |row: &&str| is_count(row) && !results.lines().any(|line| line == *row);
    page.lines().filter(|line| lacks(line) || demo_differs(line, results)).collect()
}

/// Returns whether a line is a row of a table of `radixvm contend`.
fn is_count(line: &str) -> bool {
    line.starts_with("RadixVM ") || line.starts_with("stock Linux ")
}

/// Returns whether a line is the row of `radixvm demo` for `local` on RadixVM, and its instructions and transfers
/// are not those of 2 CPUs in the results. The demo's other columns are of one run.
fn demo_differs(line: &str, results: &str) -> bool {
    let Some(row) = line.strip_prefix("local on RadixVM adaptive") else { return false };
    let said: Vec<&str> = row.split_whitespace().rev().take(2).collect();
    let counted = results.lines().find_map(|line| line.strip_prefix("RadixVM adaptive     2 "));
    let counted: Vec<&str> = counted.unwrap_or_default().split_whitespace().take(2).collect();
    match (&said[..], &counted[..]) {
        ([transfers, instructions], [known, moved]) => {
            instructions != known || transfers.parse::<f64>().ok() != moved.parse::<f64>().ok()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = "RadixVM adaptive     1         2,655       0.00\nRadixVM adaptive     2         2,655       0.00\n\
        RadixVM adaptive     2         4,335         81\n";

    #[test]
    fn rows_of_the_results_are_known_and_others_are_named() {
        let good = "Text.\nRadixVM adaptive     1         2,655       0.00\n";
        assert!(unknown(good, RESULTS).is_empty());
        let bad = good.replace("2,655", "2,654");
        assert_eq!(unknown(&bad, RESULTS), ["RadixVM adaptive     1         2,654       0.00"]);
    }

    #[test]
    fn the_demo_has_the_counts_of_two_cpus() {
        let demo = "local on RadixVM adaptive        0.064   313,278       0         2,655          0";
        assert!(unknown(demo, RESULTS).is_empty());
        for bad in [demo.replace("2,655", "2,700"), demo.replace("    0", "    1")] {
            assert_eq!(unknown(&bad, RESULTS).len(), 1, "{bad}");
        }
    }
}
