//! The reduce phase: one thread takes its table of every mapper, which is the pairwise sharing of the
//! benchmark, and joins the positions of each word.

use programs::arena::{Arena, List};
use programs::table::{Slot, Table};

/// A word of the finished index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The word.
    pub word: &'static [u8],
    /// Every position, in ascending order.
    pub positions: &'static [u64],
}

/// Joins the tables that the mappers have made for one reducer, in the order of their parts of the text.
/// Returns its words, sorted.
pub fn reduce(tables: impl Iterator<Item = &'static Table>, arena: &mut Arena) -> &'static [Entry] {
    let mut shares: List<&'static Slot> = List::default();
    tables.flat_map(Table::words).for_each(|slot| shares.push(slot, arena));
    // A mapper's positions are all below those of the next, so the first position orders the shares of a
    // word.
    shares.elements().sort_unstable_by_key(|slot| (slot.word, slot.positions[0]));
    let mut entries = List::default();
    for same in shares.chunk_by(|one, next| one.word == next.word) {
        entries.push(join(same, arena), arena);
    }
    shares.free(arena);
    entries.freeze()
}

fn join(shares: &[&'static Slot], arena: &mut Arena) -> Entry {
    let count = shares.iter().map(|slot| slot.positions.len()).sum();
    let mut positions = List::with_room(count, arena);
    for position in shares.iter().flat_map(|slot| slot.positions.iter()) {
        positions.push(*position, arena);
    }
    Entry { word: shares[0].word, positions: positions.freeze() }
}
