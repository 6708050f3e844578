//! A naive model of a map.

use std::collections::BTreeMap;
use std::ops::Range;

/// Each key starts a segment that has this value up to the next key.
#[derive(Debug)]
pub struct Model(BTreeMap<u64, Option<u64>>);

impl Model {
    pub fn new() -> Self {
        Self(BTreeMap::from([(0, None)]))
    }

    pub fn get(&self, key: u64) -> Option<u64> {
        *self.0.range(..=key).next_back().unwrap().1
    }

    pub fn set(&mut self, keys: Range<u64>, value: Option<u64>) {
        let after = self.get(keys.end);
        let inside: Vec<u64> = self.0.range(keys.clone()).map(|(start, _)| *start).collect();
        inside.into_iter().for_each(|start| _ = self.0.remove(&start));
        self.0.insert(keys.start, value);
        self.0.insert(keys.end, after);
    }

    /// Returns the segments with values in `keys`, neighbours of equal value joined.
    pub fn used(&self, keys: Range<u64>) -> Vec<(Range<u64>, u64)> {
        let mut segments = Segments::default();
        let starts = self.0.range(keys.start + 1..keys.end).map(|(start, _)| *start);
        let mut bounds: Vec<u64> = std::iter::once(keys.start).chain(starts).collect();
        bounds.push(keys.end);
        for pair in bounds.windows(2) {
            segments.push(pair[0]..pair[1], self.get(pair[0]));
        }
        segments.0
    }
}

/// Keys that have values, and the values. Neighbours of equal value come as one.
#[derive(Default)]
pub struct Segments(pub Vec<(Range<u64>, u64)>);

impl Segments {
    pub fn push(&mut self, keys: Range<u64>, value: Option<u64>) {
        let Some(value) = value else { return };
        match self.0.last_mut() {
            Some((last, same)) if last.end == keys.start && *same == value => last.end = keys.end,
            _ => self.0.push((keys, value)),
        }
    }
}
