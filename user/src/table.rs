//! Words and the places where they were found: one thread's hash table, in an arena.
//!
//! It is open-addressed, and always has an unused slot.

use crate::arena::{Arena, List};
use crate::random::mix;

/// A word and where it was found, in ascending order.
#[derive(Default)]
pub struct Slot {
    /// The word. It is empty in an unused slot.
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
    /// Creates an empty table with `room` slots, a power of two.
    pub fn new(room: usize, arena: &mut Arena) -> Table {
        Table { slots: List::filled(room, arena, Slot::default), used: 0 }
    }

    /// Returns the slots that hold a word.
    pub fn words(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| !slot.word.is_empty())
    }

    /// Adds a position of a word. For a word that is new here, `keep` returns the copy to store.
    pub fn add(
        &mut self,
        hash: u64,
        word: &[u8],
        position: u64,
        arena: &mut Arena,
        keep: impl FnOnce(&mut Arena) -> &'static [u8],
    ) {
        if self.used * 4 >= self.slots.len() * 3 {
            self.grow(arena);
        }
        let slot = self.slot(hash, word);
        let new = slot.word.is_empty();
        if new {
            (slot.word, slot.hash) = (keep(arena), hash);
        }
        slot.positions.push(position, arena);
        self.used += usize::from(new);
    }

    /// Returns the slot of the word, or the unused one where it belongs.
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

/// Returns a hash of the word, of which all 64 bits are good.
pub fn hash(word: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    mix(word.iter().fold(0xcbf2_9ce4_8422_2325, fold))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_table_holds_what_a_naive_one_holds() {
        let (arena, mut naive) = (&mut Arena::new(4096), BTreeMap::<&[u8], Vec<u64>>::new());
        let words: Vec<String> = (0..5000).map(|n: u64| format!("w{}", n * n % 1777)).collect();
        let mut table = Table::new(2, arena);
        for (word, position) in words.iter().map(String::as_bytes).zip(0..) {
            naive.entry(word).or_default().push(position);
            table.add(hash(word), word, position, arena, |arena| List::copy_of(word, arena).freeze());
        }
        assert_eq!(table.words().count(), naive.len(), "no word has two slots");
        assert!(
            table.words().map(|slot| (slot.word, slot.positions.to_vec())).collect::<BTreeMap<_, _>>()
                == naive
        );
    }
}
