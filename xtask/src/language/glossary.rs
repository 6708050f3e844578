//! The glossary: few terms, and a link to each term's page.

use std::fs;

use anyhow::Result;

use crate::root;
use crate::shell::tracked;

const PAGE: &str = "docs/glossary.md";
/// The largest number of terms.
const TERMS: usize = 40;

/// Returns the faults of the glossary.
pub fn faults() -> Result<Vec<String>> {
    let text = fs::read_to_string(root().join(PAGE))?;
    let pages = tracked(&["docs/design/*.md", "docs/guide/*.md"])?;
    let stems = pages.iter().filter_map(|page| page.file_stem()?.to_str());
    let stems: Vec<_> = stems.collect();
    let mut faults: Vec<_> = terms(&text).flat_map(|term| unlinked(&term, &stems)).collect();
    let count = terms(&text).count();
    if count > TERMS {
        faults.push(format!("{PAGE}:1: {count} terms, at most {TERMS}"));
    }
    Ok(faults)
}

/// A row of the table.
struct Term<'t> {
    line: usize,
    word: &'t str,
    meaning: &'t str,
}

fn terms(text: &str) -> impl Iterator<Item = Term<'_>> {
    let rows =
        text.lines().enumerate().filter(|(_, line)| line.starts_with("| ") && !line.starts_with("| term "));
    rows.filter_map(|(at, row)| {
        let (word, meaning) = row.trim_matches(['|', ' ']).split_once(" | ")?;
        Some(Term { line: at + 1, word, meaning })
    })
}

/// Returns the fault of a term that has a page of its own, named after the term or its first word, and no link
/// to it.
fn unlinked(term: &Term<'_>, stems: &[&str]) -> Option<String> {
    let first = term.word.to_lowercase();
    let first = first.split([' ', ',']).next()?;
    let page = stems.iter().find(|stem| stem.trim_end_matches('s') == first.trim_end_matches('s'))?;
    let is_linked = term.meaning.contains(&format!("/{page}.md"));
    (!is_linked)
        .then(|| format!("{PAGE}:{}: the term \"{}\" has the page {page}.md: link it", term.line, term.word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_with_a_page_is_linked() {
        let text = "| term | meaning |\n|---|---|\n| arena | a part |\n| huge page | 2 MiB ([huge](design/huge.md)) |\n| frame | 4 KiB |\n";
        let faults: Vec<_> = terms(text).flat_map(|term| unlinked(&term, &["arenas", "huge"])).collect();
        assert_eq!(faults, ["docs/glossary.md:3: the term \"arena\" has the page arenas.md: link it"]);
    }
}
