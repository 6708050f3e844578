//! The merge phase and its result: a B+ tree of all words that every thread may read.
//!
//! Each thread merges one range of words out of all reducers' sorted runs into leaves of its own memory. The
//! first one then builds the levels above them.

use crate::reduce::Entry;
use programs::arena::{Arena, List};
use programs::random::mix;
use programs::table::hash;

const FAN_OUT: usize = 32;
/// Samples per run from which the ranges are chosen.
const SAMPLES: usize = 16;

/// A node of the tree. Only the root may be empty.
#[derive(Clone, Copy)]
pub enum Node {
    /// Words, sorted.
    Leaf(&'static [Entry]),
    /// Nodes, sorted by their first words.
    Inner(&'static [Node]),
}

/// Returns the leaves of range `index`. There are as many ranges as runs.
pub fn merge(runs: &[&'static [Entry]], index: usize, arena: &mut Arena) -> &'static [Node] {
    let bounds = bounds(runs);
    let mut range: List<Entry> = List::default();
    for run in runs {
        let end = |at: usize| bounds.get(at).map_or(run.len(), |bound| lower(run, bound));
        let start = if index == 0 { 0 } else { end(index - 1) };
        run[start..end(index)].iter().for_each(|entry| range.push(*entry, arena));
    }
    range.elements().sort_unstable_by_key(|entry| entry.word);
    let mut leaves = List::default();
    range.freeze().chunks(FAN_OUT).for_each(|leaf| leaves.push(Node::Leaf(leaf), arena));
    leaves.freeze()
}

/// Returns the words at which the ranges meet, the same for every thread.
fn bounds(runs: &[&'static [Entry]]) -> Vec<&'static [u8]> {
    let sample = |run: &&'static [Entry]| {
        let run = *run;
        (0..SAMPLES.min(run.len())).map(|at| run[run.len() * at / SAMPLES.min(run.len())].word)
    };
    let mut samples: Vec<_> = runs.iter().flat_map(sample).collect();
    samples.sort_unstable();
    let ranges = runs.len().min(samples.len());
    (1..ranges).map(|range| samples[samples.len() * range / ranges]).collect()
}

fn lower(run: &[Entry], word: &[u8]) -> usize {
    run.partition_point(|entry| entry.word < word)
}

impl Node {
    /// Builds the root above all leaves, which come sorted.
    pub fn root(leaves: impl Iterator<Item = &'static [Node]>, arena: &mut Arena) -> Node {
        let mut level = List::default();
        leaves.flatten().for_each(|leaf| level.push(*leaf, arena));
        while level.len() > 1 {
            let mut above = List::default();
            level.freeze().chunks(FAN_OUT).for_each(|nodes| above.push(Node::Inner(nodes), arena));
            level = above;
        }
        level.first().copied().unwrap_or(Node::Leaf(&[]))
    }

    /// Returns the entry of a word.
    pub fn find(&self, word: &[u8]) -> Option<&'static Entry> {
        match self {
            Node::Leaf(entries) => entries.get(lower(entries, word)).filter(|entry| entry.word == word),
            Node::Inner(nodes) => {
                let after = nodes.partition_point(|node| node.first() <= word);
                nodes[after.checked_sub(1)?].find(word)
            }
        }
    }

    /// Calls `visit` for every entry, in the order of the words.
    pub fn for_each(&self, visit: &mut impl FnMut(&'static Entry)) {
        match self {
            Node::Leaf(entries) => entries.iter().for_each(visit),
            Node::Inner(nodes) => nodes.iter().for_each(|node| node.for_each(visit)),
        }
    }

    /// Returns a number that depends on every word and every position, and on nothing else.
    pub fn digest(&self) -> u64 {
        let mut digest = 0;
        self.for_each(&mut |entry| {
            let positions = entry.positions.iter().fold(0, |sum, position| mix(sum ^ (position + 1)));
            digest = mix(digest ^ hash(entry.word)) ^ positions;
        });
        digest
    }

    fn first(&self) -> &'static [u8] {
        match self {
            Node::Leaf(entries) => entries[0].word,
            Node::Inner(nodes) => nodes[0].first(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(words: &[&'static str], count: usize) -> Vec<&'static [Entry]> {
        let mut runs = vec![Vec::new(); count];
        for (at, word) in words.iter().enumerate() {
            runs[at % count].push(Entry { word: word.as_bytes(), positions: &[] });
        }
        runs.iter_mut().for_each(|run| run.sort_by_key(|entry| entry.word));
        runs.into_iter().map(|run| &*run.leak()).collect()
    }

    fn tree(words: &[&'static str], count: usize) -> Node {
        let (runs, mut arena) = (runs(words, count), Arena::new(4096));
        let leaves: Vec<_> = (0..count).map(|index| merge(&runs, index, &mut arena)).collect();
        Node::root(leaves.into_iter(), &mut arena)
    }

    #[test]
    fn every_word_is_found_and_visited_in_order() {
        let words: Vec<&'static str> = (0..3000).map(|n| &*format!("w{n}").leak()).collect();
        let mut sorted: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        sorted.sort();
        for count in [1, 2, 3, 8, 64] {
            let tree = tree(&words, count);
            let mut visited = Vec::new();
            tree.for_each(&mut |entry| visited.push(entry.word));
            assert_eq!(visited, sorted, "{count} runs");
            assert!(sorted.iter().all(|word| tree.find(word).is_some_and(|entry| entry.word == *word)));
            assert!(["a", "w", "w0x", "zz", ""].iter().all(|word| tree.find(word.as_bytes()).is_none()));
        }
    }

    #[test]
    fn fewer_words_than_threads_make_a_tree_too() {
        assert!(tree(&[], 4).find(b"a").is_none());
        assert!(tree(&["a"], 4).find(b"a").is_some());
    }

    #[test]
    fn the_digest_sees_every_position_and_word() {
        let leaf = |word, positions| Node::Leaf(vec![Entry { word, positions }].leak()).digest();
        let all = [leaf(b"a", &[1, 2]), leaf(b"a", &[2, 1]), leaf(b"a", &[1]), leaf(b"b", &[1, 2])];
        assert!((0..4).all(|i| (0..i).all(|j| all[i] != all[j])));
    }
}
