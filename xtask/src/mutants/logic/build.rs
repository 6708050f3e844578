//! Builds a crate with all its mutants behind switches, and the tests that judge them. Leaves out the mutants
//! that do not build.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Target;
use super::listing::Mutant;
use super::switches::{MODULE, Switched};
use crate::mutants::models;
use crate::mutants::tree::Tree;
use crate::root;

/// Flags for rustc: mutants leave variables unused and code unreachable.
const FLAGS: &str = "--cap-lints=warn -Awarnings";
/// Errors of the compiler that a value has not the type that its function returns, or that there is no such
/// value. They depend on nothing around the value, so a build without switches has them as well.
const NO_VALUE: [&str; 8] = ["E0061", "E0277", "E0282", "E0283", "E0308", "E0425", "E0433", "E0599"];
/// The largest number of builds until no mutant is in the way.
const ROUNDS: usize = 60;

/// A program with tests.
#[derive(Clone, Debug)]
pub struct Binary {
    pub path: PathBuf,
    /// The folder in which cargo runs it.
    pub folder: PathBuf,
}

/// The binaries, or the compiler's messages.
type Outcome = Result<Vec<Binary>, Vec<Value>>;

/// The tests that judge the mutants.
#[derive(Clone, Copy)]
pub enum Kind {
    /// The tests without loom.
    Tests,
    /// The crate's loom models.
    Models,
}

/// Builds a crate in the copy of the repository.
pub struct Builder<'a> {
    tree: &'a Tree,
    target: &'a Target,
    /// The texts of the files with mutants, and of the crate's root, without a change.
    texts: BTreeMap<PathBuf, String>,
    /// The texts of the roots of the tests, without a change. A test may include files of the crate.
    test_roots: BTreeMap<PathBuf, String>,
}

/// A crate that is built with switches.
pub struct Built {
    /// The mutants behind switches.
    pub switched: BTreeSet<u32>,
    /// The mutants that build neither with switches nor without.
    pub unbuilt: BTreeSet<u32>,
    pub binaries: Vec<Binary>,
}

/// An error of the compiler.
struct Complaint {
    text: String,
    code: String,
    /// The files and their bytes that it is about.
    places: Vec<(PathBuf, Range<usize>)>,
}

/// The places that get no switches.
#[derive(Default, PartialEq)]
struct Unfit {
    mutants: BTreeSet<u32>,
    /// Those of `mutants` that do not build without switches either.
    unbuilt: BTreeSet<u32>,
    /// The functions that must stay `const`.
    functions: BTreeSet<String>,
}

impl<'a> Builder<'a> {
    pub fn new(tree: &'a Tree, target: &'a Target, mutants: &[Mutant]) -> Result<Self> {
        let files = mutants.iter().map(|mutant| mutant.file.clone()).chain([target.root_file()]);
        let read = |file: PathBuf| Ok((file.clone(), fs::read_to_string(root().join(file))?));
        Ok(Builder {
            tree,
            target,
            texts: files.collect::<BTreeSet<_>>().into_iter().map(read).collect::<Result<_>>()?,
            test_roots: target.test_roots().into_iter().map(read).collect::<Result<_>>()?,
        })
    }

    /// Returns the texts of the files with mutants.
    pub fn texts(&self) -> &BTreeMap<PathBuf, String> {
        &self.texts
    }

    /// Builds the mutants that build, behind switches.
    pub fn build_all(&self, kind: Kind, mutants: &[Mutant]) -> Result<Built> {
        // A function that returns `impl Trait` returns one type, so a value behind a switch must have it too.
        let value = |mutant: &&Mutant| mutant.genre == "FnValue" && !mutant.name.contains("-> impl ");
        let values = mutants.iter().filter(value).map(|mutant| mutant.id).collect();
        let mut unfit = Unfit::default();
        for round in 1..=ROUNDS {
            let files = self.write_switched(mutants, &unfit)?;
            let messages = match self.build(kind)? {
                Ok(binaries) => {
                    let switched = files.values().flat_map(Switched::mutants).collect();
                    return Ok(Built { switched, unbuilt: unfit.unbuilt, binaries });
                }
                Err(messages) => messages,
            };
            let complaints: Vec<Complaint> = messages.iter().filter_map(Complaint::read).collect();
            let before = (unfit.mutants.len(), unfit.functions.len());
            complaints.iter().for_each(|complaint| unfit.add(complaint, &files, &values));
            println!(
                "build {round}: {} errors, {} mutants are left out",
                complaints.len(),
                unfit.mutants.len()
            );
            if before == (unfit.mutants.len(), unfit.functions.len()) {
                bail!("no mutant is the cause: {}", complaints.first().map_or("", |first| &first.text));
            }
        }
        bail!("the mutants do not build after {ROUNDS} tries")
    }

    /// Builds one mutant, without switches. Returns none if it does not build.
    pub fn build_one(&self, kind: Kind, mutant: &Mutant) -> Result<Option<Vec<Binary>>> {
        for (file, text) in self.texts.iter().chain(&self.test_roots) {
            self.tree.write(file, text.as_bytes())?;
        }
        let original = &self.texts[&mutant.file];
        let _mutated = self.tree.replace(&mutant.file, original, &mutant.applied_to(original))?;
        Ok(self.build(kind)?.ok())
    }

    fn write_switched(&self, mutants: &[Mutant], unfit: &Unfit) -> Result<BTreeMap<&Path, Switched>> {
        let mut files = BTreeMap::new();
        for (file, text) in &self.texts {
            let fit = |mutant: &&Mutant| mutant.file == *file && !unfit.mutants.contains(&mutant.id);
            let mutants: Vec<&Mutant> = mutants.iter().filter(fit).collect();
            let switched = Switched::new(text, &mutants, &unfit.functions)
                .with_context(|| file.display().to_string())?;
            let module = if *file == self.target.root_file() { MODULE } else { "" };
            self.tree.write(file, (switched.text.clone() + module).as_bytes())?;
            files.insert(file.as_path(), switched);
        }
        for (file, text) in &self.test_roots {
            self.tree.write(file, (text.clone() + MODULE).as_bytes())?;
        }
        Ok(files)
    }

    /// Builds the crate and what judges it. The models have a binary for each of their configurations.
    fn build(&self, kind: Kind) -> Result<Outcome> {
        match kind {
            Kind::Tests => self.build_in("", &self.target.words_for_tests()),
            Kind::Models => self.build_models(),
        }
    }

    fn build_models(&self) -> Result<Outcome> {
        let mut binaries = Vec::new();
        for configuration in models::configurations(self.target.name) {
            match self.build_in(configuration, &models::build_words(self.target.name))? {
                Ok(more) => binaries.extend(more),
                failed @ Err(_) => return Ok(failed),
            }
        }
        Ok(Ok(binaries))
    }

    /// Builds the crate in a configuration, and then with these words for cargo.
    fn build_in(&self, configuration: &str, words: &str) -> Result<Outcome> {
        match self.cargo(configuration, &format!("check --package radixvm-{}", self.target.name))? {
            Ok(_) => self.cargo(configuration, words),
            failed @ Err(_) => Ok(failed),
        }
    }

    fn cargo(&self, configuration: &str, words: &str) -> Result<Outcome> {
        let mut command = self.tree.cargo(words, format!("{FLAGS} {configuration}").trim_end());
        command.args(["--locked", "--quiet", "--message-format=json"]);
        // The tests run often, and are built once.
        command.envs([("CARGO_PROFILE_TEST_OPT_LEVEL", "1"), ("CARGO_PROFILE_DEV_OPT_LEVEL", "1")]);
        command.envs([("CARGO_PROFILE_TEST_DEBUG", "0"), ("CARGO_PROFILE_DEV_DEBUG", "0")]);
        let output = command.output().context("cannot run cargo")?;
        let lines = output.stdout.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"{"));
        let messages: Vec<Value> = lines.map(serde_json::from_slice).collect::<Result<_, _>>()?;
        if output.status.success() {
            return Ok(Ok(messages.iter().filter_map(Binary::read).collect()));
        }
        ensure!(!messages.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(Err(messages))
    }
}

impl Binary {
    /// Returns the names of the package's folder and of the binary, without its number.
    pub fn stem(&self) -> String {
        let name =
            |path: &Path| path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
        let binary = name(&self.path);
        let binary = binary.rsplit_once('-').map_or(&*binary, |(stem, _)| stem);
        format!("{}/{binary}", name(&self.folder))
    }

    /// Reads a message of cargo about a binary.
    fn read(message: &Value) -> Option<Self> {
        let path = message["executable"].as_str()?.into();
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        Some(Binary { path, folder })
    }
}

impl Complaint {
    /// Reads a message of cargo about an error.
    fn read(message: &Value) -> Option<Self> {
        let error = message.get("message").filter(|error| error["level"] == "error")?;
        let text = error["rendered"].as_str()?.to_owned();
        let code = error["code"]["code"].as_str().unwrap_or_default().to_owned();
        let mut spans: Vec<&Value> = error["spans"].as_array()?.iter().collect();
        spans.sort_by_key(|span| span["is_primary"] != true);
        let number = |span: &Value, key| usize::try_from(span[key].as_u64()?).ok();
        let place = |span: &&Value| {
            let bytes = number(span, "byte_start")?..number(span, "byte_end")?;
            Some((PathBuf::from(span["file_name"].as_str()?), bytes))
        };
        let places: Vec<_> = spans.iter().filter_map(place).collect();
        (!places.is_empty()).then_some(Complaint { text, code, places })
    }

    fn is_about_a_value(&self) -> bool {
        NO_VALUE.contains(&&*self.code)
    }

    /// Returns the name of the function that had to be `const`, if that is the error.
    fn constant_function(&self) -> Option<&str> {
        let (_, rest) = self.text.lines().next()?.split_once("cannot call non-const ")?;
        let path = rest.split('`').nth(1)?;
        path.rsplit("::").next()
    }
}

impl Unfit {
    /// Adds the mutants of the place of an error, or the function that must stay `const`. `values` are the
    /// mutants that return another value.
    fn add(&mut self, complaint: &Complaint, files: &BTreeMap<&Path, Switched>, values: &BTreeSet<u32>) {
        if let Some(name) = complaint.constant_function().filter(|name| *name != "is") {
            self.functions.insert(name.to_owned());
            return;
        }
        let mutants = |(file, bytes): &(PathBuf, Range<usize>)| {
            files.get(file.as_path()).map_or(&[][..], |file| file.mutants_at(bytes))
        };
        if let Some(found) = complaint.places.iter().map(mutants).find(|found| !found.is_empty()) {
            self.mutants.extend(found);
            if let [mutant] = found
                && values.contains(mutant)
                && complaint.is_about_a_value()
            {
                self.unbuilt.insert(*mutant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_places_and_the_function_that_must_be_const() {
        let text = r#"{"message": {"level": "error", "code": {"code": "E0015"}, "rendered": "error[E0015]: cannot call non-const function `a::b` in constants",
            "spans": [{"file_name": "x.rs", "byte_start": 1, "byte_end": 2, "is_primary": false},
                      {"file_name": "y.rs", "byte_start": 3, "byte_end": 4, "is_primary": true}]}}"#;
        let complaint = Complaint::read(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(complaint.constant_function(), Some("b"));
        assert!(!complaint.is_about_a_value());
        assert_eq!(complaint.places, [("y.rs".into(), 3..4), ("x.rs".into(), 1..2)]);
    }
}
