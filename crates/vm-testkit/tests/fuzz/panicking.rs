//! Callers whose own code panics while they use a space: nothing that can be told has changed.

use std::ops::ControlFlow;

use fuzzing::{Dice, attempt};
use percore::Pinned;
use vm::{Access, PageNum, PageRange, Remap};
use vm_testkit::{Forks, World};

use crate::wild;

/// A call on `core` that panics half-way, if it comes so far.
pub fn act(world: &World, core: usize, user: PageRange, dice: &mut Dice) {
    let forks = Forks::ALL[dice.below(Forks::ALL.len())];
    world.machine.on(core, |pin| act_pinned(world, pin, user, dice, forks));
}

/// The same for a pinned caller, that forks in this way.
pub fn act_pinned(world: &World, pin: &Pinned, user: PageRange, dice: &mut Dice, forks: Forks) {
    let mut left = dice.below(3);
    let mut count = move || {
        assert!(left > 0, "on purpose");
        left -= 1;
    };
    let at = PageNum::new(user.start().get() + dice.below(user.pages() as usize) as u64);
    let done = match dice.below(6) {
        0 => attempt(|| world.space.look(pin, at, &mut |_| count())),
        1 => attempt(|| _ = world.space.frame(pin, at, Access::Read, &mut |_| count())),
        2 => attempt(|| {
            world.space.regions(pin, user, &mut |_| {
                count();
                ControlFlow::Continue(())
            });
        }),
        3 => attempt(|| _ = world.space.resident(pin, user, &mut |_| count())),
        4 => attempt(|| fork(world, pin, forks, &mut count)),
        _ => attempt(|| remap(world, pin, user, dice)),
    };
    assert!(done.is_ok() || done == Err("on purpose".to_owned()), "{done:?}");
}

/// Forks the space, and drops the child whether it is complete or not.
fn fork(world: &World, pin: &Pinned, forks: Forks, count: &mut dyn FnMut()) {
    let Some(child) = world.sibling(pin) else { return };
    let mut made = Vec::new();
    let outcome = attempt(|| {
        let fork_backing = &mut |backing| {
            count();
            made.push(world.machine.files.again(backing));
            made.last().copied()
        };
        let _ = forks.fork(&*world.space, pin, &*child.space, fork_backing);
    });
    made.into_iter().for_each(|backing| world.machine.files.adjust(backing, -1));
    child.end();
    outcome.unwrap_or_else(|message| panic!("{message}"));
}

/// Of a mapping that shows a file, so that the panic comes before anything moves.
fn remap(world: &World, pin: &Pinned, user: PageRange, dice: &mut Dice) {
    let regions = world.regions(pin, user);
    let shows: Vec<_> = regions.iter().filter(|region| region.mapping.backing().is_some()).collect();
    if !shows.is_empty() {
        let from = shows[dice.below(shows.len())].pages;
        let what = Remap { from, pages: from.pages(), to: wild::placement(dice, user), keep: dice.one_in(2) };
        let _ = world.space.remap(pin, &what, &mut |_, _, _| panic!("on purpose"));
    }
}
