//! The slots that the holder of a range sees: one, or a run with the same value.
//!
//! The type says how the range was locked, because only a slot whose keys are all in the range may be
//! changed. So `set` and `clear` exist where no slot sticks out, and otherwise [`Entry::whole`] and
//! [`Run::whole`] check each slot.

use core::fmt;
use core::marker::PhantomData;
use core::mem;
use core::ops::Range;

use crate::expand::{Always, Expand, ExpandUsed, Mode};
use crate::here::Here;
use crate::leaf::Leaf;
use crate::node::NodeRef;
use crate::parts::Part;
use crate::slot::{Slot, Word};
use crate::value::{Value, words};

/// One held slot, of a range that was locked as `E` says.
pub struct Entry<'a, V, E = Always> {
    part: Part<'a>,
    here: &'a Here<'a>,
    used: &'a mut i64,
    _types: PhantomData<fn(V, E) -> V>,
}

impl<'a, V: Value, E: Expand> Entry<'a, V, E> {
    #[inline(always)]
    pub(crate) fn new(part: Part<'a>, here: &'a Here<'a>, used: &'a mut i64) -> Self {
        Self { part, here, used, _types: PhantomData }
    }

    /// Returns the keys of this slot that are in the range.
    #[inline(always)]
    pub fn keys(&self) -> Range<u64> {
        self.part.keys.clone()
    }

    /// Returns the value that all of these keys have.
    #[inline(always)]
    pub fn value(&self) -> Option<V> {
        let word = self.slot().held();
        word.is_value().then(|| V::from_words(word.main(), self.part.second(word)))
    }

    /// Returns the slot in a form that can be changed, unless it sticks out of the range.
    #[inline(always)]
    pub fn whole(&mut self) -> Option<Entry<'_, V>> {
        let whole = E::MODE == Mode::Always || self.part.whole;
        whole.then(|| Entry::new(self.part.again(), self.here, self.used))
    }

    /// Returns the slot in a form that can be changed, and its value, if it has one and does not stick out of
    /// the range.
    #[inline(always)]
    pub fn used(&mut self) -> Option<(Entry<'_, V>, V)> {
        let value = self.value().filter(|_| E::MODE.expands_used() || self.part.whole)?;
        Some((Entry::new(self.part.again(), self.here, self.used), value))
    }

    /// Returns the slot, which has a word of its own.
    #[inline(always)]
    fn slot(&self) -> &Slot {
        self.part.slot
    }
}

impl<V: Value, E: ExpandUsed> Entry<'_, V, E> {
    /// Takes the value of all of these keys away.
    #[inline(always)]
    pub fn clear(&mut self) {
        *self.used -= i64::from(self.slot().held().is_used());
        self.slot().put(Word::EMPTY.locked());
    }
}

impl<V: Value> Entry<'_, V> {
    /// Gives all of these keys the value `value`.
    ///
    /// # Panics
    /// Panics if the value has a second word, the value before it has another or none, and the range was made
    /// [fit](crate::RangeGuard::fit) neither for that value nor for [all](crate::RangeGuard::widen). Panics
    /// if the value's words have bits that are not for values.
    #[inline(always)]
    pub fn set(&mut self, value: V) {
        let (main, second) = words(value);
        if second != 0 {
            self.part.set_second(second);
        }
        *self.used += i64::from(!self.slot().held().is_used());
        self.part.node.touch(&self.part.keys);
        self.slot().put(Word::value(main, second != 0).locked());
    }

    /// Returns the slot's leaf.
    ///
    /// # Panics
    /// Panics if the slot is above the leaves, and so covers more than one key.
    #[inline(always)]
    pub fn leaf(&mut self) -> Leaf<'_> {
        assert!(self.part.node.level() == 0, "the slot is not of a leaf");
        Leaf { node: self.part.node, here: self.here }
    }
}

impl<V: Value + fmt::Debug, E: Expand> fmt::Debug for Entry<'_, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("keys", &self.keys()).field("value", &self.value()).finish()
    }
}

/// Held slots that have the same value: neighbours in a node, if [`Value::joins`] returns true, or one slot.
pub struct Run<'a, V, E = Always> {
    part: Part<'a>,
    here: &'a Here<'a>,
    used: &'a mut i64,
    value: V,
    /// Set if the slots are known to have the value still. Otherwise the first slot is read.
    as_shown: bool,
    _type: PhantomData<E>,
}

impl<V: Value + fmt::Debug, E: Expand> fmt::Debug for Run<'_, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("keys", &self.keys()).field("value", &self.value).finish()
    }
}

impl<'a, V: Value, E: Expand> Run<'a, V, E> {
    #[inline(always)]
    pub(crate) fn new(part: Part<'a>, here: &'a Here<'a>, used: &'a mut i64) -> Self {
        let word = part.word();
        let value = V::from_words(word.main(), part.second(word));
        Self { part, here, used, value, as_shown: true, _type: PhantomData }
    }

    /// Returns their keys that are in the range.
    #[inline(always)]
    pub fn keys(&self) -> Range<u64> {
        self.part.keys.clone()
    }

    /// Returns the value that all of these keys had when they were shown.
    #[inline(always)]
    pub fn value(&self) -> V {
        self.value
    }

    /// Returns whether each key has a slot of its own.
    #[inline(always)]
    pub fn is_in_leaf(&self) -> bool {
        self.part.node.level() == 0
    }

    /// Returns the slots in a form that can be changed, unless they stick out of the range.
    #[inline(always)]
    pub fn whole(&mut self) -> Option<Run<'_, V>> {
        let as_shown = mem::take(&mut self.as_shown);
        let Self { here, value, .. } = *self;
        let whole = E::MODE.expands_used() || self.part.whole;
        let part = self.part.again();
        whole.then_some(Run { part, here, used: self.used, value, as_shown, _type: PhantomData })
    }
}

impl<V: Value, E: ExpandUsed> Run<'_, V, E> {
    /// Gives all of these keys the value `value`.
    ///
    /// # Panics
    /// Panics where [`Entry::set`] does.
    #[inline(always)]
    pub fn set(&mut self, value: V) {
        let (main, second) = words(value);
        let folds = V::joins(main);
        if second != 0 && !(self.as_shown && self.value.to_words().1 == second) {
            self.part.set_second(second);
        }
        if !self.is_used() {
            *self.used += self.len();
        }
        self.as_shown = false;
        self.part.set(Word::value(main, second != 0).locked(), folds);
    }

    /// Takes the value of all of these keys away.
    #[inline(always)]
    pub fn clear(&mut self) {
        if self.is_used() {
            *self.used -= self.len();
        }
        self.as_shown = false;
        self.part.set(Word::EMPTY.locked(), true);
    }

    /// Returns the run's only slot.
    ///
    /// # Panics
    /// Panics if there are several.
    #[inline(always)]
    pub fn one(&mut self) -> Entry<'_, V> {
        assert!(self.len() == 1, "a run of several slots is not one");
        self.as_shown = false;
        self.part.node.slots().open_held(self.part.index());
        Entry::new(self.part.again(), self.here, self.used)
    }

    /// Returns whether the slots have a value. They change together.
    #[inline(always)]
    fn is_used(&self) -> bool {
        self.as_shown || self.part.word().is_used()
    }

    #[inline(always)]
    fn len(&self) -> i64 {
        self.part.len() as i64
    }
}

/// Sums up the changes of a node's count and reports them to Refcache once, even when a visitor panics.
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
