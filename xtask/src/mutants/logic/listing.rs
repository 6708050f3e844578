//! The mutants of a crate, as cargo-mutants lists them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::root;

/// A place in a file: line and column, both from 1.
pub type Place = (usize, usize);

/// A change of the logic at one place.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Number in the list, from 1.
    pub id: u32,
    /// Path from the repository's root.
    pub file: PathBuf,
    /// The place and the change, in words. No other mutant of the crate has the same.
    pub name: String,
    /// The kind of change, such as `BinaryOperator`.
    pub genre: String,
    /// The text that replaces the one from `start` to `end`.
    pub replacement: String,
    pub start: Place,
    pub end: Place,
}

impl Mutant {
    fn read(id: u32, entry: &Value) -> Option<Self> {
        let text = |key: &str| entry[key].as_str().map(str::to_owned);
        let place = |end: &str| {
            let number =
                |key| entry["span"][end][key].as_u64().and_then(|number| usize::try_from(number).ok());
            Some((number("line")?, number("column")?))
        };
        Some(Mutant {
            id,
            file: text("file")?.into(),
            name: text("name")?,
            genre: text("genre")?,
            replacement: text("replacement")?,
            start: place("start")?,
            end: place("end")?,
        })
    }

    /// Returns `text`, which is the whole file, with the change.
    pub fn applied_to(&self, text: &str) -> String {
        let mut mutated = text.to_owned();
        mutated.replace_range(offset(text, self.start)..offset(text, self.end), &self.replacement);
        mutated
    }
}

/// Returns the byte at a place of the text.
fn offset(text: &str, (line, column): Place) -> usize {
    let lines: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let rest = &text[lines..];
    lines + rest.char_indices().nth(column - 1).map_or(rest.len(), |(at, _)| at)
}

/// Lists the mutants of a package.
pub fn mutants_of(package: &str) -> Result<Vec<Mutant>> {
    let mut command = Command::new("cargo");
    command.current_dir(root()).args(["mutants", "--list", "--json", "--package", package]);
    let output = command.output().context("cannot run cargo mutants")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let entries: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let mutants = (1..).zip(&entries).map(|(id, entry)| Mutant::read(id, entry));
    mutants.collect::<Option<_>>().context("cargo mutants lists a mutant in a form that is not known here")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_replaces_the_text_between_two_places() {
        let mutant = Mutant {
            id: 1,
            file: PathBuf::new(),
            name: String::new(),
            genre: String::new(),
            replacement: "-".to_owned(),
            start: (2, 5),
            end: (2, 6),
        };
        assert_eq!(mutant.applied_to("fn f() {\n  ä + b\n}\n"), "fn f() {\n  ä - b\n}\n");
    }
}
