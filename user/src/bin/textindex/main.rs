//! A word index of a source tree, after Psearchy of MOSBENCH: an application of section 7 of the Bonsai
//! paper.
//!
//! Threads take one file after the other. Each has a hash table of its own. Every file is read through a
//! buffer that is mapped for it and unmapped after it, as the C library's streams do: many small calls of
//! mmap and munmap beside the page faults of large tables.

mod files;
mod index;
mod stream;

use index::{Index, Job};
use programs::args::{Args, Parsed, options};
use programs::benchmark::{threads, window_json, window_text};
use programs::{memory::PAGE, require, say};
use serde_json::{Value, json};

const USAGE: &str = "usage: textindex [OPTIONS] PATH...\nIndexes the words of files and of all files below folders; prints a digest of the index.\n\n  \
    --threads N    pinned threads (default: one per CPU)\n  \
    --buffer SIZE  each file is read through a buffer of SIZE, mapped and unmapped for it (default 4K)\n  \
    --slots N      words that each thread's table has room for at first (default 16384)\n  \
    --find WORD    also print where WORD stands\n  \
    --json         one JSON object instead of text";

struct Options {
    threads: usize,
    buffer: usize,
    slots: usize,
    find: Option<String>,
    json: bool,
    paths: Vec<String>,
}

impl Options {
    fn from(mut args: Args) -> Parsed<Options> {
        let slots = args.number("--slots", 16 << 10, 2..=1 << 24)? as usize;
        let options = Options {
            threads: threads(&mut args)?,
            buffer: args.size("--buffer", PAGE as u64, PAGE as u64..=1 << 30)? as usize,
            slots: slots.next_power_of_two(),
            find: args.value("--find")?,
            json: args.flag("--json"),
            paths: args.rest()?,
        };
        if options.paths.is_empty() {
            return Err("nothing to index: name files or folders".to_string());
        }
        Ok(options)
    }
}

fn main() {
    let options = options(USAGE, Options::from);
    let files = require(files::list(&options.paths), "cannot list the files");
    let job = Job { files, buffer: options.buffer, slots: options.slots };
    let index = index::build(&job, options.threads);
    let report = Report { options: &options, job: &job, index };
    if options.json { say(report.json()) } else { say(report.text()) }
}

/// The report of an index.
struct Report<'a> {
    options: &'a Options,
    job: &'a Job,
    index: Index,
}

impl Report<'_> {
    /// Returns file and byte of each place of the word to find.
    fn found(&self) -> Option<Vec<(String, usize)>> {
        let places = self.index.find(self.options.find.as_deref()?);
        Some(places.into_iter().map(|(file, at)| (self.job.files[file].display().to_string(), at)).collect())
    }

    fn digest(&self) -> String {
        format!("{:016x}", self.index.digest())
    }

    fn json(&self) -> Value {
        let (words, distinct) = self.index.count();
        let mut report = window_json("textindex", &self.index.window);
        report["threads"] = json!(self.options.threads);
        report["buffer"] = json!(self.options.buffer);
        report["files"] = json!(self.job.files.len());
        report["bytes"] = json!(self.index.bytes);
        report["words"] = json!(words);
        report["distinct"] = json!(distinct);
        report["digest"] = json!(self.digest());
        report["mmaps"] = json!(self.index.mmaps);
        report["found"] = json!(self.found());
        report
    }

    fn text(&self) -> String {
        let (words, distinct) = self.index.count();
        let mut text = format!(
            "textindex: {words} words, {distinct} distinct, digest {}\n  {} files, {} bytes\n  \
             {} threads, {} mmaps, {:.3} s{}",
            self.digest(),
            self.job.files.len(),
            self.index.bytes,
            self.options.threads,
            self.index.mmaps,
            self.index.window.seconds,
            window_text(&self.index.window)
        );
        self.found().into_iter().flatten().for_each(|(file, at)| text += &format!("\n{file}: {at}"));
        text
    }
}
