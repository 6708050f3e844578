//! Counts tests by the output of their runners.

use std::collections::BTreeSet;
use std::fmt;
use std::mem;
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
    /// The tests of the binary that runs which have said that they are skipped.
    said: BTreeSet<String>,
    /// The test that such a line was of last.
    last: String,
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
    /// `test result: ok. 12 passed; 0 failed; 1 ignored; ...`. A test that said `skipped: NAME: why` counts
    /// as passed there, and as skipped here.
    pub fn hear(&mut self, line: &str) {
        if let Some(test) = self.skipped_test(line) {
            self.said.insert(test.clone());
            self.last = test;
        }
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        let passed = number_before(counts, "passed");
        let said = (mem::take(&mut self.said).len() as u64).min(passed);
        self.passed += passed - said;
        self.failed += number_before(counts, "failed");
        self.skipped += number_before(counts, "ignored") + said;
    }

    /// Returns the name of the test that says in a line that it is skipped. Where tests run one after the
    /// other, all are those of the main thread, and their names come before.
    fn skipped_test(&self, line: &str) -> Option<String> {
        let (before, after) = line.split_once("skipped: ")?;
        let (name, _) = after.split_once(": ")?;
        let test = before.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... "));
        match test {
            Some(test) => Some(test.to_owned()),
            None if !before.is_empty() => None,
            None if name == "main" => Some(self.last.clone()),
            None => Some(name.to_owned()),
        }
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
        assert_eq!(tally, Tally { passed: 15, failed: 2, skipped: 1, ..Tally::default() });
        assert_eq!(tally.to_string(), "15 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn tests_that_skip_themselves_have_not_passed() {
        let mut tally = Tally::default();
        let lines = [
            "skipped: programs::one: x264 is not installed here",
            "test programs::one ... ok",
            "skipped: programs::one: ffmpeg is not installed here",
            "skipped: programs::two: node is not installed here",
            "it printed skipped: something: else",
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1s",
            "test installed::one ... skipped: main: java is not installed here",
            "skipped: main: javac is not installed here",
            "ok",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s",
        ];
        lines.into_iter().for_each(|line| tally.hear(line));
        assert_eq!(tally.to_string(), "4 passed, 0 failed, 4 skipped");
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
