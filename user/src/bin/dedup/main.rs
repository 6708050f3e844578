//! A compressor that stores repeated data once, as a pipeline of threads, after PARSEC's dedup: an
//! application of section 7 of the Bonsai paper.
//!
//! Every block of the input has a buffer of its own on its way through the pipeline, and another for its
//! packed form. Each buffer is mapped, touched by the threads of several stages, and unmapped by the last.

mod archive;
mod chunk;
mod pipeline;
mod ring;

use pipeline::Packed;
use programs::args::{Args, Parsed, options};
use programs::benchmark::{threads, window_json, window_text};
use programs::window::Window;
use programs::{die, require, say};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write;

const USAGE: &str = "usage: dedup [OPTIONS] FILE\nCompresses a file, storing what repeats once; tries whether it can be restored.\n\n  \
    --threads N    pinned threads (default: one per CPU)\n  \
    --block SIZE   mean length of a block, for which a buffer is mapped (default 128K)\n  \
    --repeat N     compress the file N times over, for a longer input (default 1)\n  \
    --output OUT   write the archive to OUT; with --restore, what it holds\n  \
    --restore      FILE is an archive: write what it holds, to stdout if there is no --output\n  \
    --json         one JSON object instead of text";

/// Minimum bytes of a block, which are several chunks.
const LEAST_BLOCK: u64 = 16 << 10;

struct Options {
    threads: usize,
    block: usize,
    repeat: usize,
    output: Option<String>,
    restore: bool,
    json: bool,
    file: String,
}

impl Options {
    fn from(mut args: Args) -> Parsed<Options> {
        let most = archive::LONGEST as u64 / 2;
        let block = args.size("--block", 128 << 10, LEAST_BLOCK..=most)? as usize;
        Ok(Options {
            threads: threads(&mut args)?,
            block,
            repeat: args.number("--repeat", 1, 1..=1 << 20)? as usize,
            output: args.value("--output")?,
            restore: args.flag("--restore"),
            json: args.flag("--json"),
            file: one_file(args.rest()?)?,
        })
    }
}

fn one_file(mut words: Vec<String>) -> Parsed<String> {
    match words.len() {
        1 => Ok(words.remove(0)),
        0 => Err("which file? name one".to_string()),
        _ => Err(format!("one file at a time, not {}", words.join(", "))),
    }
}

fn main() {
    let options = options(USAGE, Options::from);
    let bytes = require(fs::read(&options.file), &options.file);
    if options.restore {
        restore(&options, &bytes)
    } else {
        compress(&options, &bytes.repeat(options.repeat))
    }
}

fn restore(options: &Options, archive: &[u8]) {
    let bytes = require(archive::restore(archive), &options.file);
    match &options.output {
        Some(_) => store(options, &bytes),
        None => require(std::io::stdout().write_all(&bytes), "stdout"),
    }
}

fn compress(options: &Options, input: &[u8]) {
    let (packed, window) = pipeline::pack(input, options.threads, options.block);
    if archive::restore(&packed.archive).as_deref() != Ok(input) {
        die("the archive does not restore the file");
    }
    store(options, &packed.archive);
    let report = Report { options, bytes: input.len(), packed, window };
    if options.json { say(report.json()) } else { say(report.text()) }
}

fn store(options: &Options, bytes: &[u8]) {
    options.output.iter().for_each(|output| require(fs::write(output, bytes), output));
}

/// The report of a run.
struct Report<'a> {
    options: &'a Options,
    bytes: usize,
    packed: Packed,
    window: Window,
}

impl Report<'_> {
    /// Returns a hash of the archive.
    fn digest(&self) -> String {
        let digest = Sha256::digest(&self.packed.archive);
        digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn json(&self) -> Value {
        let mut report = window_json("dedup", &self.window);
        report["threads"] = json!(self.options.threads);
        report["block"] = json!(self.options.block);
        report["bytes"] = json!(self.bytes);
        report["blocks"] = json!(self.packed.blocks);
        report["chunks"] = json!(self.packed.chunks);
        report["new"] = json!(self.packed.new);
        report["archive"] = json!(self.packed.archive.len());
        report["digest"] = json!(self.digest());
        report["buffers"] = json!(self.packed.buffers);
        report
    }

    fn text(&self) -> String {
        let Packed { archive, blocks, chunks, new, buffers } = &self.packed;
        format!(
            "dedup: {} bytes to {}, digest {}\n  {blocks} blocks, {chunks} chunks, {new} of them new\n  \
             {} threads, {buffers} buffers, {:.3} s{}",
            self.bytes,
            archive.len(),
            self.digest(),
            self.options.threads,
            self.window.seconds,
            window_text(&self.window)
        )
    }
}
