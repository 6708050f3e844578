//! The interface of all counters.

use percore::Pinned;

use crate::OutOfMemory;

/// The call that reports that the last reference is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// The [`Scheme::dec`] that drops it.
    AtOnce,
    /// The first [`Scheme::settle`] after it.
    WhenAsked,
    /// A [`Scheme::settle`] after all cores have [ticked](Scheme::tick) a few times.
    ByEpoch,
    /// None.
    Never,
}

/// A way to count the references to objects. Each object has a [`Count`](Self::Count). The state for each
/// core of the machine is in the scheme itself.
///
/// The holder of a reference may take another ([`inc`](Self::inc)), hand it to another core by
/// synchronisation, and drops each once ([`dec`](Self::dec)). In return exactly one call of `dec` or
/// [`settle`](Self::settle) says that the object has no reference left, and everything that its users did
/// happens before that answer.
///
/// A scheme may remember counts by their address: they stay where they are for `'c`, which is longer than the
/// scheme.
pub trait Scheme<'c>: Sync {
    /// The part of the count that an object carries.
    type Count: Send + Sync + 'c;
    /// The part of a reference that says where it is counted. It travels with the reference, back to
    /// [`dec`](Self::dec).
    type Token: Copy + Send;

    /// Name in tables and on command lines.
    const NAME: &'static str;
    /// The call that reports zero.
    const ZERO: Zero;
    /// The token of the one reference of a new count.
    const FIRST: Self::Token;

    /// Returns a count of one reference, on a machine of `cores` cores.
    ///
    /// # Errors
    /// [`OutOfMemory`], if it needs memory.
    fn count(cores: usize) -> Result<Self::Count, OutOfMemory>;

    /// Returns the bytes of such a count, those that it points to included.
    fn object_bytes(cores: usize) -> usize;

    /// Returns the bytes that each core has for all objects together.
    fn core_bytes(&self) -> usize {
        0
    }

    /// Takes a reference. The caller has one.
    fn inc(&self, pin: &Pinned, count: &'c Self::Count) -> Self::Token;

    /// Drops a reference. Returns true if it was the last.
    fn dec(&self, pin: &Pinned, count: &'c Self::Count, token: Self::Token) -> bool;

    /// Returns whether the last reference is gone, for an object that cannot be found any more, so that only
    /// holders of references use it. Returns true to one caller. After false, call it again.
    fn settle(&self, _pin: &Pinned, _count: &'c Self::Count) -> bool {
        false
    }

    /// Tells the scheme that this core begins to use counts.
    fn online(&self, _pin: &Pinned) {}

    /// Tells the scheme that this core does not use counts until it is online again.
    fn offline(&self, _pin: &Pinned) {}

    /// Does a core's regular work.
    fn tick(&self, _pin: &Pinned) {}
}
