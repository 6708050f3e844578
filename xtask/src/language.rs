//! Checks the language of comments, pages and messages: the length of comment lines, words that we replaced
//! by standard ones, the share of semicolons, and the glossary.

mod glossary;
mod messages;
mod paragraphs;
mod semicolons;
mod words;

use std::fs;

use anyhow::Result;

use crate::shell::tracked;
use paragraphs::{Paragraph, of_c, of_page, of_rust};
use semicolons::Semicolons;

/// Pages about the past, which may name things that are gone.
const HISTORY: [&str; 2] = ["docs/history/", "CHANGELOG.md"];
/// The sources of this check, which quote the words.
const QUOTES: &str = "xtask/src/language/";

/// Returns whether all comments, pages and messages follow the rules, and prints the lines that do not.
pub fn check() -> Result<bool> {
    let mut faults = glossary::faults()?;
    let mut semicolons = Semicolons::default();
    for path in tracked(&["*.rs", "*.c", "*.h", "*.md"])? {
        let name = path.strip_prefix(crate::root()).unwrap_or(&path).to_string_lossy().into_owned();
        if name.starts_with(QUOTES) {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let is_history = HISTORY.iter().any(|old| name.starts_with(old));
        let mut found = if is_history { Vec::new() } else { words::old_names(&text) };
        let paragraphs = paragraphs(&name, &text);
        found.extend(sentences_and_columns(&name, &text, &paragraphs));
        if messages::are_checked(&name) {
            found.extend(messages::of_literals(&text).iter().flat_map(Paragraph::faults));
        }
        if !name.ends_with(".md") {
            semicolons.add(&name, &paragraphs);
        }
        faults.extend(found.into_iter().map(|(line, fault)| format!("{name}:{line}: {fault}")));
    }
    faults.extend(semicolons.faults());
    faults.iter().for_each(|fault| println!("{fault}"));
    Ok(faults.is_empty())
}

/// Returns the paragraphs of a page, or of the comments of a source file.
fn paragraphs(name: &str, text: &str) -> Vec<Paragraph> {
    match name.rsplit('.').next() {
        Some("rs") => of_rust(text),
        Some("md") => of_page(text),
        _ => of_c(text),
    }
}

/// Returns the faults of a file's paragraphs, with their lines. Lines of pages may have any length.
fn sentences_and_columns(name: &str, text: &str, paragraphs: &[Paragraph]) -> Vec<(usize, String)> {
    let lines: Vec<_> = if name.ends_with(".md") { Vec::new() } else { text.lines().collect() };
    let faults = paragraphs.iter().flat_map(|paragraph| [paragraph.long_lines(&lines), paragraph.faults()]);
    faults.flatten().collect()
}
