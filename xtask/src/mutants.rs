//! The command `cargo xtask mutants logic CRATE` is in `logic.rs`. `cargo xtask mutants orderings CRATE`
//! weakens the crate's atomic orderings one at a time, in a copy of the repository, and runs the crate's loom
//! models on each mutant until one of them fails.
//!
//! The results stay in `target/mutants/orderings-CRATE.tsv`, and the next call continues from there. They are
//! discarded when the crate's source changes.

pub mod logic;
mod models;
mod results;
mod sites;
mod tree;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use models::{Models, build_all};
use results::{Outcome, Results};
use sites::{Mutant, Sites};
use tree::Tree;

use crate::root;

/// The parsed command line.
#[derive(Default)]
struct Request<'a> {
    name: &'a str,
    /// Only the mutants of this file and line, whether they have been tried or not.
    only: Option<(&'a str, usize)>,
    /// Whether the mutants that survived are tried again.
    survivors: bool,
    /// Whether the mutants are listed, not run.
    list: bool,
}

impl<'a> Request<'a> {
    fn parse(words: &[&'a str]) -> Result<Self> {
        let (name, mut rest) = words.split_first().context("which crate?")?;
        let mut request = Request { name, ..Request::default() };
        while let Some((option, after)) = rest.split_first() {
            rest = after;
            match *option {
                "--list" => request.list = true,
                "--survivors" => request.survivors = true,
                "--only" => {
                    let (place, after) = rest.split_first().context("--only FILE:LINE")?;
                    let (file, line) = place.rsplit_once(':').context("--only FILE:LINE")?;
                    request.only = Some((file, line.parse()?));
                    rest = after;
                }
                unknown => bail!("there is no option {unknown}"),
            }
        }
        Ok(request)
    }

    /// Returns whether this mutant is to be run, after `before` was its outcome.
    fn wants(&self, mutant: &Mutant, before: Option<&Outcome>) -> bool {
        match (self.only, before) {
            (Some((file, line)), _) => mutant.file.ends_with(file) && mutant.line == line,
            (None, None) => true,
            (None, Some(outcome)) => self.survivors && *outcome == Outcome::Survived,
        }
    }
}

/// Runs what the words after `mutants orderings` ask for. Returns whether all wanted mutants were run.
pub fn orderings(words: &[&str]) -> Result<bool> {
    let request = Request::parse(words)?;
    let source = folder_of(request.name).join("src");
    let sites = Sites::of(&source).with_context(|| format!("{} cannot be read", source.display()))?;
    if request.list {
        sites.mutants.iter().for_each(|mutant| println!("{mutant}"));
    } else {
        run(&request, &sites)?;
    }
    println!("{} orderings, {} of them Relaxed; {} mutants", sites.count, sites.relaxed, sites.mutants.len());
    Ok(true)
}

/// Returns the folder of a crate, which lies under crates/ or at the root.
fn folder_of(name: &str) -> PathBuf {
    let folder = root().join("crates").join(name);
    if folder.exists() { folder } else { root().join(name) }
}

fn run(request: &Request<'_>, sites: &Sites) -> Result<()> {
    let tree = Tree::update()?;
    let mut results = Results::open(&format!("orderings-{}", request.name), digest(&sites.texts))?;
    let binaries = build_all(&tree, request.name)?.context("the models do not build")?;
    let models = Models::measure(&binaries, &mut results)?;
    for mutant in &sites.mutants {
        if request.wants(mutant, results.outcome(&mutant.key())) {
            let start = Instant::now();
            let outcome = outcome_of(mutant, request.name, sites, &tree, &models)?;
            println!("{mutant}: {outcome} ({} s)", start.elapsed().as_secs());
            results.record(&mutant.key(), outcome)?;
        }
    }
    println!("{}: {}", request.name, results.summary(sites.mutants.iter().map(Mutant::key)));
    Ok(())
}

fn outcome_of(mutant: &Mutant, name: &str, sites: &Sites, tree: &Tree, models: &Models) -> Result<Outcome> {
    if !mutant.is_seen_by_loom() {
        return Ok(Outcome::Unseen);
    }
    let original = &sites.texts[&mutant.file];
    let path = mutant.file.strip_prefix(root()).context("a file of the repository")?;
    let _mutated = tree.replace(path, original, &mutant.applied_to(original))?;
    build_all(tree, name)?.map_or(Ok(Outcome::Unbuilt), |binaries| models.judge(&binaries, 0))
}

/// Returns a hash that identifies a state of the source.
fn digest(texts: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
