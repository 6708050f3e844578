//! A word-position index of text files by multithreaded MapReduce, after Metis: the application of the
//! paper's section 5.2.
//!
//! Threads read the text together, each writes to memory of its own, every reducer reads every mapper's
//! tables, and all share the finished tree. Memory is mapped in blocks and never unmapped: small blocks
//! stress mmap, large ones page faults.

mod index;
mod map;
mod reduce;
mod text;
mod tree;

use index::Index;
use programs::args::{Args, Parsed, options};
use programs::benchmark::{threads, window_json, window_text};
use programs::{memory::PAGE, require, say};
use reduce::Entry;
use serde_json::{Value, json};
use std::time::Instant;

const USAGE: &str = "usage: wordindex [OPTIONS] FILE...\nIndexes the words of text files and prints a digest of the index.\n\n  \
    --threads N   pinned threads (default: one per CPU)\n  \
    --block SIZE  memory is mapped in blocks of SIZE, such as 64K or 8M (default 64K)\n  \
    --repeat N    index the files N times over, for a larger text (default 1)\n  \
    --top N       also print the N most frequent words\n  \
    --find WORD   also print where WORD stands\n  \
    --json        one JSON object instead of text";

struct Options {
    threads: usize,
    block: usize,
    repeat: usize,
    top: usize,
    find: Option<String>,
    json: bool,
    files: Vec<String>,
}

impl Options {
    fn from(mut args: Args) -> Parsed<Options> {
        let options = Options {
            threads: threads(&mut args)?,
            block: args.size("--block", 64 << 10, PAGE as u64..=1 << 34)? as usize,
            repeat: args.number("--repeat", 1, 1..=1 << 20)? as usize,
            top: args.number("--top", 0, 0..=1 << 20)? as usize,
            find: args.value("--find")?,
            json: args.flag("--json"),
            files: args.rest()?,
        };
        if options.files.is_empty() {
            return Err("no text: name one file or more".to_string());
        }
        Ok(options)
    }
}

/// The report of an index.
struct Report<'a> {
    options: &'a Options,
    index: Index,
    bytes: usize,
    read: f64,
    entries: Vec<&'static Entry>,
}

fn main() {
    let options = &options(USAGE, Options::from);
    let start = Instant::now();
    let text = require(text::load(&options.files, options.repeat), "cannot read the text");
    let read = start.elapsed().as_secs_f64();
    let index = index::build(text, options.threads, options.block);
    let mut entries = Vec::new();
    index.tree.for_each(&mut |entry| entries.push(entry));
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.positions.len()));
    let report = Report { options, index, bytes: text.len(), read, entries };
    if options.json { say(report.json()) } else { say(report.text()) }
}

impl Report<'_> {
    fn words(&self) -> usize {
        self.entries.iter().map(|entry| entry.positions.len()).sum()
    }

    fn top(&self) -> impl Iterator<Item = (String, usize)> {
        self.entries.iter().take(self.options.top).map(|entry| (name(entry), entry.positions.len()))
    }

    /// Returns the word to find and its positions, or `None` if there is no such word.
    fn found(&self) -> Option<(&str, &'static [u64])> {
        let word = self.options.find.as_deref()?;
        let entry = self.index.tree.find(word.to_ascii_lowercase().as_bytes());
        Some((word, entry.map_or(&[], |entry| entry.positions)))
    }

    fn json(&self) -> Value {
        let [map, reduce, merge] = self.index.phases;
        let mut report = window_json("wordindex", &self.index.window);
        report["threads"] = json!(self.options.threads);
        report["block"] = json!(self.options.block);
        report["bytes"] = json!(self.bytes);
        report["words"] = json!(self.words());
        report["distinct"] = json!(self.entries.len());
        report["digest"] = json!(format!("{:016x}", self.index.tree.digest()));
        report["mmaps"] = json!(self.index.mmaps);
        report["phases"] = json!({"read": self.read, "map": map, "reduce": reduce, "merge": merge});
        report["top"] = json!(self.top().collect::<Vec<_>>());
        report["found"] = json!(self.found());
        report
    }

    fn text(&self) -> String {
        let [map, reduce, merge] = self.index.phases;
        let mut text = format!(
            "wordindex: {} words, {} distinct, digest {:016x}\n  \
             {} threads, {} mmaps of {} bytes{}\n  \
             seconds: read {:.3}, map {map:.3}, reduce {reduce:.3}, merge {merge:.3}",
            self.words(),
            self.entries.len(),
            self.index.tree.digest(),
            self.options.threads,
            self.index.mmaps,
            self.options.block,
            window_text(&self.index.window),
            self.read,
        );
        self.top().for_each(|(word, count)| text += &format!("\n{count:9} {word}"));
        if let Some((word, positions)) = self.found() {
            text += &format!("\n{word}: {} times: {positions:?}", positions.len());
        }
        text
    }
}

fn name(entry: &Entry) -> String {
    String::from_utf8_lossy(entry.word).into_owned()
}
