//! The map phase: one thread turns its part of the text into one table per reducer, in its own memory. The
//! hash of a word selects its reducer, the same on every thread.

use programs::arena::{Arena, List};
use programs::table::{Table, hash};
use programs::words::words;
use std::ops::Range;

/// Returns the tables of one part of the text, one for each of `reducers`.
pub fn map(text: &'static [u8], part: Range<usize>, reducers: usize, arena: &mut Arena) -> &'static [Table] {
    let mut row = List::with_room(reducers, arena);
    (0..reducers).for_each(|_| {
        let table = Table::new(64, arena);
        row.push(table, arena);
    });
    for (position, word) in words(text, part) {
        let hash = hash(word);
        let reducer = (hash >> 32) as usize % reducers;
        row.elements()[reducer].add(hash, word, position as u64, arena, |_| word);
    }
    row.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn tables_hold_what_a_naive_index_holds() {
        let text: &'static [u8] =
            (0..5000).map(|n| format!("w{} ", n * n % 1777)).collect::<String>().leak().as_bytes();
        let mut naive: BTreeMap<&[u8], Vec<u64>> = BTreeMap::new();
        for (position, word) in words(text, 0..text.len()) {
            naive.entry(word).or_default().push(position as u64);
        }
        let row = map(text, 0..text.len(), 3, &mut Arena::new(4096));
        let slots = row.iter().flat_map(Table::words);
        let found: BTreeMap<_, _> = slots.map(|slot| (slot.word, slot.positions.to_vec())).collect();
        assert!(found == naive);
        let count = row.iter().flat_map(Table::words).count();
        assert_eq!(count, naive.len(), "no word has two slots");
    }
}
