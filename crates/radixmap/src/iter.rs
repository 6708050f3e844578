//! The operations of the holder of a range.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{ControlFlow, Range};

use crate::allocate::OutOfMemory;
use crate::entry::{Entry, Run, Tally};
use crate::expand::{Always, Expand, Never};
use crate::here::Here;
use crate::leaf::{self, Leaf};
use crate::levels::leaf_indices;
use crate::lock::Held;
use crate::node::{NodeRef, Step};
use crate::parts::Part;
use crate::slot::Word;
use crate::value::{Value, words};

/// A locked range of a map. Dropping it unlocks.
///
/// `E` says how it was locked, and so which operations the holder has. A holder of exactly the range has all
/// of them. A holder that did not expand the slots that stick out of the range must not change those:
///
/// ```compile_fail,E0599
/// # use radixmap::{Never, RangeGuard, Value};
/// fn clear<V: Value>(mut guard: RangeGuard<'_, V, Never>) {
///     guard.for_each(|entry| entry.clear()); // would clear keys around the range
/// }
/// ```
/// ```compile_fail,E0599
/// # use radixmap::{IfPresent, RangeGuard, Value};
/// fn set<V: Value>(mut guard: RangeGuard<'_, V, IfPresent>, value: V) {
///     guard.for_each(|entry| entry.set(value)); // would give keys around the range a value
/// }
/// ```
/// ```compile_fail,E0599
/// # use radixmap::{IfDiffering, RangeGuard, Value};
/// fn fill<V: Value>(mut guard: RangeGuard<'_, V, IfDiffering>, value: V) {
///     guard.fill(value);
/// }
/// ```
/// The holder may change the others:
///
/// ```
/// # use radixmap::{Never, RangeGuard, Value};
/// fn clear_whole<V: Value>(mut guard: RangeGuard<'_, V, Never>) {
///     guard.for_each(|entry| entry.whole().into_iter().for_each(|mut entry| entry.clear()));
/// }
/// ```
/// The guard is tied to the caller's pin: while it is held, the caller must not sleep, and the Refcache
/// domain must not tick on this core. A guard that is leaked holds its keys, and this core's ticks, for ever.
pub struct RangeGuard<'g, V, E = Always> {
    held: Held<'g>,
    _types: PhantomData<fn(V, E) -> V>,
}

impl<'g, V: Value, E: Expand> RangeGuard<'g, V, E> {
    #[inline(always)]
    pub(crate) fn new(held: Held<'g>) -> Self {
        Self { held, _types: PhantomData }
    }

    /// Returns the locked keys.
    #[inline(always)]
    pub fn keys(&self) -> Range<u64> {
        self.held.keys()
    }

    /// Calls `f` with every held slot, left to right, clipped to the range: a page, or a larger span of keys
    /// that all have the same value or none. Each slot gets a word of its own. For many keys,
    /// [`for_each_used`](Self::for_each_used) costs less, now and later.
    #[inline(always)]
    pub fn for_each(&mut self, mut f: impl FnMut(&mut Entry<'_, V, E>)) {
        let _ = self.try_for_each(|entry| {
            f(entry);
            ControlFlow::<()>::Continue(())
        });
    }

    /// Calls `f` as [`for_each`](Self::for_each) does, until `f` breaks off.
    #[inline(always)]
    pub fn try_for_each<B>(
        &mut self,
        f: impl FnMut(&mut Entry<'_, V, E>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.visit(self.keys(), f)
    }

    /// Calls `f` as [`try_for_each`](Self::try_for_each) does, for `keys`, out of which slots may stick.
    ///
    /// # Panics
    /// Panics if `keys` is not within the range.
    #[inline(always)]
    pub fn try_for_each_in<B>(
        &mut self,
        keys: Range<u64>,
        f: impl FnMut(&mut Entry<'_, V, Never>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.check(&keys);
        self.visit(keys, f)
    }

    #[inline(always)]
    fn visit<B, F: Expand>(
        &self,
        keys: Range<u64>,
        mut f: impl FnMut(&mut Entry<'_, V, F>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.held.walk(keys, |node, run| {
            let mut tally = Tally::new(&self.held.here, node);
            node.own_parts(run).try_for_each(|part| f(&mut Entry::new(part, tally.here, &mut tally.used)))
        })
    }

    /// Calls `f` with every held slot that has a value, left to right. It only reads the other slots.
    #[inline]
    pub fn for_each_used(&mut self, mut f: impl FnMut(&mut Run<'_, V, E>)) {
        let _ = self.try_for_each_used(|run| {
            f(run);
            ControlFlow::<()>::Continue(())
        });
    }

    /// Calls `f` as [`for_each_used`](Self::for_each_used) does, until `f` breaks off.
    #[inline]
    pub fn try_for_each_used<B>(
        &mut self,
        f: impl FnMut(&mut Run<'_, V, E>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.visit_used(self.held.node(), self.keys(), f)
    }

    /// Calls `f` as [`try_for_each_used`](Self::try_for_each_used) does, for `keys`, out of which slots may
    /// stick.
    ///
    /// # Panics
    /// Panics if `keys` is not within the range.
    #[inline]
    pub fn try_for_each_used_in<B>(
        &mut self,
        keys: Range<u64>,
        f: impl FnMut(&mut Run<'_, V, Never>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.check(&keys);
        self.visit_used(self.held.node().descend(&self.held.here, &keys), keys, f)
    }

    #[inline]
    fn visit_used<B, F: Expand>(
        &self,
        node: NodeRef<'g>,
        keys: Range<u64>,
        mut f: impl FnMut(&mut Run<'_, V, F>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut tally = Tally::new(&self.held.here, node);
        let show = &mut |_: &mut (), part, here: &_, used: &mut _| f(&mut Run::new(part, here, used));
        let enter = &mut |_: &mut (), _: &Tally<'_, '_>, _: &_| ControlFlow::Continue(());
        visit_used(&mut tally, keys, V::joins, &mut (), show, enter)
    }

    /// Calls `used` with every held slot that has a value, as [`for_each_used`](Self::for_each_used) does.
    /// Before a leaf's slots, calls `leaf` with the leaf and its keys if all of them are locked. Both get
    /// `state`.
    #[inline]
    pub fn for_each_used_and_whole_leaf<S>(
        &mut self,
        state: &mut S,
        mut leaf: impl FnMut(&mut S, Leaf<'_>, Range<u64>),
        mut used: impl FnMut(&mut S, &mut Run<'_, V, E>),
    ) {
        let show = &mut |state: &mut S, part, here: &_, count: &mut _| {
            used(state, &mut Run::new(part, here, count));
            ControlFlow::<()>::Continue(())
        };
        let enter = &mut |state: &mut S, tally: &Tally<'_, '_>, keys: &Range<u64>| {
            if tally.node.level() == 0 && leaf::is_whole(keys) {
                leaf(state, Leaf { node: tally.node, here: tally.here }, keys.clone());
            }
            ControlFlow::Continue(())
        };
        let mut tally = Tally::new(&self.held.here, self.held.node());
        let _ = visit_used(&mut tally, self.keys(), V::joins, state, show, enter);
    }

    pub(crate) fn into_held(self) -> Held<'g> {
        self.held
    }

    pub(crate) fn here(&self) -> &Here<'g> {
        &self.held.here
    }

    pub(crate) fn node(&self) -> NodeRef<'g> {
        self.held.node()
    }

    /// Expands folded slots until none sticks out of `keys`, a range within the locked one. Then each of
    /// these keys can be changed without the keys around. Values do not change, and all of the range stays
    /// locked. If a slot stuck out of the range, it does so no more, and the keys around it are unlocked.
    ///
    /// # Panics
    /// Panics if `keys` is not within the range.
    pub fn split(&mut self, keys: Range<u64>) -> Result<(), OutOfMemory> {
        self.check(&keys);
        self.held.split(keys)
    }

    /// Allocates memory for second words of `keys`, a range within the locked one, if it is needed. Then
    /// their slots, as they are folded now, can be set to any values. Nothing else changes.
    ///
    /// # Panics
    /// Panics if `keys` is not within the range.
    pub fn widen(&mut self, keys: Range<u64>) -> Result<(), OutOfMemory> {
        self.check(&keys);
        self.held.widen(keys, NodeRef::widen)
    }

    /// Allocates memory as [`widen`](Self::widen) does, but for one value, which often needs none.
    ///
    /// # Panics
    /// Panics where [`widen`](Self::widen) does.
    #[inline]
    pub fn fit(&mut self, keys: Range<u64>, value: V) -> Result<(), OutOfMemory> {
        self.check(&keys);
        match value.to_words() {
            (_, 0) => Ok(()),
            (_, second) => self.held.widen(keys, |node| node.fit(second)),
        }
    }

    /// Gives the keys of `block` the value `value` as one slot, and removes their leaf. The keys are one
    /// [`BLOCK`](crate::BLOCK) within the locked range. If there is no memory for a second word, nothing has
    /// changed.
    ///
    /// # Panics
    /// Panics if `block` is no block within the range, or has no leaf.
    pub fn fold(&mut self, block: Range<u64>, value: V) -> Result<(), OutOfMemory> {
        self.check(&block);
        let (main, second) = words(value);
        self.held.fold(block, main, second)
    }

    #[inline(always)]
    fn check(&self, keys: &Range<u64>) {
        let held = self.keys();
        assert!(held.start <= keys.start && keys.end <= held.end, "keys that are not held");
    }

    /// Calls `visit` with the leaf that contains the whole range, if there is one.
    pub fn with_leaf<R>(&mut self, visit: impl FnOnce(Leaf<'_>) -> R) -> Option<R> {
        let node = self.held.node();
        (node.level() == 0).then(|| visit(Leaf { node, here: &self.held.here }))
    }

    /// Calls `visit` with the leaf of the keys of `block`, which are one [`BLOCK`](crate::BLOCK), if there is
    /// one.
    ///
    /// # Panics
    /// Panics if `block` is no block within the range.
    pub fn with_leaf_of<R>(&mut self, block: Range<u64>, visit: impl FnOnce(Leaf<'_>) -> R) -> Option<R> {
        self.check(&block);
        assert!(leaf::is_whole(&block) && leaf_indices(&block).start == 0, "not a block: {block:?}");
        let node = self.held.node().descend(&self.held.here, &block);
        (node.level() == 0).then(|| visit(Leaf { node, here: &self.held.here }))
    }

    /// Calls `visit` with every leaf of which all keys are locked, and these keys, left to right.
    pub fn for_each_whole_leaf(&mut self, mut visit: impl FnMut(Leaf<'_>, Range<u64>)) {
        let visit = &mut |node, keys| visit(Leaf { node, here: &self.held.here }, keys);
        each_whole_leaf(&self.held.here, self.held.node(), self.keys(), visit);
    }

    /// Returns whether no key of the range has a value.
    #[inline(always)]
    pub fn is_empty(&mut self) -> bool {
        let unused = |node: NodeRef<'g>, run| {
            let slots = node.indices(&run);
            match node.slots().end_of_unused(slots.clone()) < slots.end {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        self.held.walk(self.keys(), unused).is_continue()
    }
}

impl<V: Value> RangeGuard<'_, V> {
    /// Gives every key of the range the value `value`. A held interior slot stays folded.
    ///
    /// # Panics
    /// Panics where [`Entry::set`] does.
    #[inline(always)]
    pub fn fill(&mut self, value: V) {
        self.fill_slots(self.keys(), value, |is_aligned| debug_assert!(is_aligned));
    }

    /// Gives `keys` the value as [`fill`](Self::fill) does. No slot may stick out of them (see
    /// [`split`](Self::split)).
    ///
    /// # Panics
    /// Panics if `keys` is not within the range, or a slot sticks out of it, and where [`Entry::set`] does.
    #[inline(always)]
    pub fn fill_in(&mut self, keys: Range<u64>, value: V) {
        self.check(&keys);
        self.fill_slots(keys, value, |is_aligned| {
            assert!(is_aligned, "fill of a slot that sticks out of the keys")
        });
    }

    /// Calls `f` with the slot of `key` alone, after splitting it off if it is part of a larger one.
    ///
    /// # Panics
    /// Panics if the key is not in the range.
    #[inline(always)]
    pub fn with_key<T>(
        &mut self,
        key: u64,
        f: impl FnOnce(&mut Entry<'_, V>) -> T,
    ) -> Result<T, OutOfMemory> {
        self.check(&(key..key + 1));
        let leaf = self.held.leaf_of(key)?;
        leaf.slots().open_held(leaf.indices(&(key..key + 1)).start);
        let mut tally = Tally::new(&self.held.here, leaf);
        Ok(f(&mut Entry::new(leaf.part(key..key + 1), tally.here, &mut tally.used)))
    }

    #[inline(always)]
    fn fill_slots(&mut self, keys: Range<u64>, value: V, check: impl Fn(bool)) {
        let (main, second) = words(value);
        let (word, folds) = (Word::value(main, second != 0).locked(), V::joins(main));
        let _ = self.held.walk(keys, |node, run| {
            check(node.is_aligned(&run));
            if second != 0 {
                node.set_second(&run, second);
            }
            let slots = node.indices(&run);
            let unused = node.slots().count_unused(slots.clone());
            node.touch(&run);
            node.set_slots(slots, word, folds);
            node.count_if_changed(&self.held.here, unused as i64);
            ControlFlow::<()>::Continue(())
        });
    }
}

impl<V, E> fmt::Debug for RangeGuard<'_, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RangeGuard").field(&self.held.keys()).finish()
    }
}

/// Shows each leaf at or below `node` to `visit`, with its keys, if all of them are in the held `keys`.
fn each_whole_leaf<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
    visit: &mut impl FnMut(NodeRef<'p>, Range<u64>),
) {
    if node.level() > 0 {
        let mut left = node.indices(&keys);
        while let Some(at) = node.first_child(left.clone()) {
            left.start = at + 1;
            let part = node.part_at(at, &keys);
            if let Step::Child(child) = node.step(here, part.slot) {
                each_whole_leaf(here, child, part.keys, visit);
            }
        }
    } else if leaf::is_whole(&keys) {
        visit(node, keys);
    }
}

/// Shows the used slots of `keys` below a node to `show`, joined as `joins` says, with the sum to which
/// `show` adds its changes of the node's count. At every node on the way it first asks `enter` whether to go
/// on, with the keys that it would visit there. Both get `state`.
#[inline(always)]
pub(crate) fn visit_used<'p, S, B>(
    tally: &mut Tally<'_, 'p>,
    keys: Range<u64>,
    joins: impl Fn(u64) -> bool + Copy,
    state: &mut S,
    show: &mut impl FnMut(&mut S, Part<'p>, &Here<'p>, &mut i64) -> ControlFlow<B>,
    enter: &mut impl FnMut(&mut S, &Tally<'_, 'p>, &Range<u64>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    enter(state, tally, &keys)?;
    if tally.node.level() > 0 {
        return visit_used_above(tally, keys, joins, state, show, enter);
    }
    let mut left = keys;
    while let Some(part) = tally.node.take_used_run(&mut left, joins) {
        show(state, part, tally.here, &mut tally.used)?;
    }
    ControlFlow::Continue(())
}

/// Visits used slots as `visit_used` does, above the leaves.
fn visit_used_above<'p, S, B>(
    tally: &mut Tally<'_, 'p>,
    keys: Range<u64>,
    joins: impl Fn(u64) -> bool + Copy,
    state: &mut S,
    show: &mut impl FnMut(&mut S, Part<'p>, &Here<'p>, &mut i64) -> ControlFlow<B>,
    enter: &mut impl FnMut(&mut S, &Tally<'_, 'p>, &Range<u64>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let (node, here) = (tally.node, tally.here);
    let mut left = node.indices(&keys);
    while let Some(at) = node.next_used(left.clone()) {
        left.start = at + 1;
        match node.step(here, &node.slots().0[at]) {
            Step::Child(child) => {
                let keys = node.part_at(at, &keys).keys;
                visit_used(&mut Tally::new(here, child), keys, joins, state, show, enter)?;
            }
            // A child that no core had entered may have collapsed since it was found, which has updated the
            // count.
            Step::Slot(word) if !word.is_used() => {}
            Step::Slot(_) => {
                let part = node.used_part_at(at, &keys, joins);
                left.start = part.range().end;
                show(state, part, here, &mut tally.used)?;
            }
        }
    }
    ControlFlow::Continue(())
}
