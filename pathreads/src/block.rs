//! Blocks: memory that one member alone has mapped, and that is served to it again without a lock.
//!
//! Each member (a thread with an address space of its own) has room for [`SLOTS`] blocks of each size: all
//! numbers of pages to [`SMALL`], and from there multiples of [`STEP`] to [`MOST_PAGES`]. A page is left out
//! behind each, so that no two are one mapping of Linux.
//!
//! | state of a block | memory of the program? | mapped in its member | recorded | changed by |
//! |---|---|---|---|---|
//! | ordinary | as the record says | as the record says | if it is the program's | any member, under the lock of the record, to used |
//! | used | yes | readable and writable | yes | its member to busy, or any member under the lock to ordinary |
//! | busy | no | its member is changing that | yes | its member to used or kept, or any under the lock to ordinary |
//! | kept | no | inaccessible, and zero | yes | its member to busy, or any under the lock to ordinary |
//!
//! 1. *Only its member is the holder of a block that is not ordinary.* So while it is, the member changes
//!    what is mapped there without a request, and without the lock.
//! 2. *A state changes by one atomic instruction from a known state.* The member makes a block busy, changes
//!    the mapping, and then makes it used or kept. If that fails, another member, or a handler of this one,
//!    has made it ordinary meanwhile: then the record decides again.
//! 3. *The member that makes a block ordinary holds the lock*, and removes it from the record if it was kept
//!    or busy. It first increases the version: members that had everything mapped did not count the block.
//! 4. *Nothing is recorded beside a block that is not ordinary*, so its region is the block alone. Memory
//!    that is placed there makes the block ordinary first.

use sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::PAGE;
use crate::record::MOST_MEMBERS;

/// The most pages of a block. Models have one size.
pub const MOST_PAGES: u64 = if cfg!(loom) { 1 } else { 256 };

/// Up to this number of pages there is a size for each number.
pub const SMALL: u64 = if cfg!(loom) { 1 } else { 64 };

/// The pages between two larger sizes.
pub const STEP: u64 = 16;

/// The number of sizes.
pub const SIZES: usize = (SMALL + (MOST_PAGES - SMALL) / STEP) as usize;

/// Returns the number of the size that has these pages, if there is one.
pub const fn size_number(pages: u64) -> Option<usize> {
    match pages {
        1..=SMALL => Some(pages as usize - 1),
        ..=MOST_PAGES if pages > SMALL && pages.is_multiple_of(STEP) => {
            Some((SMALL + (pages - SMALL) / STEP) as usize - 1)
        }
        _ => None,
    }
}

/// Returns the pages of the size with this number.
pub const fn pages_of(size: usize) -> u64 {
    let size = size as u64 + 1;
    if size <= SMALL { size } else { SMALL + (size - SMALL) * STEP }
}

/// The most blocks of a size and a member.
pub const SLOTS: usize = if cfg!(loom) { 2 } else { 128 };

/// The first address of the blocks.
pub const START: u64 = 0x2000_0000_0000;

/// The address after the last of them.
pub const END: u64 = START + MOST_MEMBERS as u64 * PART;

/// The bytes of address space for one size, and for one member.
const AREA: u64 = 256 << 20;
const PART: u64 = SIZES as u64 * AREA;

const _: () = assert!((MOST_PAGES + 1) * PAGE * SLOTS as u64 <= AREA);

/// The sizes and slots of a member.
const STATES: usize = SIZES * SLOTS;

/// The state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// The record alone says what it is.
    Ordinary,
    /// The program's, and mapped in its member alone.
    Used,
    /// Between two of the others.
    Busy,
    /// Not the program's, inaccessible, and zero.
    Kept,
}

impl State {
    fn of(value: u8) -> Self {
        [State::Ordinary, State::Used, State::Busy, State::Kept][usize::from(value % 4)]
    }
}

/// The place of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// The number of its member.
    pub member: usize,
    /// The number of its size.
    pub size: usize,
    /// Its number among those of this size.
    pub slot: usize,
}

impl Block {
    /// Returns the block that an address lies in, or behind, where a page is left out.
    pub fn at(address: u64) -> Option<Block> {
        let within = address.checked_sub(START).filter(|_| address < END)?;
        let size = (within % PART / AREA) as usize;
        let slot = (within % AREA / ((pages_of(size) + 1) * PAGE)) as usize;
        (slot < SLOTS).then_some(Block { member: (within / PART) as usize, size, slot })
    }

    /// Returns the block that is exactly this range.
    pub fn exactly(start: u64, length: u64) -> Option<Block> {
        Block::at(start).filter(|block| (block.start(), block.length()) == (start, length))
    }

    /// Returns the blocks that a range may touch.
    pub fn touched(start: u64, end: u64) -> impl Iterator<Item = Block> {
        let mut next = start.max(START);
        core::iter::from_fn(move || {
            while next < end.min(END) {
                let block = Block::at(next);
                // Behind the last slot of a size there is none.
                next =
                    block.map_or_else(|| next / AREA * AREA + AREA, |block| block.start() + block.stride());
                if block.is_some_and(|block| block.start() < end) {
                    return block;
                }
            }
            None
        })
    }

    fn stride(self) -> u64 {
        (self.pages() + 1) * PAGE
    }

    /// Returns its pages.
    pub fn pages(self) -> u64 {
        pages_of(self.size)
    }

    /// Returns the first address.
    pub fn start(self) -> u64 {
        let area = START + self.member as u64 * PART + self.size as u64 * AREA;
        area + self.slot as u64 * self.stride()
    }

    /// Returns its bytes.
    pub fn length(self) -> u64 {
        self.pages() * PAGE
    }

    /// Returns the address after the last.
    pub fn end(self) -> u64 {
        self.start() + self.length()
    }

    fn index(self) -> usize {
        self.size * SLOTS + self.slot
    }
}

/// Returns the addresses of a member's blocks.
pub fn part(member: usize) -> (u64, u64) {
    let start = START + member as u64 * PART;
    (start, start + PART)
}

/// The states of a member's blocks, on pages that no other member writes to in steady state.
// The stacks of models are small.
#[cfg_attr(not(loom), repr(align(4096)))]
struct Part {
    states: [AtomicU8; STATES],
    /// Counts blocks that became used.
    uses: AtomicU32,
}

/// The states of all blocks. They lie in memory that all members share. Zeroes are a valid value.
#[repr(C)]
pub struct Blocks {
    parts: [Part; MOST_MEMBERS],
}

impl Blocks {
    sync::const_unless_loom! {
        /// Makes a table of ordinary blocks.
        pub fn new() -> Self {
            let parts =
                atomics![Part { states: atomics![AtomicU8::new(0); STATES], uses: AtomicU32::new(0) }; MOST_MEMBERS];
            Blocks { parts }
        }
    }

    fn word(&self, block: Block) -> &AtomicU8 {
        &self.parts[block.member].states[block.index()]
    }

    /// Returns the state of a block.
    pub fn state(&self, block: Block) -> State {
        // Acquire pairs with the release in `change` and `end`.
        State::of(self.word(block).load(Ordering::Acquire))
    }

    /// Changes a state. Returns whether it was `from`.
    pub fn change(&self, block: Block, from: State, to: State) -> bool {
        // Release: a member that sees the block ordinary sees the version that was announced before. Nothing
        // is acquired: the block's own member changes its mapping alone, and others hold the lock.
        let word = self.word(block);
        let is_changed =
            word.compare_exchange(from as u8, to as u8, Ordering::Release, Ordering::Relaxed).is_ok();
        if is_changed && to == State::Used {
            // Release pairs with the acquire in `uses`: a member that sees the count sees the block used. A
            // handler may count, too.
            self.parts[block.member].uses.fetch_add(1, Ordering::Release);
        }
        is_changed
    }

    /// Makes a block ordinary, and returns what it was.
    pub fn end(&self, block: Block) -> State {
        // Release, as in `change`.
        State::of(self.word(block).swap(State::Ordinary as u8, Ordering::Release))
    }

    /// Returns the addresses of those of the first members.
    pub fn of_first(&self, members: usize) -> core::ops::Range<usize> {
        let range = self.parts[..members].as_ptr_range();
        range.start as usize..range.end as usize
    }

    /// Returns how often a block of a member became used.
    pub fn uses(&self, member: usize) -> u32 {
        self.parts[member].uses.load(Ordering::Acquire)
    }
}

impl Default for Blocks {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    const FIRST: Block = Block { member: 0, size: 0, slot: 0 };

    #[test]
    fn each_address_of_a_block_leads_to_it() {
        for member in [0, 1, MOST_MEMBERS - 1] {
            for size in 0..SIZES {
                for slot in [0, 1, SLOTS - 1] {
                    let block = Block { member, size, slot };
                    let behind = block.end() + PAGE;
                    assert_eq!([block.start(), block.end() - 1, behind - 1].map(Block::at), [Some(block); 3]);
                    assert_eq!(Block::exactly(block.start(), block.length()), Some(block));
                    assert!(Block::at(behind) != Some(block) && Block::at(block.start() - 1) != Some(block));
                    assert!(Block::exactly(block.start(), block.length() + PAGE).is_none());
                    let (start, end) = part(member);
                    assert!(start <= block.start() && behind <= end);
                }
            }
        }
        assert!(Block::at(START - 1).is_none() && Block::at(END).is_none());
    }

    #[test]
    fn sizes_are_numbered_in_order() {
        let sizes: Vec<u64> = (1..=MOST_PAGES + 1).filter(|pages| size_number(*pages).is_some()).collect();
        assert_eq!(sizes, (0..SIZES).map(pages_of).collect::<Vec<_>>());
        assert!(sizes.iter().enumerate().all(|(number, pages)| size_number(*pages) == Some(number)));
        assert_eq!(
            (sizes[0], sizes[SIZES - 1], size_number(0), size_number(65)),
            (1, MOST_PAGES, None, None)
        );
    }

    #[test]
    fn a_range_touches_its_blocks() {
        let touched = |start, end| Block::touched(start, end).collect::<Vec<_>>();
        let second = Block { slot: 1, ..FIRST };
        assert_eq!(touched(FIRST.start(), FIRST.end()), [FIRST]);
        assert_eq!(touched(0, FIRST.end()), [FIRST]);
        assert_eq!(touched(FIRST.end() - 1, second.start()), [FIRST]);
        assert_eq!(touched(FIRST.end() - 1, second.start() + 1), [FIRST, second]);
        let last = Block { slot: SLOTS - 1, ..FIRST };
        let next = Block { size: 1, ..FIRST };
        assert_eq!(touched(last.start(), next.start() + 1), [last, next]);
        assert_eq!(touched(0, START).len() + touched(END, u64::MAX).len(), 0);
        assert_eq!(Block::touched(0, u64::MAX).count(), MOST_MEMBERS * STATES);
    }

    #[test]
    fn a_state_changes_from_what_it_was() {
        static BLOCKS: Blocks = Blocks::new();
        let blocks = &BLOCKS;
        assert!(!blocks.change(FIRST, State::Used, State::Busy));
        assert!(blocks.change(FIRST, State::Ordinary, State::Used));
        assert!(
            blocks.change(FIRST, State::Used, State::Busy) && blocks.change(FIRST, State::Busy, State::Kept)
        );
        assert!(!blocks.change(FIRST, State::Busy, State::Kept));
        assert_eq!((blocks.end(FIRST), blocks.state(FIRST)), (State::Kept, State::Ordinary));
        assert_eq!(blocks.end(FIRST), State::Ordinary);
        assert_eq!(blocks.state(Block { slot: 1, ..FIRST }), State::Ordinary);
    }

    #[test]
    fn blocks_that_become_used_are_counted() {
        static BLOCKS: Blocks = Blocks::new();
        let blocks = &BLOCKS;
        let cycle = [State::Ordinary, State::Used, State::Busy, State::Kept, State::Busy, State::Used];
        cycle.windows(2).for_each(|pair| assert!(blocks.change(FIRST, pair[0], pair[1])));
        assert_eq!((blocks.uses(0), blocks.uses(1)), (2, 0));
    }

    /// A member maps and unmaps its block while another makes it ordinary: one of them decides.
    #[test]
    fn a_block_that_another_takes_is_not_kept() {
        static BLOCKS: Blocks = Blocks::new();
        let blocks = &BLOCKS;
        std::thread::scope(|scope| {
            let member = scope.spawn(|| {
                (0..20_000)
                    .filter(|_| {
                        blocks.change(FIRST, State::Ordinary, State::Used);
                        blocks.change(FIRST, State::Used, State::Busy)
                            && !blocks.change(FIRST, State::Busy, State::Kept)
                            || blocks.change(FIRST, State::Kept, State::Busy)
                                && !blocks.change(FIRST, State::Busy, State::Used)
                    })
                    .count()
            });
            let other = scope.spawn(|| (0..20_000).filter(|_| blocks.end(FIRST) == State::Busy).count());
            assert_eq!(member.join().unwrap(), other.join().unwrap());
        });
    }
}
