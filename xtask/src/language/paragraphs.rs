//! Comments and pages as paragraphs of sentences.

use super::words::{FIRST, WORDS, position};

/// The largest number of columns of a line with a comment.
const COLUMNS: usize = 110;

/// A run of lines that belong together, as one text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Paragraph {
    text: String,
    /// The line of the file at which each line of the text begins, with its offset in the text.
    lines: Vec<(usize, usize)>,
}

impl Paragraph {
    fn push(&mut self, line: usize, text: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.lines.push((self.text.len(), line));
        self.text.push_str(text.trim());
    }

    /// Returns the line of the file at an offset of the text.
    fn line(&self, offset: usize) -> usize {
        let before = self.lines.iter().take_while(|(start, _)| *start <= offset);
        before.last().map_or(0, |(_, line)| *line)
    }

    /// Returns the lines of the file that are too long. Rows of tables and links cannot be wrapped.
    pub fn long_lines(&self, file: &[&str]) -> Vec<(usize, String)> {
        let lines = self.lines.iter().filter(|_| !self.text.starts_with('|')).map(|(_, line)| *line);
        let long = lines.filter_map(|line| {
            let text = file.get(line - 1).filter(|text| !text.contains("://") && !text.contains("]("))?;
            let columns = text.chars().count();
            (columns > COLUMNS).then(|| (line, format!("{columns} columns, at most {COLUMNS}")))
        });
        long.collect()
    }

    /// Returns the number of its sentences.
    pub fn sentences(&self) -> usize {
        sentences(&self.text).count()
    }

    /// Returns the lines of its semicolons, unless it is the row of a table.
    pub fn semicolons(&self) -> impl Iterator<Item = usize> {
        let marks = self.text.match_indices(';').filter(|_| !self.text.starts_with('|'));
        marks.map(|(at, _)| self.line(at))
    }

    /// Returns the words that have a better one, with their lines.
    pub fn faults(&self) -> Vec<(usize, String)> {
        let lower = self.text.to_lowercase();
        let words = WORDS.iter().filter_map(|(word, better)| {
            let at = position(&lower, word)?;
            Some((self.line(at), format!("the word \"{word}\" (better: {better})")))
        });
        let starts = sentences(&self.text)
            .filter(|(_, sentence)| !sentence.ends_with('?') && !sentence.starts_with('#'));
        let first = starts.filter_map(|(at, sentence)| {
            let word = sentence.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty())?;
            let (word, better) = FIRST.iter().find(|(bad, _)| *bad == word)?;
            Some((self.line(at), format!("a sentence begins with \"{word}\" ({better})")))
        });
        let mut faults: Vec<_> = words.chain(first).collect();
        faults.sort();
        faults
    }
}

/// Returns the sentences of a text with their offsets: each ends with a stop before a space.
fn sentences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let tail = text.get(rest..).filter(|tail| !tail.is_empty())?;
        let end =
            tail.match_indices([' ']).map(|(at, _)| at).find(|&at| tail[..at].ends_with(['.', '?', '!']));
        let length = end.unwrap_or(tail.len());
        let sentence = (rest, &tail[..length]);
        rest += length + usize::from(end.is_some());
        Some(sentence)
    })
}

/// Splits numbered lines into paragraphs. Empty lines, headings, items of lists and rows of tables separate them, and
/// fenced blocks belong to none.
pub fn numbered_paragraphs<'t>(lines: impl Iterator<Item = (usize, &'t str)>) -> Vec<Paragraph> {
    let (mut all, mut last, mut fenced) = (vec![Paragraph::default()], 0, false);
    for (number, line) in lines {
        let text = line.trim();
        let fence = text.starts_with("```");
        fenced ^= fence;
        let alone = text.starts_with(['#', '|']);
        if number != last + 1 || text.is_empty() || fence || alone || is_item(text) {
            all.push(Paragraph::default());
        }
        last = number;
        if !fenced
            && !fence
            && let Some(paragraph) = all.last_mut()
        {
            paragraph.push(number, text);
        }
        if alone {
            all.push(Paragraph::default());
        }
    }
    all.retain(|paragraph| !paragraph.text.is_empty());
    all
}

fn is_item(text: &str) -> bool {
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    text.starts_with("- ") || text.starts_with("* ") || number.len() < text.len() && number.starts_with(". ")
}

/// Returns the paragraphs of a Markdown page.
pub fn of_page(text: &str) -> Vec<Paragraph> {
    numbered_paragraphs(text.lines().enumerate().map(|(at, line)| (at + 1, line)))
}

/// Returns the paragraphs of the comments of Rust source.
pub fn of_rust(text: &str) -> Vec<Paragraph> {
    let numbered = text.lines().enumerate();
    numbered_paragraphs(numbered.filter_map(|(at, line)| Some((at + 1, rust_comment(line)?))))
}

/// Returns the comment of a line of Rust, without its marker.
fn rust_comment(line: &str) -> Option<&str> {
    let is_quoted = |at: usize| line[..at].replace("\\\"", "").matches('"').count() % 2 == 1;
    let (at, _) = line.match_indices("//").find(|&(at, _)| !is_quoted(at))?;
    Some(line[at + 2..].trim_start_matches(['/', '!']))
}

/// Returns the paragraphs of the comments of C source.
pub fn of_c(text: &str) -> Vec<Paragraph> {
    numbered_paragraphs(
        c_comments(text).into_iter().map(|(line, text)| (line, text.trim_matches(['*', '/', ' ']))),
    )
}

/// Returns the parts of lines of C that are comments, with their lines.
fn c_comments(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut inside) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        let start = if inside { Some(0) } else { line.find("/*") };
        let Some(start) = start else { continue };
        let end = line[start..].find("*/").map(|end| start + end);
        inside = end.is_none();
        found.push((at + 1, &line[start..end.unwrap_or(line.len())]));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(paragraphs: &[Paragraph]) -> Vec<(usize, String)> {
        paragraphs.iter().flat_map(Paragraph::faults).collect()
    }

    #[test]
    fn a_word_is_found_in_comments_with_its_line() {
        let text = "fn nobody() {}\n/// One word, and so\n/// many more: nobody.\nlet x = \"// nobody\"; // whoever\n";
        let found: Vec<_> = faults(&of_rust(text)).into_iter().map(|(line, _)| line).collect();
        assert_eq!(found, [2, 3, 4]);
    }

    #[test]
    fn a_sentence_may_ask_what_but_not_begin_with_it() {
        let text = "What is it? It works. What it does\nis unclear.\n\n# What it is\n\n- Who knows.\n";
        let lines: Vec<_> = faults(&of_page(text)).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 6]);
    }

    #[test]
    fn lines_of_comments_are_short() {
        let long = "x".repeat(COLUMNS);
        let text = format!("//! {long}\n//! | {long}\nlet x = \"{long}\";\n//! ```\n//! {long}\n//! ```\n");
        let (lines, paragraphs): (Vec<_>, _) = (text.lines().collect(), of_rust(&text));
        let long = paragraphs.iter().flat_map(|paragraph| paragraph.long_lines(&lines));
        assert_eq!(long.map(|(line, _)| line).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn semicolons_and_sentences_are_counted() {
        let [paragraph] = &of_rust("// One; and\n// two; three. Four? Five\n")[..] else {
            panic!("one paragraph")
        };
        assert_eq!((paragraph.sentences(), paragraph.semicolons().collect()), (3, vec![1, 2]));
    }

    #[test]
    fn fences_are_no_sentences() {
        assert_eq!(faults(&of_page("```text\nnobody\n```\n")), []);
        assert_eq!(faults(&of_rust("//! ```text\n//! nobody\n//! ```\n")), []);
    }

    #[test]
    fn comments_of_c_have_lines() {
        let text = "int a; /* One nobody. */\nint nobody;\n/* Two\n * lines, whoever. */\n";
        let lines: Vec<_> = faults(&of_c(text)).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 4]);
    }
}
