//! The index: a hash table for each thread while files are read, one sorted map of all words afterwards.

use crate::files::named;
use crate::stream::Stream;
use programs::arena::{Arena, List};
use programs::random::mix;
use programs::spin::Line;
use programs::table::{Table, hash};
use programs::window::{Window, measure};
use programs::{marker, require};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// The phases of the contention meter.
const TABLE: usize = 1;
const READ: usize = 2;

/// Bits of a position that give the offset in its file. The other bits give the file.
const OFFSET: u32 = 40;
/// Bytes that a thread maps at a time for its words.
const BLOCK: usize = 256 << 10;

/// The files to index, and the sizes of buffers and tables.
pub struct Job {
    /// The files. Positions name them by their place here.
    pub files: Vec<PathBuf>,
    /// Bytes of the buffer that each file is read through.
    pub buffer: usize,
    /// Slots that each thread's table has at first.
    pub slots: usize,
}

/// Position of a word: the file and the byte.
pub type WordPosition = (usize, usize);

/// The finished index and its costs.
pub struct Index {
    /// All words, and their positions in ascending order.
    words: BTreeMap<&'static [u8], Vec<u64>>,
    /// Bytes of text.
    pub bytes: usize,
    /// Number of mmap calls, for buffers and for blocks.
    pub mmaps: u64,
    /// The whole window.
    pub window: Window,
}

/// The words that one thread has found.
struct Share {
    table: Table,
    arena: Arena,
    bytes: usize,
    files: u64,
}

/// Indexes the files on `threads` threads.
pub fn build(job: &Job, threads: usize) -> Index {
    let next = Line(AtomicUsize::new(0));
    let (shares, window) = measure(threads, |_| Share::collect(job, &next.0));
    let mut words = BTreeMap::<_, Vec<u64>>::new();
    for slot in shares.iter().flat_map(|share| share.table.words()) {
        words.entry(slot.word).or_default().extend(slot.positions.iter());
    }
    words.values_mut().for_each(|positions| positions.sort_unstable());
    let bytes = shares.iter().map(|share| share.bytes).sum();
    let mmaps = shares.iter().map(|share| share.arena.mmaps() + share.files).sum();
    Index { words, bytes, mmaps, window }
}

impl Share {
    /// Does one thread's work: a thread that is done with a file takes the next. For the meter a file is a
    /// round: the number of files does not depend on the threads.
    fn collect(job: &Job, next: &AtomicUsize) -> Share {
        marker::phase(TABLE);
        let mut arena = Arena::new(BLOCK);
        let mut share = Share { table: Table::new(job.slots, &mut arena), arena, bytes: 0, files: 0 };
        marker::phase(READ);
        loop {
            // Relaxed: the number selects the file, and orders nothing else.
            let file = next.fetch_add(1, Relaxed);
            let Some(path) = job.files.get(file) else { return share };
            let read = share.add(file, path, job.buffer);
            require(read.map_err(|error| named(path, error)), "cannot index a file");
            marker::iter();
        }
    }

    fn add(&mut self, file: usize, path: &Path, buffer: usize) -> io::Result<()> {
        let (table, arena) = (&mut self.table, &mut self.arena);
        self.files += 1;
        self.bytes += Stream::open(path, buffer)?.for_each_word(|at, word| {
            let keep = |arena: &mut Arena| List::copy_of(word, arena).freeze();
            table.add(hash(word), word, position((file, at)), arena, keep);
        })?;
        Ok(())
    }
}

fn position((file, at): WordPosition) -> u64 {
    (file as u64) << OFFSET | at as u64
}

fn place(position: u64) -> WordPosition {
    ((position >> OFFSET) as usize, (position & ((1 << OFFSET) - 1)) as usize)
}

impl Index {
    /// Returns the number of words, and the number of different ones.
    pub fn count(&self) -> (usize, usize) {
        (self.words.values().map(Vec::len).sum(), self.words.len())
    }

    /// Returns the positions of a word.
    pub fn find(&self, word: &str) -> Vec<WordPosition> {
        let found = self.words.get(word.to_ascii_lowercase().as_bytes());
        found.into_iter().flatten().map(|position| place(*position)).collect()
    }

    /// Returns a number that depends on every word and every position, and on nothing else.
    pub fn digest(&self) -> u64 {
        self.words.iter().fold(0, |digest, (word, positions)| {
            positions.iter().fold(mix(digest ^ hash(word)), |sum, position| mix(sum ^ (position + 1)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::list;

    fn job(buffer: usize, slots: usize) -> Job {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src").to_string();
        Job { files: list(&[folder]).unwrap(), buffer, slots }
    }

    #[test]
    fn every_word_is_found_where_it_stands() {
        let job = job(4096, 2);
        let index = build(&job, 3);
        let places = index.find("Textindex");
        assert!(!places.is_empty());
        for (file, at) in places {
            let text = std::fs::read(&job.files[file]).unwrap();
            assert!(text[at..at + 9].eq_ignore_ascii_case(b"textindex"));
        }
        assert!(index.find("no such word").is_empty());
    }

    #[test]
    fn the_digest_depends_neither_on_threads_nor_on_buffers() {
        let expected = build(&job(4096, 64), 1);
        for (threads, buffer, slots) in [(2, 4096, 64), (3, 64 << 10, 2), (8, 8192, 4096)] {
            let index = build(&job(buffer, slots), threads);
            assert_eq!(
                (index.digest(), index.bytes),
                (expected.digest(), expected.bytes),
                "{threads} threads"
            );
        }
        let fewer = Job { files: job(0, 0).files.split_off(1), ..job(4096, 64) };
        assert_ne!(build(&fewer, 1).digest(), expected.digest());
    }

    #[test]
    fn positions_say_which_file_and_where() {
        for known in [(0, 0), (7, 9), ((1 << 24) - 1, (1 << OFFSET) - 1)] {
            assert_eq!(place(position(known)), known);
        }
    }
}
