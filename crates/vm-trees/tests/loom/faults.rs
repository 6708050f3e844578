//! Faults against mapping operations: the races of the Bonsai paper (section 5.2), and those that came with
//! our designs.
//!
//! In `rwlock` and `faultlock` a lock keeps most of them out, and few interleavings are left.

use vm::{Access, Fault, FaultError, Prot};
use vm_trees::Locking;

use crate::world::{Core, race};

/// The designs whose faults may find a region changing.
const OPTIMISTIC: [Locking; 3] = [Locking::Hybrid, Locking::Bonsai, Locking::PerVma];

fn reads(core: &Core<'_>, page: u64) {
    assert!(core.fault(page, Access::Read).is_ok(), "page {page} is mapped all the time");
}

/// The fill race: a page is not filled in once its region is unmapped.
fn fault_against_unmap(kinds: &[Locking], preemptions: usize) {
    race(
        kinds,
        preemptions,
        |world| world.core(0).map(0..1, Prot::WRITE),
        |core| core.unmap(0..1),
        |core| assert!(matches!(core.fault(0, Access::Write), Ok(Fault::Alloc) | Err(FaultError::NotMapped))),
    );
}

#[test]
fn a_fault_against_unmap() {
    fault_against_unmap(&Locking::ALL, 1);
}

#[test]
fn a_fault_without_a_lock_against_unmap() {
    fault_against_unmap(&[Locking::Bonsai], 2);
}

/// The split race: a page of the upper part is mapped all the time, whichever region has it.
#[test]
fn a_fault_against_a_split() {
    race(
        &Locking::ALL,
        1,
        |world| world.core(0).map(0..4, Prot::WRITE),
        |core| core.unmap(1..2),
        |core| reads(core, 3),
    );
}

/// The lower part of a region gets other rights, and its upper part another region. A fault that finds the
/// old region with its new rights and its old end must not use them: the end is stored before the mapping
/// that opens a region (`vma.rs`).
#[test]
fn a_fault_against_protect_of_the_lower_part() {
    race(
        &OPTIMISTIC,
        1,
        |world| {
            world.core(0).map(0..4, Prot::WRITE);
            world.core(0).fault(0, Access::Write).unwrap();
        },
        |core| core.protect(0..1, Prot::READ),
        |core| assert_eq!(core.fault(2, Access::Write), Ok(Fault::Alloc), "page 2 is writable all the time"),
    );
}

/// A region loses its upper part and a right, and grows again: no thread locks the slots of the pages that
/// are joined to it. A fault that finds the region with its old mapping and its new end must not use them:
/// the mapping is stored before the end (`vma.rs`). The other designs have more interleavings and the same
/// loads.
#[test]
fn a_fault_against_a_region_that_grows_again() {
    race(
        &[Locking::Bonsai],
        1,
        |world| {
            world.core(0).map(0..4, Prot::WRITE);
            world.core(0).fault(0, Access::Write).unwrap();
        },
        |core| {
            core.map(1..4, Prot::READ);
            core.protect(0..1, Prot::READ);
        },
        // With a right that the page has not, it would be found in the end.
        |core| _ = core.fault(2, Access::Write),
    );
}

/// The previous race with the two operations exchanged.
#[test]
fn a_fault_against_a_join() {
    race(
        &OPTIMISTIC,
        1,
        |world| {
            world.core(0).map(0..1, Prot::WRITE);
            world.core(0).map(1..2, Prot::READ);
        },
        |core| core.protect(1..2, Prot::WRITE),
        |core| reads(core, 1),
    );
}

/// The region is another one, and for a moment none at all: the fault has to wait for the space's lock.
#[test]
fn a_fault_against_a_mapping_in_the_same_place() {
    race(
        &Locking::ALL,
        1,
        |world| world.core(0).map(0..1, Prot::WRITE),
        |core| core.map(0..1, Prot::READ),
        |core| reads(core, 0),
    );
}

/// The table's deallocation: an empty node of the resident pages is about to go while a fault comes to it.
#[test]
fn a_fault_against_the_end_of_a_node() {
    race(
        &OPTIMISTIC,
        1,
        |world| {
            world.core(0).map(0..2, Prot::WRITE);
            world.core(0).fault(0, Access::Write).unwrap();
            world.core(0).unmap(0..1);
            (0..2).for_each(|_| world.tick_all());
        },
        |core| (0..3).for_each(|_| core.tick()),
        |core| {
            reads(core, 1);
            core.tick();
        },
    );
}

/// A region that a fault has found is there until the fault is done.
#[test]
fn a_fault_against_the_end_of_a_region() {
    race(
        &OPTIMISTIC,
        1,
        |world| world.core(0).map(0..1, Prot::WRITE),
        |core| {
            core.unmap(0..1);
            (0..3).for_each(|_| core.quiesce());
        },
        |core| {
            let _ = core.fault(0, Access::Write);
            core.quiesce();
        },
    );
}

/// A right that is taken is in no translation afterwards.
#[test]
fn a_fault_against_protect() {
    race(
        &OPTIMISTIC,
        1,
        |world| {
            world.core(0).map(0..1, Prot::WRITE);
            world.core(0).fault(0, Access::Write).unwrap();
        },
        |core| core.protect(0..1, Prot::READ),
        |core| reads(core, 0),
    );
}

/// A page that moves is at one place.
#[test]
fn a_fault_against_remap() {
    race(
        &OPTIMISTIC,
        1,
        |world| {
            world.core(0).map(0..1, Prot::WRITE);
            world.core(0).fault(0, Access::Write).unwrap();
        },
        |core| core.remap(0..1, 4),
        |core| {
            let outcome = core.fault(0, Access::Write);
            assert!(matches!(outcome, Ok(Fault::Spurious) | Err(FaultError::NotMapped)), "{outcome:?}");
        },
    );
}
