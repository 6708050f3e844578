//! The map phase: one thread turns its part of the text into one table per reducer, in its own memory.
//!
//! A table is open-addressed; a word belongs to the reducer that its hash names, on every thread.

use crate::arena::{Arena, List};
use crate::text;
use programs::random::mix;
use std::ops::Range;

/// A word and where it was found, in ascending order.
#[derive(Default)]
pub struct Slot {
    /// The word; empty in an unused slot.
    pub word: &'static [u8],
    /// Its positions.
    pub positions: List<u64>,
    hash: u64,
}

/// Words to positions.
pub struct Table {
    slots: List<Slot>,
    used: usize,
}

impl Table {
    fn new(room: usize, arena: &mut Arena) -> Table {
        Table { slots: List::filled(room, arena, Slot::default), used: 0 }
    }

    /// The slots that hold a word.
    pub fn words(&'static self) -> impl Iterator<Item = &'static Slot> {
        self.slots.iter().filter(|slot| !slot.word.is_empty())
    }

    fn add(&mut self, hash: u64, word: &'static [u8], position: u64, arena: &mut Arena) {
        if self.used * 4 >= self.slots.len() * 3 {
            self.grow(arena);
        }
        let slot = self.slot(hash, word);
        if slot.word.is_empty() {
            (slot.word, slot.hash) = (word, hash);
            slot.positions.push(position, arena);
            self.used += 1;
        } else {
            slot.positions.push(position, arena);
        }
    }

    /// The slot of the word, or the unused one where it belongs.
    fn slot(&mut self, hash: u64, word: &[u8]) -> &mut Slot {
        let slots = self.slots.elements();
        let mask = slots.len() - 1;
        let mut at = (hash >> 8) as usize & mask;
        while !slots[at].word.is_empty() && (slots[at].hash != hash || slots[at].word != word) {
            at = (at + 1) & mask;
        }
        &mut slots[at]
    }

    fn grow(&mut self, arena: &mut Arena) {
        let larger = Table::new(self.slots.len() * 2, arena);
        let mut old = std::mem::replace(self, Table { used: self.used, ..larger });
        for slot in old.slots.elements().iter_mut().filter(|slot| !slot.word.is_empty()) {
            let place = self.slot(slot.hash, slot.word);
            *place = std::mem::take(slot);
        }
        old.slots.free(arena);
    }
}

/// The tables of one part of the text, one for each of `reducers`.
pub fn map(text: &'static [u8], part: Range<usize>, reducers: usize, arena: &mut Arena) -> &'static [Table] {
    let mut row = List::with_room(reducers, arena);
    (0..reducers).for_each(|_| {
        let table = Table::new(64, arena);
        row.push(table, arena);
    });
    for (position, word) in text::words(text, part) {
        let hash = hash(word);
        let reducer = (hash >> 32) as usize % reducers;
        row.elements()[reducer].add(hash, word, position as u64, arena);
    }
    row.freeze()
}

/// A hash of the word, all 64 bits of it good.
pub fn hash(word: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    mix(word.iter().fold(0xcbf2_9ce4_8422_2325, fold))
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
        for (position, word) in text::words(text, 0..text.len()) {
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
