//! When a node is out of balance, and which rotation mends it.
//!
//! The tree is balanced by weight (Nievergelt and Reingold; Adams). The weight of a subtree is its size plus
//! one. A node is in balance if neither child weighs more than [`DELTA`] times the other. A single rotation
//! mends it if the inner grandchild weighs less than [`RATIO`] times the outer one, a double rotation
//! otherwise.
//!
//! Not every choice of the two numbers works: with Adams' own, trees lose their balance under deletions.
//! Hirai and Yamamoto (Balancing weight-balanced trees, JFP 2011) prove that (3, 2), with weights as here, is
//! the only choice of whole numbers that restores the balance after every insertion and deletion. The paper
//! takes a weight of its own, and proves nothing.
//!
//! A child has at most 3/4 of its parent's weight, so a tree of n entries is at most log(n + 1) / log(4/3)
//! deep, 2.41 times the depth of a perfect one.

use crate::node::{Tree, size};

const DELTA: usize = 3;
const RATIO: usize = 2;

/// No tree is deeper: each node takes 128 bytes, so that there are fewer than 2^40 in 47 bits of addresses.
pub(crate) const MAX_DEPTH: usize = 97;

pub(crate) fn weight<K, T>(tree: Tree<'_, K, T>) -> usize {
    size(tree) + 1
}

/// Returns whether a subtree of weight `this` needs a rotation beside one of weight `that`.
pub(crate) fn is_too_heavy(this: usize, that: usize) -> bool {
    this > DELTA * that
}

/// Returns whether a single rotation will do, given the weights of the heavy child's children.
pub(crate) fn is_single(inner: usize, outer: usize) -> bool {
    inner < RATIO * outer
}
