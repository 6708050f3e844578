//! The literals of a source file: messages, help texts, the words of tables.

use super::paragraphs::{Paragraph, numbered_paragraphs};

/// The rooms whose literals are shown to users.
const ROOMS: [&str; 3] = ["cli/src/", "lab/src/", "xtask/src/"];

/// Returns whether the literals of this file are checked.
pub fn are_checked(name: &str) -> bool {
    ROOMS.iter().any(|room| name.starts_with(room)) && name.ends_with(".rs") && !name.ends_with("_tests.rs")
}

/// Returns the paragraphs of the literals of Rust source, without those of the tests at its end.
pub fn of_literals(text: &str) -> Vec<Paragraph> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    literals(code).into_iter().flat_map(|(line, literal)| paragraphs(line, literal)).collect()
}

/// Returns the paragraphs of the literal that begins in this line.
fn paragraphs(line: usize, literal: &str) -> Vec<Paragraph> {
    let lines: Vec<_> = literal
        .lines()
        .map(|text| text.trim_end_matches('\\').replace("\\n", " ").replace('\\', ""))
        .collect();
    numbered_paragraphs(lines.iter().enumerate().map(|(at, text)| (line + at, text.as_str())))
}

/// Returns the contents of the literals with the lines in which they begin.
fn literals(code: &str) -> Vec<(usize, &str)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        let (length, literal) = token(rest);
        if let Some(literal) = literal {
            let line = 1 + code[..at].matches('\n').count();
            found.push((line, literal));
        }
        at += length;
    }
    found
}

/// Returns the length of the first token of `code`, and its contents if it is a literal. All that is neither a
/// literal nor a comment is taken apart into words and characters.
fn token(code: &str) -> (usize, Option<&str>) {
    let upto = |end: &str| code.find(end).map_or(code.len(), |at| at + end.len());
    let first = code.chars().next().map_or(1, char::len_utf8);
    if code.starts_with("//") {
        return (upto("\n"), None);
    }
    if code.starts_with("/*") {
        return (upto("*/"), None);
    }
    if let Some(hashes) = raw(code) {
        return between(code, hashes + 2, &format!("\"{}", "#".repeat(hashes)));
    }
    match code.as_bytes()[0] {
        b'"' => between(code, 1, "\""),
        b'\'' => (character(code).unwrap_or(1), None),
        _ => (word(code).max(first), None),
    }
}

/// Returns the length of the word at the start of `code`.
fn word(code: &str) -> usize {
    code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len())
}

/// Returns the number of `#` of the raw literal at the start of `code`, if there is one.
fn raw(code: &str) -> Option<usize> {
    let rest = code.strip_prefix('r')?;
    let literal = rest.trim_start_matches('#');
    literal.starts_with('"').then_some(rest.len() - literal.len())
}

/// Returns the length of a literal whose contents start at `start` and end before `end`, and the contents. A
/// quotation mark after a backslash ends nothing.
fn between<'t>(code: &'t str, start: usize, end: &str) -> (usize, Option<&'t str>) {
    let is_raw = start > 1;
    let backslashes = |at: usize| at - code[..at].trim_end_matches('\\').len();
    let mut ends = code[start..].match_indices(end).map(|(at, _)| start + at);
    let end_at = ends.find(|&at| is_raw || backslashes(at).is_multiple_of(2)).unwrap_or(code.len());
    ((end_at + end.len()).min(code.len()), code.get(start..end_at))
}

/// Returns the length of a literal of one character, or `None` for a lifetime.
fn character(code: &str) -> Option<usize> {
    let rest = &code[1..];
    let skipped = if rest.starts_with('\\') { 2 } else { rest.chars().next()?.len_utf8() };
    let end = 1 + skipped + rest.get(skipped..)?.find('\'')?;
    (rest.starts_with('\\') || end == 1 + skipped).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_have_lines() {
        let code = "fn f<'a>() { g(\"one\"); // \"no\"\n h('\"', '\\'', \"two \\\"q\\\" \\\n  lines\"); r#\"ra\"w\"# }\n";
        let expected = [(1, "one"), (2, "two \\\"q\\\" \\\n  lines"), (3, "ra\"w")];
        assert_eq!(literals(code), expected);
    }

    #[test]
    fn a_word_is_found_in_a_message_and_not_in_a_test() {
        let code =
            "bail!(\"it is \\\n for nobody\");\n\n#[cfg(test)]\nmod tests { const X: &str = \"nobody\"; }\n";
        let faults: Vec<_> = of_literals(code).iter().flat_map(Paragraph::faults).collect();
        assert_eq!(faults.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn only_what_users_see_is_checked() {
        assert!(are_checked("cli/src/main.rs") && are_checked("lab/src/main.rs"));
        assert!(!are_checked("cli/tests/guest/meter.rs") && !are_checked("cli/src/meter/model_tests.rs"));
    }
}
