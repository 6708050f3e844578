//! Processes read records of one key-value file, as those of RocksDB do in the LODIC paper (5.1): point reads
//! of random keys, or a scan. Popular keys are read more often: the one of rank r as often as r^-0.98.
//!
//! A record is a key of 16 bytes and a value of 100. The records are sorted by key, as many in a block of
//! 4 KiB as fit, and each reader knows the first key of each block. A round reads one block: a point read
//! looks for its key there, a scan goes over all of it. Each value is checked. With --mapped each process
//! maps the file and asks the kernel to count its reads there, as LODIC does (`read_refs=lodic`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process;

use programs::args::{Args, Parsed};
use programs::benchmark::{Options, Program};
use programs::memory::PAGE;
use programs::random::{Random, mix};
use programs::shared_file::{Buffer, map_counted, unnamed};
use programs::{die, require};
use serde_json::{Map, json};

const PROGRAM: Program = Program {
    usage: "usage: kvread [OPTIONS]\nEach process reads records of one key-value file.",
    options: "  --records N     records of the file, 1 to 100000 (default 1000)\n  \
         --scan          each process reads one block after the other, instead of random keys\n  \
         --by-threads    threads of one process read, instead of processes\n  \
         --mapped        each process maps the file and has its reads counted there\n",
    pages: (0, 0),
    iterations: 10_000,
};

const KEY: usize = 16;
const RECORD: usize = KEY + 100;
/// Records in a block.
const IN_BLOCK: usize = PAGE / RECORD;
/// The exponent of the distribution of keys: that of words in English texts.
const SKEW: f64 = 0.98;

/// The readers and what they read.
struct Reading {
    records: usize,
    scan: bool,
    by_threads: bool,
    mapped: bool,
}

fn reading(args: &mut Args) -> Parsed<Reading> {
    let records = args.number("--records", 1000, 1..=100_000)? as usize;
    let [scan, by_threads, mapped] = ["--scan", "--by-threads", "--mapped"].map(|name| args.flag(name));
    Ok(Reading { records, scan, by_threads, mapped })
}

/// A reader: what it knows of the file, its buffer, and where it is. Each has memory of its own.
struct Reader {
    records: usize,
    /// The first key of each block.
    index: Vec<[u8; KEY]>,
    /// The sum of the weights of the keys up to each rank.
    sums: Vec<f64>,
    /// The record of each rank.
    by_rank: Vec<usize>,
    random: Random,
    next_block: usize,
    buffer: Box<Buffer>,
}

/// Returns the key of a record. Keys are sorted as their records are.
fn key(record: usize) -> [u8; KEY] {
    (u128::from(b'k') << 120 | record as u128).to_be_bytes()
}

/// Returns the bytes that are repeated in the value of a record.
fn value(record: usize) -> [u8; 8] {
    mix(record as u64).to_le_bytes()
}

/// Returns the contents of the file.
fn contents(records: usize) -> Vec<u8> {
    let mut bytes = vec![0; records.div_ceil(IN_BLOCK) * PAGE];
    for record in 0..records {
        let start = record / IN_BLOCK * PAGE + record % IN_BLOCK * RECORD;
        let (to_key, to_value) = bytes[start..start + RECORD].split_at_mut(KEY);
        to_key.copy_from_slice(&key(record));
        to_value.iter_mut().zip(value(record).into_iter().cycle()).for_each(|(to, byte)| *to = byte);
    }
    bytes
}

impl Reader {
    fn new(records: usize, seed: u64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=records).map(|rank| {
            sum += (rank as f64).powf(-SKEW);
            sum
        });
        Self {
            records,
            sums: sums.collect(),
            index: (0..records).step_by(IN_BLOCK).map(key).collect(),
            by_rank: Random::new(1).permutation(records),
            random: Random::new(seed),
            next_block: 0,
            buffer: Buffer::new(),
        }
    }

    /// Reads the file once, so that its bytes are not read for the first time in a counted round.
    fn warmed_up(mut self, file: &File) -> Self {
        (0..self.index.len()).for_each(|_| self.scan(file));
        self
    }

    /// Chooses a record.
    fn choose(&mut self) -> usize {
        let last = self.records - 1;
        let at = self.random.bits() as f64 / u64::MAX as f64 * self.sums[last];
        self.by_rank[self.sums.partition_point(|&sum| sum < at).min(last)]
    }

    fn read(&mut self, file: &File, block: usize) {
        require(file.read_exact_at(&mut self.buffer.0, (block * PAGE) as u64), "pread");
    }

    /// Reads a record of a random key.
    fn get(&mut self, file: &File) {
        let record = self.choose();
        let key = key(record);
        let block = self.index.partition_point(|first| *first <= key) - 1;
        self.read(file, block);
        let found = self.buffer.0.chunks_exact(RECORD).find(|bytes| bytes[..KEY] == key);
        check(record, found.unwrap_or_else(|| die(format_args!("record {record} is not in its block"))));
    }

    /// Reads the next block, and all records in it.
    fn scan(&mut self, file: &File) {
        let block = self.next_block;
        self.next_block = (block + 1) % self.index.len();
        self.read(file, block);
        let records = block * IN_BLOCK..((block + 1) * IN_BLOCK).min(self.records);
        records.zip(self.buffer.0.chunks_exact(RECORD)).for_each(|(record, bytes)| check(record, bytes));
    }
}

/// Ends the program if these are not the bytes of the record.
fn check(record: usize, bytes: &[u8]) {
    let ((its_key, its_value), expected) = (bytes.split_at(KEY), value(record));
    if its_key != key(record) || its_value.chunks(8).any(|part| *part != expected[..part.len()]) {
        die(format_args!("record {record} has other bytes"));
    }
}

fn main() {
    let (options, Reading { records, scan, by_threads, mapped }) =
        Options::parse_with(&PROGRAM, |args, _| reading(args));
    let file = unnamed("kvread", &contents(records));
    let round = |own: &mut Reader| if scan { own.scan(&file) } else { own.get(&file) };
    if by_threads {
        let more = Map::from_iter([("records".to_string(), json!(records))]);
        let reader = |index: usize| Reader::new(records, index as u64).warmed_up(&file);
        options.run_with("kvread", more, |worker| reader(worker.index), |_, own, _| round(own));
    } else {
        let reader = |_| {
            if mapped {
                map_counted(&file, records.div_ceil(IN_BLOCK));
            }
            Reader::new(records, process::id().into()).warmed_up(&file)
        };
        options.run_processes("kvread", reader, |own, _| round(own));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_found_and_popular_ones_more_often() {
        let (file, mut reader) = (unnamed("kvread-test", &contents(100)), Reader::new(100, 3));
        (0..2 * reader.index.len()).for_each(|_| reader.scan(&file));
        let mut counts = [0; 100];
        for _ in 0..10_000 {
            reader.get(&file);
            counts[reader.choose()] += 1;
        }
        assert!(counts.iter().all(|&count| count > 0));
        let of_rank = |rank: usize| counts[reader.by_rank[rank]];
        assert!(of_rank(0) > of_rank(9) && of_rank(9) > of_rank(99));
    }

    #[test]
    fn a_block_is_full_of_records() {
        assert_eq!((IN_BLOCK, contents(IN_BLOCK).len(), contents(IN_BLOCK + 1).len()), (35, PAGE, 2 * PAGE));
    }
}
