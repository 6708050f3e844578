//! Numbers that are at an end of something.

use fuzzing::Dice;
use vm::{Flags, PageNum, PageRange, Placement, Prot};

/// Ends of leaves, of nodes of every level, of the addresses a program has (2^47), of keys, of addresses and
/// of numbers.
const EDGES: [u64; 12] =
    [0, 16, 512, 1 << 18, (1 << 18) + 512, 1 << 27, 1 << 35, 1 << 36, 1 << 51, 1 << 52, 1 << 63, u64::MAX];

/// A number at one of the edges, or at an end of `user`, give or take a few.
pub fn number(dice: &mut Dice, user: PageRange) -> u64 {
    let at = match dice.below(EDGES.len() + 4) {
        0 | 1 => user.start().get(),
        2 | 3 => user.end().get(),
        edge => EDGES[edge - 4],
    };
    let near = if dice.one_in(2) { 2 } else { 600 };
    at.wrapping_add(dice.below(2 * near) as u64).wrapping_sub(near as u64)
}

/// Some pages: none, a few, a node's worth of any level, or all that there are.
pub fn pages(dice: &mut Dice, user: PageRange) -> u64 {
    match dice.below(4) {
        0 => dice.below(12) as u64,
        1 => 1 << dice.below(40),
        2 => user.pages(),
        _ => number(dice, user),
    }
}

/// Any range: it ends at the last number if it has to.
pub fn range(dice: &mut Dice, user: PageRange) -> PageRange {
    let (start, pages) = (number(dice, user), pages(dice, user));
    PageRange::between(PageNum::new(start), PageNum::new(start.saturating_add(pages)))
}

pub fn placement(dice: &mut Dice, user: PageRange) -> Placement {
    let at = PageNum::new(number(dice, user));
    match dice.below(5) {
        0 => Placement::Anywhere { hint: None },
        1 => Placement::Anywhere { hint: Some(at) },
        2 => Placement::Fixed(at),
        3 => Placement::FixedNoReplace(at),
        _ => Placement::Below(at),
    }
}

pub fn prot(dice: &mut Dice) -> Prot {
    Prot::from_bits(dice.next_u64())
}

pub fn flags(dice: &mut Dice) -> Flags {
    let all = [Flags::NONE, Flags::DONTFORK, Flags::WIPEONFORK, Flags::LOCKED, Flags::HUGE, Flags::NOHUGE];
    all[dice.below(all.len())]
}
