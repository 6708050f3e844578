//! Processes read records of one key-value file, as those of RocksDB do in the LODIC paper (5.1): point reads
//! of random keys, or a scan. Popular keys are read more often: the one of rank r as often as r^-0.98.
//!
//! A record is a key of 16 bytes and a value of 100. The records are sorted by key, as many in a block of
//! 4 KiB as fit, and each reader knows the first key of each block. A round reads one block: a point read
//! looks for its key there, a scan goes over all of it. Each value is checked. With --mapped each process
//! maps the file and asks the kernel to count its reads there, as LODIC does (`read_refs=lodic`).

use std::cell::RefCell;
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

/// The file, and what all readers know of it.
struct Store {
    file: File,
    /// The first key of each block.
    index: Vec<[u8; KEY]>,
    /// The sum of the weights of the keys up to each rank.
    sums: Vec<f64>,
    /// The record of each rank.
    by_rank: Vec<usize>,
}

/// A reader: its buffer, and where it is.
struct Reader {
    buffer: Box<Buffer>,
    random: Random,
    next_block: usize,
}

impl Reader {
    fn new(seed: u64) -> Self {
        Self { buffer: Buffer::new(), random: Random::new(seed), next_block: 0 }
    }
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

impl Store {
    fn new(records: usize) -> Self {
        let mut sum = 0.0;
        let sums = (1..=records).map(|rank| {
            sum += (rank as f64).powf(-SKEW);
            sum
        });
        Self {
            sums: sums.collect(),
            file: unnamed("kvread", &contents(records)),
            index: (0..records).step_by(IN_BLOCK).map(key).collect(),
            by_rank: Random::new(1).permutation(records),
        }
    }

    /// Chooses a record.
    fn choose(&self, random: &mut Random) -> usize {
        let last = self.sums.len() - 1;
        let at = random.bits() as f64 / u64::MAX as f64 * self.sums[last];
        self.by_rank[self.sums.partition_point(|&sum| sum < at).min(last)]
    }

    fn read(&self, reader: &mut Reader, block: usize) {
        let offset = (block * PAGE) as u64;
        require(self.file.read_exact_at(&mut reader.buffer.0, offset), "pread");
    }

    /// Reads a record of a random key.
    fn get(&self, reader: &mut Reader) {
        let record = self.choose(&mut reader.random);
        let key = key(record);
        let block = self.index.partition_point(|first| *first <= key) - 1;
        self.read(reader, block);
        let found = reader.buffer.0.chunks_exact(RECORD).find(|bytes| bytes[..KEY] == key);
        check(record, found.unwrap_or_else(|| die(format_args!("record {record} is not in its block"))));
    }

    /// Reads the next block, and all records in it.
    fn scan(&self, reader: &mut Reader) {
        let block = reader.next_block;
        reader.next_block = (block + 1) % self.index.len();
        self.read(reader, block);
        let records = block * IN_BLOCK..((block + 1) * IN_BLOCK).min(self.by_rank.len());
        records.zip(reader.buffer.0.chunks_exact(RECORD)).for_each(|(record, bytes)| check(record, bytes));
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
    let store = Store::new(records);
    let round = |reader: &mut Reader| if scan { store.scan(reader) } else { store.get(reader) };
    if by_threads {
        let more = Map::from_iter([("records".to_string(), json!(records))]);
        options.run_with("kvread", more, |worker| Reader::new(worker.index as u64), |_, own, _| round(own));
    } else {
        let own: RefCell<Option<Reader>> = RefCell::new(None);
        options.run_processes("kvread", |_| {
            round(own.borrow_mut().get_or_insert_with(|| {
                if mapped {
                    map_counted(&store.file, store.index.len());
                }
                Reader::new(process::id().into())
            }));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_found_and_popular_ones_more_often() {
        let (store, mut reader) = (Store::new(100), Reader::new(3));
        (0..2 * store.index.len()).for_each(|_| store.scan(&mut reader));
        let mut counts = [0; 100];
        for _ in 0..10_000 {
            store.get(&mut reader);
            counts[store.choose(&mut reader.random)] += 1;
        }
        assert!(counts.iter().all(|&count| count > 0));
        let of_rank = |rank: usize| counts[store.by_rank[rank]];
        assert!(of_rank(0) > of_rank(9) && of_rank(9) > of_rank(99));
    }

    #[test]
    fn a_block_is_full_of_records() {
        assert_eq!((IN_BLOCK, contents(IN_BLOCK).len(), contents(IN_BLOCK + 1).len()), (35, PAGE, 2 * PAGE));
    }
}
