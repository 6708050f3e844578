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
    page.lines().filter(lacks).collect()
}

/// Returns whether a line is a row of a table of `radixvm contend`, whose last column is as in `1.0x`.
fn is_count(line: &str) -> bool {
    (line.starts_with("RadixVM ") || line.starts_with("stock Linux ")) && line.ends_with('x')
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = "RadixVM adaptive     1         2,655       0.00  1.0x\n\
        RadixVM adaptive     2         2,655       0.00  2.0x\n";

    #[test]
    fn rows_of_the_results_are_known_and_others_are_named() {
        let good = "RadixVM is text.\nRadixVM adaptive     1         2,655       0.00  1.0x\n";
        assert!(unknown(good, RESULTS).is_empty());
        let bad = good.replace("2,655", "2,654");
        assert_eq!(unknown(&bad, RESULTS), ["RadixVM adaptive     1         2,654       0.00  1.0x"]);
    }
}
