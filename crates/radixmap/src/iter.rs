//! What the holder of a range does with it.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{ControlFlow, Range};

use crate::leaf::{self, Leaf};
use crate::lock::{Held, Here};
use crate::node::{NodeRef, Part, Step};
use crate::slot::Slot;
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

/// One held slot.
pub struct Entry<'a, V> {
    part: Part<'a>,
    used: &'a mut i64,
    _values: PhantomData<fn(V) -> V>,
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

/// Held slots that have the same value: neighbours in a leaf, if [`Value::joins`] says so, or one slot.
pub struct Run<'a, V> {
    part: Part<'a>,
    used: &'a mut i64,
    value: V,
}

impl<'a, V: Value> Run<'a, V> {
    pub(crate) fn new(part: Part<'a>, used: &'a mut i64) -> Self {
        let word = part.slot.held();
        let value = V::from_words(word.main(), part.second(word));
        Self { part, used, value }
    }

    /// Their keys.
    #[inline(always)]
    pub fn keys(&self) -> Range<u64> {
        self.part.keys.clone()
    }

    /// The value that all of these keys have.
    #[inline(always)]
    pub fn value(&self) -> V {
        self.value
    }

    /// Gives all of these keys the value `value`.
    ///
    /// # Panics
    /// As [`Entry::set`].
    pub fn set(&mut self, value: V) {
        assert!(self.part.whole, "set on a slot that sticks out of the range");
        let (main, second) = value.to_words();
        if second != 0 {
            self.part.set_second(second);
        }
        self.part.slots().iter().for_each(|slot| slot.set(main, second != 0));
    }

    /// The one slot that it is.
    ///
    /// # Panics
    /// If they are several.
    pub fn one(&mut self) -> Entry<'_, V> {
        assert!(self.part.slots().len() == 1, "a run of several slots is not one");
        Entry::new(self.part.twin(self.part.node), self.used)
    }

    /// Takes the value of all of these keys away.
    pub fn clear(&mut self) {
        *self.used -= self.part.slots().len() as i64;
        self.part.slots().iter().for_each(Slot::clear);
    }
}

impl<'a, V: Value> Entry<'a, V> {
    fn new(part: Part<'a>, used: &'a mut i64) -> Self {
        Self { part, used, _values: PhantomData }
    }

    /// The keys of this slot that are in the range.
    #[inline(always)]
    pub fn keys(&self) -> Range<u64> {
        self.part.keys.clone()
    }

    /// The value that all of these keys have.
    #[inline(always)]
    pub fn value(&self) -> Option<V> {
        let word = self.slot().held();
        word.is_value().then(|| V::from_words(word.main(), self.part.second(word)))
    }

    /// Gives all of these keys the value `value`.
    ///
    /// # Panics
    /// If the slot sticks out of the range (an empty one under [`Expand::IfPresent`](crate::Expand)), or if the value has
    /// a second word, the one before it another or none, and the range was made [fit](RangeGuard::fit) for neither that value
    /// nor [all](RangeGuard::widen).
    #[inline(always)]
    pub fn set(&mut self, value: V) {
        assert!(self.part.whole, "set on a slot that sticks out of the range");
        let (main, second) = value.to_words();
        if second != 0 {
            self.part.set_second(second);
        }
        *self.used += i64::from(!self.slot().held().is_used());
        self.part.node.touch(&self.part.keys);
        self.slot().set(main, second != 0);
    }

    /// Takes the value of all of these keys away.
    #[inline(always)]
    pub fn clear(&mut self) {
        *self.used -= i64::from(self.slot().held().is_used());
        self.slot().clear();
    }

    /// The leaf that the slot is of.
    ///
    /// # Panics
    /// If it is above the leaves: it covers more than one key.
    #[inline(always)]
    pub fn leaf(&mut self) -> Leaf<'_> {
        assert!(self.part.node.level() == 0, "the slot is not of a leaf");
        Leaf { node: self.part.node, count: self.used }
    }

    fn slot(&self) -> &Slot {
        self.part.slot
    }
}

impl<V: Value + fmt::Debug> fmt::Debug for Entry<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("keys", &self.keys()).field("value", &self.value()).finish()
    }
}

/// Collects the change of a node's count, to tell Refcache once; also when a visitor panics.
pub(crate) struct Tally<'a, 'p> {
    pub here: &'a Here<'p>,
    pub node: NodeRef<'p>,
    pub used: i64,
}

impl<'a, 'p> Tally<'a, 'p> {
    #[inline(always)]
    pub fn new(here: &'a Here<'p>, node: NodeRef<'p>) -> Self {
        Self { here, node, used: 0 }
    }

    #[inline(always)]
    pub fn tell(&mut self) {
        if self.used != 0 {
            self.node.count(self.here, self.used);
            self.used = 0;
        }
    }
}

impl Drop for Tally<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.tell();
    }
}
