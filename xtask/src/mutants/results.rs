//! The results so far, kept in a file of lines with tabs: the state of the source, the models' times, the
//! mutants' outcomes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::shell::target_dir;

/// The outcome of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This model failed.
    KilledBy(String),
    /// This model did not end.
    TimedOut(String),
    Survived,
    /// The mutant does not build.
    Unbuilt,
    /// Loom treats the two orderings as the same.
    Unseen,
}

impl Outcome {
    fn words(&self) -> (&'static str, &str) {
        match self {
            Outcome::KilledBy(model) => ("killed", model),
            Outcome::TimedOut(model) => ("timeout", model),
            Outcome::Survived => ("SURVIVED", ""),
            Outcome::Unbuilt => ("unbuilt", ""),
            Outcome::Unseen => ("unseen", ""),
        }
    }

    fn parse(kind: &str, model: &str) -> Option<Self> {
        let all = [
            Outcome::KilledBy(model.to_owned()),
            Outcome::TimedOut(model.to_owned()),
            Outcome::Survived,
            Outcome::Unbuilt,
            Outcome::Unseen,
        ];
        all.into_iter().find(|outcome| outcome.words().0 == kind)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, model) = self.words();
        f.write_str(format!("{kind} {model}").trim_end())
    }
}

/// The results of a crate.
pub struct Results {
    file: PathBuf,
    digest: String,
    times: BTreeMap<String, Duration>,
    outcomes: BTreeMap<String, Outcome>,
}

impl Results {
    /// Reads the results so far of the mutants `name`, such as `logic-vm`, if the source was in the state
    /// `digest` then.
    pub fn open(name: &str, digest: String) -> Result<Self> {
        let file = target_dir("mutants").join(format!("{name}.tsv"));
        let text = fs::read_to_string(&file).unwrap_or_default();
        let mut results = Results { file, digest, times: BTreeMap::new(), outcomes: BTreeMap::new() };
        results.read(&text);
        Ok(results)
    }

    fn read(&mut self, text: &str) {
        let mut lines = text.lines();
        if lines.next() != Some(&self.head()) {
            return;
        }
        for line in lines {
            if let Some(model) = line.strip_prefix("model\t") {
                let (name, time) = model.split_once('\t').unwrap_or_default();
                self.times.insert(name.to_owned(), Duration::from_millis(time.parse().unwrap_or(0)));
            } else if let [model, kind, key] = line.rsplitn(3, '\t').collect::<Vec<_>>()[..]
                && let Some(outcome) = Outcome::parse(kind, model)
            {
                self.outcomes.insert(key.to_owned(), outcome);
            }
        }
    }

    fn head(&self) -> String {
        format!("source\t{}", self.digest)
    }

    fn text(&self) -> String {
        let mut text = self.head() + "\n";
        for (model, time) in &self.times {
            text += &format!("model\t{model}\t{}\n", time.as_millis());
        }
        for (key, outcome) in &self.outcomes {
            let (kind, model) = outcome.words();
            text += &format!("{key}\t{kind}\t{model}\n");
        }
        text
    }

    /// Returns the time of the model without a mutant, if it was run.
    pub fn time_of(&self, model: &str) -> Option<Duration> {
        self.times.get(model).copied()
    }

    pub fn record_time(&mut self, model: &str, time: Duration) -> Result<()> {
        self.times.insert(model.to_owned(), time);
        Ok(fs::write(&self.file, self.text())?)
    }

    /// Returns the outcome of the mutant, if it was run.
    pub fn outcome(&self, mutant: &str) -> Option<&Outcome> {
        self.outcomes.get(mutant)
    }

    pub fn record(&mut self, mutant: &str, outcome: Outcome) -> Result<()> {
        self.outcomes.insert(mutant.to_owned(), outcome);
        Ok(fs::write(&self.file, self.text())?)
    }

    /// Returns the number of these mutants by outcome.
    pub fn summary(&self, mutants: impl Iterator<Item: AsRef<str>>) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for mutant in mutants {
            *counts
                .entry(self.outcome(mutant.as_ref()).map_or("not run", |outcome| outcome.words().0))
                .or_default() += 1;
        }
        let parts: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(digest: &str) -> Results {
        Results {
            file: PathBuf::new(),
            digest: digest.to_owned(),
            times: BTreeMap::new(),
            outcomes: BTreeMap::new(),
        }
    }

    #[test]
    fn results_are_read_again_for_the_same_source_only() {
        let mut results = empty("1");
        results.times.insert("a::model".to_owned(), Duration::from_millis(12));
        results.outcomes.insert("f.rs\t1\t2\tload\tAcquire\tRelaxed".to_owned(), Outcome::Survived);
        let killed = Outcome::KilledBy("a::model".to_owned());
        results.outcomes.insert("f.rs\t2\t2\tload\tAcquire\tRelaxed".to_owned(), killed);
        let text = results.text();
        let mut again = empty("1");
        again.read(&text);
        assert_eq!((again.times, again.outcomes), (results.times, results.outcomes));
        let mut other = empty("2");
        other.read(&text);
        assert!(other.outcomes.is_empty());
    }
}
