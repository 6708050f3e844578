//! Counts tests by the output of their runners.

use std::fmt;
use std::ops::AddAssign;
use std::path::PathBuf;

/// Number of tests by result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passed.
    pub passed: u64,
    /// Failed, or could not even be built.
    pub failed: u64,
    /// Skipped, with a reason printed.
    pub skipped: u64,
    /// Files with the output of failed tests.
    pub logs: Vec<PathBuf>,
}

impl Tally {
    /// Returns the tally of one test.
    pub fn one(good: bool) -> Self {
        Tally { passed: good.into(), failed: (!good).into(), ..Tally::default() }
    }

    /// Returns the tally of a suite that cannot run here.
    pub fn skip() -> Self {
        Tally { skipped: 1, ..Tally::default() }
    }

    /// Returns whether no test was found at all.
    pub fn is_empty(&self) -> bool {
        self.passed + self.failed + self.skipped == 0
    }

    /// Counts a line of output, if it is the closing line of a test binary:
    /// `test result: ok. 12 passed; 0 failed; 1 ignored; ...`.
    pub fn hear(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        self.passed += number_before(counts, "passed");
        self.failed += number_before(counts, "failed");
        self.skipped += number_before(counts, "ignored");
    }
}

fn number_before(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text.split_whitespace().collect();
    let pair = words.windows(2).find(|pair| pair[1].trim_end_matches(';') == word);
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.logs.extend(other.logs);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 { write!(f, ", {} skipped", self.skipped) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_add_up_and_others_do_not_count() {
        let mut tally = Tally::default();
        tally.hear(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        );
        tally.hear(
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 5 filtered out; finished in 1s",
        );
        tally.hear("test something ... ok");
        assert_eq!(tally, Tally { passed: 15, failed: 2, skipped: 1, logs: Vec::new() });
        assert_eq!(tally.to_string(), "15 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn skipped_is_said_only_if_something_was() {
        let mut tally = Tally::one(true);
        tally += Tally::one(false);
        assert_eq!(tally.to_string(), "1 passed, 1 failed");
        tally += Tally::skip();
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 1 skipped");
    }
}
