//! Finds the orderings in a crate's source, and how each of them can be weakened.
//!
//! The source is read as tokens, so that comments and strings do not count and the bodies of macros do. An
//! ordering is written `Ordering::NAME`. The call around it, and its position among the arguments, determine
//! the access that it orders.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// The folder of a binary beside a library, which no model builds.
const BINARY: &str = "src/runtime";

/// The access that an ordering orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// A load, or a compare-and-swap that fails.
    Load,
    Store,
    /// A read-modify-write, or a function of the crate's own that takes an ordering.
    Change,
    Fence,
}

impl Access {
    /// Returns the access that the `argument`th argument of a call of `function` orders.
    fn of(function: &str, argument: usize) -> Self {
        match (function, argument) {
            ("load", _) | ("compare_exchange" | "compare_exchange_weak", 3) | ("fetch_update", 1) => {
                Access::Load
            }
            ("store", _) => Access::Store,
            ("fence", _) => Access::Fence,
            _ => Access::Change,
        }
    }

    /// Returns the orderings that are one step weaker. A fence may not be Relaxed, so its weakest mutant has
    /// no ordering at all.
    fn weaker_than(self, ordering: &str) -> &'static [&'static str] {
        match (ordering, self) {
            ("SeqCst", Access::Load) => &["Acquire"],
            ("SeqCst", Access::Store) => &["Release"],
            ("SeqCst", Access::Change | Access::Fence) => &["AcqRel"],
            ("AcqRel", _) => &["Acquire", "Release"],
            ("Acquire" | "Release", Access::Fence) => &["removed"],
            ("Acquire" | "Release", _) => &["Relaxed"],
            _ => &[],
        }
    }
}

/// A weakened ordering.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// The function whose argument the ordering is.
    pub function: String,
    pub before: String,
    pub after: &'static str,
    access: Access,
    /// The bytes of the file that change.
    range: Range<usize>,
}

impl Mutant {
    /// Returns whether loom distinguishes the two orderings. It treats SeqCst accesses as AcqRel, but not
    /// SeqCst fences.
    pub fn is_seen_by_loom(&self) -> bool {
        self.before != "SeqCst" || self.access == Access::Fence
    }

    /// Returns the file's text with this mutation.
    pub fn applied_to(&self, text: &str) -> String {
        let replacement = if self.after == "removed" { "()" } else { self.after };
        let mut mutated = text.to_owned();
        mutated.replace_range(self.range.clone(), replacement);
        mutated
    }

    fn file_name(&self) -> String {
        let path = self.file.to_string_lossy();
        path.rsplit_once("/src/").map_or(path.as_ref(), |(_, name)| name).to_owned()
    }

    /// Returns a key that distinguishes this mutant from the others of its crate.
    pub fn key(&self) -> String {
        let Self { line, column, function, before, after, .. } = self;
        [&self.file_name(), &line.to_string(), &column.to_string(), function, before, *after].join("\t")
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, function, before, after, .. } = self;
        write!(f, "{}:{line}:{column} {function} {before} -> {after}", self.file_name())
    }
}

/// All orderings of a crate.
#[derive(Default)]
pub struct Sites {
    /// The text of each file.
    pub texts: BTreeMap<PathBuf, String>,
    /// Number of orderings.
    pub count: usize,
    /// Number of Relaxed orderings, which cannot be weakened.
    pub relaxed: usize,
    pub mutants: Vec<Mutant>,
}

impl Sites {
    /// Finds the orderings in the files under `folder`, but for those of a binary.
    pub fn of(folder: &Path) -> Result<Self> {
        let mut sites = Sites::default();
        sites.read(folder)?;
        for (file, text) in &sites.texts.clone() {
            sites.scan(file, text)?;
        }
        Ok(sites)
    }

    fn read(&mut self, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                if !path.ends_with(BINARY) {
                    self.read(&path)?;
                }
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(&path)?;
                self.texts.insert(path, text);
            }
        }
        Ok(())
    }

    fn scan(&mut self, file: &Path, text: &str) -> Result<()> {
        let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{}: {error}", file.display()))?;
        self.walk(file, tokens, None);
        Ok(())
    }

    /// Searches the tokens of a file or a group. `call` is the function whose arguments they are.
    fn walk(&mut self, file: &Path, tokens: TokenStream, call: Option<&Ident>) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut argument = 0;
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == ',' => argument += 1,
                TokenTree::Ident(name) if follows_path(&tokens[..at], "Ordering") => {
                    self.add(file, name, call, argument);
                }
                TokenTree::Group(group) if !is_test_module(&tokens[..at]) => {
                    self.walk(file, group.stream(), called(&tokens[..at], group));
                }
                _ => {}
            }
        }
    }

    /// Adds the ordering `name`, unless the word after `Ordering::` is none.
    fn add(&mut self, file: &Path, name: &Ident, call: Option<&Ident>, argument: usize) {
        let before = name.to_string();
        if !["SeqCst", "AcqRel", "Acquire", "Release", "Relaxed"].contains(&before.as_str()) {
            return;
        }
        self.count += 1;
        self.relaxed += usize::from(before == "Relaxed");
        let function = call.map_or(String::new(), Ident::to_string);
        let access = Access::of(&function, argument);
        let start = name.span().start();
        for &after in access.weaker_than(&before) {
            let range = match (after, call) {
                ("removed", Some(fence)) => fence.span().byte_range().start..name.span().byte_range().end + 1,
                _ => name.span().byte_range(),
            };
            self.mutants.push(Mutant {
                file: file.to_owned(),
                line: start.line,
                column: start.column + 1,
                function: function.clone(),
                before: before.clone(),
                after,
                access,
                range,
            });
        }
    }
}

/// Returns whether the tokens end with `name::`.
fn follows_path(tokens: &[TokenTree], name: &str) -> bool {
    let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ':');
    match tokens {
        [.., TokenTree::Ident(before), first, second] => {
            before == name && is_colon(first) && is_colon(second)
        }
        _ => false,
    }
}

/// Returns the function that is called with `group`, which comes after the tokens.
fn called<'a>(tokens: &'a [TokenTree], group: &Group) -> Option<&'a Ident> {
    match tokens.last() {
        Some(TokenTree::Ident(name)) if group.delimiter() == Delimiter::Parenthesis => Some(name),
        _ => None,
    }
}

/// Returns whether the tokens end with `mod tests`.
fn is_test_module(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [.., TokenTree::Ident(word), TokenTree::Ident(name)] if word == "mod" && name == "tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants_of(text: &str) -> (Sites, Vec<String>) {
        let mut sites = Sites::default();
        sites.scan(Path::new("a.rs"), text).unwrap();
        let shown = sites.mutants.iter().map(Mutant::to_string).collect();
        (sites, shown)
    }

    #[test]
    fn each_access_has_its_own_weaker_orderings() {
        let text = "fn f() {\n word.load(Ordering::SeqCst);\n word.store(1, Ordering::SeqCst);\n \
                    word.swap(1, Ordering::SeqCst);\n word.fetch_or(1, Ordering::AcqRel);\n fence(Ordering::SeqCst);\n}";
        let (sites, shown) = mutants_of(text);
        assert_eq!(
            shown,
            [
                "a.rs:2:22 load SeqCst -> Acquire",
                "a.rs:3:26 store SeqCst -> Release",
                "a.rs:4:25 swap SeqCst -> AcqRel",
                "a.rs:5:29 fetch_or AcqRel -> Acquire",
                "a.rs:5:29 fetch_or AcqRel -> Release",
                "a.rs:6:18 fence SeqCst -> AcqRel",
            ]
        );
        assert_eq!((sites.count, sites.relaxed), (5, 0));
        let seen: Vec<bool> = sites.mutants.iter().map(Mutant::is_seen_by_loom).collect();
        assert_eq!(seen, [false, false, false, true, true, true]);
    }

    #[test]
    fn both_orderings_of_a_compare_and_swap_are_weakened() {
        let text = "w.compare_exchange(a, f(b, c), Ordering::AcqRel, Ordering::Acquire)";
        assert_eq!(
            mutants_of(text).1,
            [
                "a.rs:1:42 compare_exchange AcqRel -> Acquire",
                "a.rs:1:42 compare_exchange AcqRel -> Release",
                "a.rs:1:60 compare_exchange Acquire -> Relaxed",
            ]
        );
        let failed = "w.compare_exchange(a, b, Ordering::SeqCst, Ordering::SeqCst)";
        assert_eq!(mutants_of(failed).1[1], "a.rs:1:54 compare_exchange SeqCst -> Acquire");
    }

    #[test]
    fn comments_strings_tests_and_comparisons_are_left_out() {
        let text = "// load(Ordering::Acquire)\nconst S: &str = \"Ordering::Acquire\";\n\
                    fn f() { match a.cmp(b) { Ordering::Less => {} _ => load(Ordering::Relaxed) } }\n\
                    mod tests { fn g() { load(Ordering::Acquire) } }";
        let (sites, shown) = mutants_of(text);
        assert!(shown.is_empty());
        assert_eq!((sites.count, sites.relaxed), (1, 1));
    }

    #[test]
    fn the_bodies_of_macros_count() {
        assert_eq!(mutants_of("shared! { fn f() { x.load(Ordering::Acquire) } }").1.len(), 1);
    }

    #[test]
    fn a_mutation_changes_one_word() {
        let text = "/* é */ x.load(Ordering::Acquire); fence(Ordering::Release);";
        let mutated: Vec<String> =
            mutants_of(text).0.mutants.iter().map(|mutant| mutant.applied_to(text)).collect();
        assert_eq!(
            mutated,
            [
                "/* é */ x.load(Ordering::Relaxed); fence(Ordering::Release);",
                "/* é */ x.load(Ordering::Acquire); ();",
            ]
        );
    }
}
