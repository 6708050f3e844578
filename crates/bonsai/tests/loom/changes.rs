//! Each kind of change, against lookups of what it moves.

use bonsai::Update;

use crate::machine::{Look, Model, explore_two_writers};

const IN_PLACE: Model = Model { update: Update::InPlace, keys: &[], change: |_| {}, retires: 0 };

#[test]
fn a_new_leaf() {
    static MODEL: Model = Model { keys: &[2, 1], change: |core| core.insert(3), ..IN_PLACE };
    MODEL.explore(&[Look::Always(1), Look::Maybe(3), Look::Floor(4, &[2, 3])]);
}

#[test]
fn a_new_value() {
    static MODEL: Model = Model { keys: &[2, 1, 3], change: |core| core.insert(3), ..IN_PLACE };
    MODEL.explore(&[Look::Always(3), Look::Ceiling(3, &[3])]);
}

/// 1, 2, 3 lean to the right, and 4 is too much at 1.
#[test]
fn a_single_rotation() {
    static MODEL: Model = Model { keys: &[1, 2, 3], change: |core| core.insert(4), retires: 2, ..IN_PLACE };
    MODEL.explore(&[
        Look::Always(1),
        Look::Always(2),
        Look::Always(3),
        Look::Maybe(4),
        Look::Floor(9, &[3, 4]),
    ]);
}

/// The same from the inner side.
#[test]
fn a_double_rotation() {
    static MODEL: Model = Model { keys: &[1, 4, 3], change: |core| core.insert(2), retires: 3, ..IN_PLACE };
    MODEL.explore(&[
        Look::Always(1),
        Look::Always(3),
        Look::Always(4),
        Look::Maybe(2),
        Look::Ceiling(2, &[2, 3]),
    ]);
}

/// 8 is too much at 5, and at 2, which is the root: the first rotation's nodes are published by the second.
#[test]
fn a_rotation_above_a_rotation() {
    static MODEL: Model =
        Model { keys: &[1, 2, 3, 4, 5, 6, 7], change: |core| core.insert(8), retires: 4, ..IN_PLACE };
    MODEL.explore(&[Look::Always(4), Look::Always(6), Look::Maybe(8)]);
}

#[test]
fn removal_of_a_leaf() {
    static MODEL: Model = Model { keys: &[2, 1, 3], change: |core| core.remove(3), retires: 1, ..IN_PLACE };
    MODEL.explore(&[Look::Always(2), Look::Maybe(3), Look::Floor(3, &[2, 3])]);
}

#[test]
fn removal_of_a_node_with_one_child() {
    static MODEL: Model =
        Model { keys: &[2, 1, 3, 4], change: |core| core.remove(3), retires: 1, ..IN_PLACE };
    MODEL.explore(&[Look::Always(4), Look::Maybe(3), Look::Ceiling(3, &[3, 4])]);
}

/// 2 over 1 and 4 over 3 and 5: 3 takes the place of 2.
#[test]
fn removal_of_a_node_with_two_children() {
    static MODEL: Model =
        Model { keys: &[2, 1, 4, 3, 5], change: |core| core.remove(2), retires: 3, ..IN_PLACE };
    MODEL.explore(&[
        Look::Always(1),
        Look::Always(3),
        Look::Always(4),
        Look::Always(5),
        Look::Maybe(2),
        Look::Floor(2, &[1, 2]),
        Look::Ceiling(2, &[2, 3]),
    ]);
}

/// The same tree: without 1 it leans to the right too much.
#[test]
fn removal_with_a_rotation() {
    static MODEL: Model =
        Model { keys: &[2, 1, 4, 3, 5], change: |core| core.remove(1), retires: 3, ..IN_PLACE };
    MODEL.explore(&[Look::Always(2), Look::Always(3), Look::Always(5), Look::Maybe(1)]);
}

/// The way to 3 is copied up to the root.
#[test]
fn copies() {
    static MODEL: Model =
        Model { update: Update::Copying, keys: &[2, 1], change: |core| core.insert(3), retires: 1 };
    MODEL.explore(&[Look::Always(1), Look::Maybe(3)]);
}

#[test]
fn writers_take_turns() {
    explore_two_writers();
}
