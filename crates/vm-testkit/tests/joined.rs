//! Regions of the trees that became alike again are one node of the tree. No call shows how many nodes there
//! are, so the blocks of memory are counted.

use test_memory::{Failing, owned};
use vm::{PageNum, PageRange, Placement, Prot};
use vm_testkit::{Design, Setup, Shows, World};
use vm_trees::Locking;

const RW: Prot = Prot::from_bits(3);
const START: PageNum = PageNum::new(100);

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// Calls `change` for some pages of a mapping of 64 pages, and checks that the tree is as large as before.
fn changes_leave_the_tree_as_it_was(change: impl Fn(&World, PageRange)) {
    for locking in Locking::ALL {
        let world = World::new(Setup::new(), Design::Tree(locking));
        world.machine.on(0, |pin| world.map(pin, Placement::Fixed(START), 64, RW, Shows::Zeroes).unwrap());
        let round = |page| {
            change(&world, PageRange::new(PageNum::new(page), 2).unwrap());
            world.machine.settle();
            owned()
        };
        // The first round allocates what later ones use again.
        let before = round(101);
        (102..160).step_by(3).for_each(|page| assert_eq!(round(page), before, "{locking:?}, page {page}"));
        world.finish();
    }
}

#[test]
fn a_part_that_is_protected_and_back_joins_both_sides() {
    changes_leave_the_tree_as_it_was(|world, part| {
        world.machine.on(0, |pin| {
            world.space.protect(pin, part, Prot::READ).unwrap();
            world.space.protect(pin, part, RW).unwrap();
        });
    });
}

#[test]
fn a_part_that_is_unmapped_and_mapped_again_joins_both_sides() {
    changes_leave_the_tree_as_it_was(|world, part| {
        world.machine.on(0, |pin| {
            world.space.unmap(pin, part).unwrap();
            world.map(pin, Placement::Fixed(part.start()), part.pages(), RW, Shows::Zeroes).unwrap();
        });
    });
}

#[test]
fn parts_of_a_range_that_is_protected_as_a_whole_join() {
    changes_leave_the_tree_as_it_was(|world, part| {
        let whole = PageRange::new(START, 64).unwrap();
        world.machine.on(0, |pin| {
            world.space.protect(pin, part, Prot::READ).unwrap();
            world.space.protect(pin, whole, RW).unwrap();
        });
    });
}
