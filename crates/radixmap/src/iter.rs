//! What the holder of a range does with it.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{ControlFlow, Range};

use crate::entry::{Entry, Run, Tally};
use crate::leaf::{self, Leaf};
use crate::lock::{Held, Here};
use crate::node::{NodeRef, Part, Step};
use crate::{OutOfMemory, Value};

/// A locked range of a map. Dropping it unlocks.
///
/// The guard is tied to the caller's pin: no sleep, and no tick of the Refcache domain on this core, while it is
/// held.
pub struct RangeGuard<'g, V> {
    held: Held<'g>,
    _values: PhantomData<fn(V) -> V>,
}

impl<'g, V: Value> RangeGuard<'g, V> {
    #[inline(always)]
    pub(crate) fn new(held: Held<'g>) -> Self {
        Self { held, _values: PhantomData }
    }

    /// The locked keys.
    #[inline(always)]
    pub fn keys(&self) -> Range<u64> {
        self.held.keys()
    }

    /// Calls `f` with every held slot, left to right, clipped to the range: a page, or a larger span of keys that all
    /// have the same value or none.
    #[inline(always)]
    pub fn for_each(&mut self, mut f: impl FnMut(&mut Entry<'_, V>)) {
        let _ = self.try_for_each(|entry| {
            f(entry);
            ControlFlow::<()>::Continue(())
        });
    }

    /// The same, until `f` breaks off.
    #[inline(always)]
    pub fn try_for_each<B>(&mut self, f: impl FnMut(&mut Entry<'_, V>) -> ControlFlow<B>) -> ControlFlow<B> {
        self.try_for_each_in(self.keys(), f)
    }

    /// The same for `keys`, a range within the locked one.
    #[inline(always)]
    pub fn try_for_each_in<B>(
        &mut self,
        keys: Range<u64>,
        mut f: impl FnMut(&mut Entry<'_, V>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.held.walk(keys, |node, run| {
            let mut tally = Tally::new(&self.held.here, node);
            node.parts(run).try_for_each(|part| f(&mut Entry::new(part, &mut tally.used)))
        })
    }

    /// Calls `f` with every held slot that has a value, left to right, and spends no more than a look on the others.
    #[inline]
    pub fn for_each_used(&mut self, mut f: impl FnMut(&mut Run<'_, V>)) {
        self.for_each_used_and_leaf(&mut f, &mut |_| {});
    }

    /// The same, and calls `leaf` with every leaf on the way.
    #[inline]
    pub(crate) fn for_each_used_and_leaf(
        &mut self,
        f: &mut impl FnMut(&mut Run<'_, V>),
        leaf: &mut impl FnMut(Leaf<'_>),
    ) {
        visit_used(&mut Tally::new(&self.held.here, self.held.node()), self.keys(), f, leaf);
    }

    pub(crate) fn here(&self) -> &Here<'g> {
        &self.held.here
    }

    pub(crate) fn node(&self) -> NodeRef<'g> {
        self.held.node()
    }

    /// Expands folded slots until none sticks out of `keys`, a range within the locked one: then each of these keys can be
    /// set without the keys around. Values do not change, and all that was locked stays locked. The range must not have
    /// been locked by [`Expand::Never`](crate::Expand), nor `keys` lie in an empty slot that sticks out of it.
    ///
    /// # Panics
    /// If `keys` is empty or not within the range.
    pub fn split(&mut self, keys: Range<u64>) -> Result<(), OutOfMemory> {
        self.check(&keys);
        self.held.split(keys)
    }

    /// Gets memory for second words of `keys`, a range within the locked one, if it is needed: then their slots, as they
    /// are folded now, can be set to any values. Nothing else changes.
    ///
    /// # Panics
    /// If `keys` is empty or not within the range.
    pub fn widen(&mut self, keys: Range<u64>) -> Result<(), OutOfMemory> {
        self.check(&keys);
        self.held.widen(keys, NodeRef::widen)
    }

    /// The same for one value: often that needs no memory.
    ///
    /// # Panics
    /// As [`widen`](RangeGuard::widen).
    pub fn fit(&mut self, keys: Range<u64>, value: V) -> Result<(), OutOfMemory> {
        self.check(&keys);
        match value.to_words() {
            (_, 0) => Ok(()),
            (_, second) => self.held.widen(keys, |node| node.fit(second)),
        }
    }

    /// Gives the keys of `block`, one [`BLOCK`](crate::BLOCK) within the locked range, which must have a leaf, the value
    /// `value` as one slot: the leaf goes. If there is no memory for a second word nothing has changed.
    ///
    /// # Panics
    /// If `block` is no block within the range, or has no leaf.
    pub fn fold(&mut self, block: Range<u64>, value: V) -> Result<(), OutOfMemory> {
        self.check(&block);
        let (main, second) = value.to_words();
        self.held.fold(block, main, second)
    }

    fn check(&self, keys: &Range<u64>) {
        assert!(keys.start < keys.end && self.keys().start <= keys.start && keys.end <= self.keys().end);
    }

    /// Gives every key of the range the value `value`; a held interior slot stays folded.
    ///
    /// # Panics
    /// As [`Entry::set`].
    #[inline(always)]
    pub fn fill(&mut self, value: V) {
        let (main, second) = value.to_words();
        let _ = self.held.walk(self.keys(), |node, run| {
            assert!(node.is_aligned(&run), "fill of a slot that sticks out of the range");
            if second != 0 {
                node.set_second(&run, second);
            }
            let slots = node.slots_of(&run);
            let unused = slots.iter().filter(|slot| !slot.held().is_used()).count();
            node.touch(&run);
            slots.iter().for_each(|slot| slot.set(main, second != 0));
            node.count_if_changed(&self.held.here, unused as i64);
            ControlFlow::<()>::Continue(())
        });
    }

    /// Calls `visit` with the leaf that all of the range is of, if there is one.
    pub fn with_leaf<R>(&mut self, visit: impl FnOnce(Leaf<'_>) -> R) -> Option<R> {
        let node = self.held.node();
        (node.level() == 0).then(|| {
            let mut tally = Tally::new(&self.held.here, node);
            visit(Leaf { node, count: &mut tally.used })
        })
    }

    /// Calls `visit` with every leaf of which all keys are locked, and these keys, left to right.
    pub fn for_each_whole_leaf(&mut self, mut visit: impl FnMut(Leaf<'_>, Range<u64>)) {
        let _ = self.held.walk(self.keys(), |node, run| {
            if node.level() == 0 && leaf::is_whole(&run) {
                let mut tally = Tally { here: &self.held.here, node, used: 0 };
                visit(Leaf { node, count: &mut tally.used }, run);
            }
            ControlFlow::<()>::Continue(())
        });
    }

    /// Whether no key of the range has a value.
    #[inline(always)]
    pub fn is_empty(&mut self) -> bool {
        let unused = |node: NodeRef<'g>, run| match node.parts(run).any(|part| part.slot.held().is_used()) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        self.held.walk(self.keys(), unused).is_continue()
    }
}

impl<V> fmt::Debug for RangeGuard<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RangeGuard").field(&self.held.keys()).finish()
    }
}

/// `for_each_used_and_leaf` below a node.
fn visit_used<V: Value>(
    tally: &mut Tally<'_, '_>,
    keys: Range<u64>,
    f: &mut impl FnMut(&mut Run<'_, V>),
    leaf: &mut impl FnMut(Leaf<'_>),
) {
    if tally.node.level() == 0 {
        leaf(Leaf { node: tally.node, count: &mut tally.used });
    }
    for part in used::<V>(tally.node, keys) {
        match tally.node.step(tally.here, part.slot) {
            Step::Child(child) => visit_used(&mut Tally::new(tally.here, child), part.keys, f, leaf),
            // A child that nobody had entered may have collapsed since it was found: that told the count.
            Step::Slot(word) if !word.is_used() => {}
            Step::Slot(_) => f(&mut Run::new(part, &mut tally.used)),
        }
    }
}

/// The used slots of a node, as a value joins them.
#[inline(always)]
pub(crate) fn used<V: Value>(node: NodeRef<'_>, keys: Range<u64>) -> impl Iterator<Item = Part<'_>> {
    node.used_parts(keys, V::joins)
}
