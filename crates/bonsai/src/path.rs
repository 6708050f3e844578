//! The way down to a key: a stack of nodes that needs no memory.
//!
//! The first `len` steps are there. The others are never written: most ways have a handful, and an operation
//! should not pay for the longest.

use core::mem::MaybeUninit;

use crate::balance::MAX_DEPTH;
use crate::node::{Found, Side};

/// A node, and the side on which the way goes on.
pub(crate) type Step<'g, K, T> = (Found<'g, K, T>, Side);

/// Steps from the top down.
pub(crate) struct Path<'g, K, T> {
    steps: [MaybeUninit<Step<'g, K, T>>; MAX_DEPTH],
    len: usize,
}

impl<'g, K, T> Path<'g, K, T> {
    pub fn new() -> Self {
        Self { steps: [const { MaybeUninit::uninit() }; MAX_DEPTH], len: 0 }
    }

    /// One step further down.
    pub fn push(&mut self, node: Found<'g, K, T>, side: Side) {
        self.steps[self.len].write((node, side));
        self.len += 1;
    }

    /// Back up, from the lowest step.
    pub fn pop(&mut self) -> Option<Step<'g, K, T>> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: pushed, since it was among the first `len`.
        Some(unsafe { self.steps[self.len].assume_init() })
    }

    /// All steps.
    pub fn steps(&self) -> impl Iterator<Item = Step<'g, K, T>> {
        // SAFETY: pushed, as the first `len` are.
        self.steps[..self.len].iter().map(|step| unsafe { step.assume_init() })
    }
}
