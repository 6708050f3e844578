//! The way down to a key: a stack of nodes that needs no memory.

use crate::balance::MAX_DEPTH;
use crate::node::{Found, Side};

/// A node, and the side on which the way goes on.
pub(crate) type Step<'g, K, T> = (Found<'g, K, T>, Side);

/// Steps from the top down.
pub(crate) struct Path<'g, K, T> {
    steps: [Option<Step<'g, K, T>>; MAX_DEPTH],
    len: usize,
}

impl<'g, K, T> Path<'g, K, T> {
    pub fn new() -> Self {
        Self { steps: [const { None }; MAX_DEPTH], len: 0 }
    }

    /// One step further down.
    pub fn push(&mut self, node: Found<'g, K, T>, side: Side) {
        self.steps[self.len] = Some((node, side));
        self.len += 1;
    }

    /// Back up, from the lowest step.
    pub fn pop(&mut self) -> Option<Step<'g, K, T>> {
        self.len = self.len.checked_sub(1)?;
        self.steps[self.len]
    }

    /// All steps.
    pub fn steps(&self) -> impl Iterator<Item = Step<'g, K, T>> {
        self.steps[..self.len].iter().copied().flatten()
    }
}
