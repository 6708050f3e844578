//! Random calls of address spaces of every design: by cores in turn, judged by the model after each, on all
//! of the addresses that there are numbers for, and by several cores at once. Memory of every kind runs out
//! meanwhile, and callers panic.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod everybody;
mod panicking;
mod turns;
mod wide;
mod wild;

use fuzzing::{Dice, rounds};
use test_memory::FailingNodes;
use vm_testkit::Design;

#[global_allocator]
static ALLOCATOR: FailingNodes = FailingNodes;

/// How many blocks of nodes there is memory for during a step: often enough for all.
fn blocks(dice: &mut Dice) -> usize {
    if dice.one_in(4) { dice.below(10) } else { usize::MAX }
}

/// Some rounds for each design.
fn each_design(usual: u64, round: impl Fn(Design, &mut Dice)) {
    rounds(usual, |dice| Design::ALL.into_iter().for_each(|design| round(design, dice)));
}

#[test]
fn cores_take_turns_and_the_model_judges() {
    each_design(3, turns::round);
}

#[test]
fn any_number_is_an_address() {
    each_design(3, wide::round);
}

#[test]
fn all_cores_at_once() {
    each_design(2, everybody::round);
}
