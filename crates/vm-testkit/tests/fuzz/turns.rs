//! Cores take turns, and a model judges every answer and every translation.

use fuzzing::Dice;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use test_memory::with_blocks;
use vm::PageRange;
use vm_testkit::{Design, Setup, Step, StepPlacement, Target, Trial};

use crate::common::{CORES, setup, step};
use crate::{blocks, panicking, wild};

const STEPS: usize = 60;

pub fn round(design: Design, dice: &mut Dice) {
    let seed: Vec<u8> = (0..4).flat_map(|_| dice.next_u64().to_le_bytes()).collect();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let runner = &mut TestRunner::new_with_rng(Config::default(), rng);
    let setup: Setup = one(setup(), runner);
    let mut trial = Trial::new(setup, design);
    trial.short = true;
    for _ in 0..STEPS {
        let core = dice.below(CORES);
        trial.world().frames().set_exhausted(dice.one_in(6));
        trial.world().mmu.set_exhausted(dice.one_in(6));
        match dice.below(8) {
            0 => panicking::act(trial.world(), core, setup.user, dice),
            1 | 2 => {
                let step = wild_step(dice, setup.user);
                with_blocks(blocks(dice), || trial.step(core, &step));
            }
            _ => {
                let step = one(step(), runner);
                with_blocks(blocks(dice), || trial.step(core, &step));
            }
        }
    }
    trial.finish();
}

fn one<T>(strategy: impl Strategy<Value = T>, runner: &mut TestRunner) -> T {
    strategy.new_tree(runner).expect("nothing is filtered").current()
}

fn wild_step(dice: &mut Dice, user: PageRange) -> Step {
    let offset = |dice: &mut Dice| wild::number(dice, user).wrapping_sub(user.start().get());
    let target = |dice: &mut Dice| Target { offset: offset(dice), pages: wild::pages(dice, user) };
    let place = |dice: &mut Dice| match dice.below(4) {
        0 => StepPlacement::Hint(offset(dice)),
        1 => StepPlacement::Fixed(offset(dice)),
        2 => StepPlacement::NoReplace(offset(dice)),
        _ => StepPlacement::Below(offset(dice)),
    };
    match dice.below(12) {
        0 => Step::Map(place(dice), wild::pages(dice, user), wild::prot(dice), vm_testkit::Shows::Zeroes),
        1 => Step::Unmap(target(dice)),
        2 => Step::Protect(target(dice), wild::prot(dice)),
        3 => Step::Advise(target(dice), wild::flags(dice), wild::flags(dice)),
        4 => Step::Discard(target(dice)),
        5 => Step::Collapse(offset(dice)),
        6 => {
            let most = if dice.one_in(2) { Some(1 + dice.below(600) as u64) } else { None };
            let (target, pages) = (target(dice), wild::pages(dice, user));
            Step::Remap(target, pages, place(dice), dice.one_in(2), most)
        }
        7 => Step::Extend(target(dice), wild::pages(dice, user)),
        8 => Step::Load(offset(dice), 0),
        9 => Step::Store(offset(dice), 0, 1),
        10 => Step::PageOut(offset(dice)),
        _ => Step::Outside(offset(dice)),
    }
}
