//! Models of `compressed.rs`: the clock goes round a space while other cores use its page, invalidate it, or
//! have it since a fork.
//!
//! Broken on purpose, and what then failed:
//!
//! | in the code | models |
//! |---|---|
//! | the clock takes no translations back (`page_out.rs`) | those of a page that is written, taken away or inherited |
//! | it looks at the page, unlocks, and locks once more for what it does | those of a page that is written, discarded or inherited |
//! | it takes a linked page for an idle one (`compressed.rs`) | `a_page_that_is_in_use_is_written` |
//! | it compresses what is counted, without asking (`unshare`) | those of a page of both; `a_page_is_inherited` |
//! | a fault does not forget the compressed contents | those of a page that is written; those of a child |
//! | `fork_page` adds no holder of what is compressed | `a_page_is_inherited`, `a_compressed_page_of_both_is_written_by_both` |
//! | the child's write gives its reference up before it copies | `a_page_of_both_is_written_by_the_child` |

use vm::{AddressSpace, PageRange};

use crate::programs::{Act, PAGE, race};

/// Two visits of the clock against the program, which finds what it wrote whenever it looks.
fn writes_stay(before: Act) {
    race(
        before,
        |world, pin| world.parent.visit(pin, 2),
        |world, pin| {
            assert_eq!(world.parent.read(pin), 1);
            world.parent.write(pin, 2);
        },
        |world, pin| assert_eq!(world.parent.read(pin), 2),
    );
}

#[test]
fn a_page_that_is_in_use_is_written() {
    writes_stay(|world, pin| world.parent.write(pin, 1));
}

#[test]
fn an_idle_page_is_written() {
    writes_stay(|world, pin| {
        world.parent.write(pin, 1);
        world.parent.visit(pin, 1);
    });
}

#[test]
fn a_compressed_page_is_written() {
    writes_stay(|world, pin| {
        world.parent.write(pin, 1);
        world.parent.visit(pin, 2);
    });
}

/// The page that the clock finds is taken away at the same time.
fn goes_once(away: Act, after: Act) {
    let before: [Act; 2] = [
        |world, pin| world.parent.write(pin, 1),
        |world, pin| {
            world.parent.write(pin, 1);
            world.parent.visit(pin, 1);
        },
    ];
    for before in before {
        race(before, |world, pin| world.parent.visit(pin, 1), away, after);
    }
}

#[test]
fn a_page_is_unmapped() {
    goes_once(
        |world, pin| world.parent.space.unmap(pin, PageRange::one(PAGE)).unwrap(),
        |world, _| assert!(world.memory.is_unused()),
    );
}

#[test]
fn a_page_is_discarded() {
    goes_once(
        |world, pin| world.parent.space.discard(pin, PageRange::one(PAGE)).unwrap(),
        |world, pin| {
            assert!(world.memory.is_unused());
            assert_eq!(world.parent.read(pin), 0);
        },
    );
}

/// The parent's clock against the child, which has the parent's idle page, and what is left for each.
fn of_both(child: Act, after: Act) {
    race(
        |world, pin| {
            world.parent.write(pin, 1);
            world.parent.fork(pin, &world.child);
            assert_eq!(world.child.read(pin), 1);
        },
        |world, pin| world.parent.visit(pin, 2),
        child,
        after,
    );
}

#[test]
fn a_page_of_both_is_written_by_the_child() {
    of_both(
        |world, pin| world.child.write(pin, 2),
        |world, pin| assert_eq!((world.parent.read(pin), world.child.read(pin)), (1, 2)),
    );
}

#[test]
fn a_page_of_both_is_the_parent_s_as_the_child_ends() {
    of_both(|world, pin| world.child.exit(pin), |world, pin| assert_eq!(world.parent.read(pin), 1));
}

/// Neither clock takes away what the other program has.
#[test]
fn a_page_of_both_is_visited_by_both_clocks() {
    of_both(
        |world, pin| world.child.visit(pin, 2),
        |world, pin| assert_eq!((world.parent.read(pin), world.child.read(pin)), (1, 1)),
    );
}

/// The child inherits a page in memory, or a compressed one.
#[test]
fn a_page_is_inherited() {
    race(
        |world, pin| {
            world.parent.write(pin, 1);
            world.parent.visit(pin, 1);
        },
        |world, pin| world.parent.visit(pin, 1),
        |world, pin| {
            world.parent.fork(pin, &world.child);
            world.child.write(pin, 2);
        },
        |world, pin| assert_eq!((world.parent.read(pin), world.child.read(pin)), (1, 2)),
    );
}

/// Parent and child bring back the same bytes, each into a frame of its own.
#[test]
fn a_compressed_page_of_both_is_written_by_both() {
    race(
        |world, pin| {
            world.parent.write(pin, 1);
            world.parent.visit(pin, 2);
            world.parent.fork(pin, &world.child);
        },
        |world, pin| {
            assert_eq!(world.parent.read(pin), 1);
            world.parent.write(pin, 3);
        },
        |world, pin| {
            assert_eq!(world.child.read(pin), 1);
            world.child.write(pin, 2);
        },
        |world, pin| assert_eq!((world.parent.read(pin), world.child.read(pin)), (3, 2)),
    );
}
