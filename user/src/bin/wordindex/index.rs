//! Runs all phases of one index, on pinned threads.
//!
//! ```text
//!          map                     reduce                  merge
//! thread 0 text part 0 ─> tables ┐ table 0 of all ─> run ┐ words a..k ─> leaves ┐ root
//! thread 1 text part 1 ─> tables ┴ table 1 of all ─> run ┴ words k..z ─> leaves ┘
//! ```

use crate::map::map;
use crate::reduce::{Entry, reduce};
use crate::text;
use crate::tree::{Node, merge};
use programs::arena::Arena;
use programs::marker;
use programs::table::Table;
use programs::window::{Window, Worker, measure};
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Instant;

/// The phases of the contention meter.
const MAP: usize = 1;
const REDUCE: usize = 2;
const MERGE: usize = 3;

/// Every thread's result of a phase, readable by all after the barrier.
type Results<T> = Vec<OnceLock<&'static [T]>>;

/// The finished index and its costs.
pub struct Index {
    /// All words.
    pub tree: Node,
    /// Number of blocks mapped.
    pub mmaps: u64,
    /// Seconds of map, reduce and merge.
    pub phases: [f64; 3],
    /// The whole window.
    pub window: Window,
}

/// The result of one thread.
struct Share {
    mmaps: u64,
    phases: [f64; 3],
    tree: Option<Node>,
}

/// The state that the threads share.
struct Job {
    text: &'static [u8],
    parts: Vec<Range<usize>>,
    block: usize,
    tables: Results<Table>,
    runs: Results<Entry>,
    leaves: Results<Node>,
}

/// Indexes the text.
pub fn build(text: &'static [u8], threads: usize, block: usize) -> Index {
    let job = Job {
        text,
        parts: text::parts(text, threads),
        block,
        tables: vec![OnceLock::new(); threads],
        runs: vec![OnceLock::new(); threads],
        leaves: vec![OnceLock::new(); threads],
    };
    let (shares, window) = measure(threads, |worker| job.work(worker));
    let tree = shares[0].tree.expect("thread 0 builds the root");
    let mmaps = shares.iter().map(|share| share.mmaps).sum();
    Index { tree, mmaps, phases: shares[0].phases, window }
}

impl Job {
    fn work(&self, worker: &Worker) -> Share {
        let (mut arena, index) = (Arena::new(self.block), worker.index);
        let mut phase = Phase { worker, start: Instant::now() };
        marker::phase(MAP);
        let tables = map(self.text, self.parts[index].clone(), self.parts.len(), &mut arena);
        let mapped = phase.end(&self.tables[index], tables);
        marker::phase(REDUCE);
        let run = reduce(all(&self.tables).map(|row| &row[index]), &mut arena);
        let reduced = phase.end(&self.runs[index], run);
        marker::phase(MERGE);
        let runs: Vec<_> = all(&self.runs).collect();
        let leaves = merge(&runs, index, &mut arena);
        let merged = phase.end(&self.leaves[index], leaves);
        let tree = (index == 0).then(|| Node::root(all(&self.leaves), &mut arena));
        Share { mmaps: arena.mmaps(), phases: [mapped, reduced, merged], tree }
    }
}

/// Returns the results of all threads, in their order.
fn all<T>(results: &Results<T>) -> impl Iterator<Item = &'static [T]> {
    results.iter().map(|result| *result.get().expect("every thread is past the barrier"))
}

struct Phase<'a> {
    worker: &'a Worker<'a>,
    start: Instant,
}

impl Phase<'_> {
    /// Publishes this thread's result, waits for all the others, and returns how long the phase took.
    fn end<T>(&mut self, place: &OnceLock<&'static [T]>, result: &'static [T]) -> f64 {
        assert!(place.set(result).is_ok(), "a thread has one result per phase");
        self.worker.barrier.wait();
        let start = std::mem::replace(&mut self.start, Instant::now());
        (self.start - start).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use programs::words::words;

    fn text() -> &'static [u8] {
        let mut random = programs::random::Random::new(1);
        let words = (0..20_000).map(|_| format!("{:x} ", random.below(3000) * random.below(50)));
        words.collect::<String>().leak().as_bytes()
    }

    #[test]
    fn the_digest_depends_neither_on_threads_nor_on_blocks() {
        let text = text();
        let expected = build(text, 1, 64 << 10).tree.digest();
        for (threads, block) in [(2, 64 << 10), (3, 4096), (8, 8 << 20), (17, 64 << 10)] {
            assert_eq!(build(text, threads, block).tree.digest(), expected, "{threads} threads, {block}");
        }
        let shorter = &text[..text.len() - 2];
        assert_ne!(build(shorter, 2, 64 << 10).tree.digest(), expected);
    }

    #[test]
    fn every_word_of_the_text_is_in_the_index_where_it_stands() {
        let text = text();
        let index = build(text, 4, 64 << 10);
        let mut count = 0;
        index.tree.for_each(&mut |entry| count += entry.positions.len());
        assert_eq!(count, 20_000);
        for (position, word) in words(text, 0..text.len()) {
            let entry = index.tree.find(word).expect("the word is there");
            assert!(entry.positions.binary_search(&(position as u64)).is_ok());
        }
    }

    #[test]
    fn small_blocks_are_mapped_more_often() {
        let text = text();
        assert!(build(text, 2, 64 << 10).mmaps > build(text, 2, 8 << 20).mmaps);
    }
}
