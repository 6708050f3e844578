//! What the holder of a range sees of it: one slot, or a run of slots that say the same.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;

use crate::Value;
use crate::leaf::Leaf;
use crate::lock::Here;
use crate::node::{NodeRef, Part};
use crate::slot::Slot;

/// One held slot.
pub struct Entry<'a, V> {
    part: Part<'a>,
    used: &'a mut i64,
    _values: PhantomData<fn(V) -> V>,
}

impl<'a, V: Value> Entry<'a, V> {
    #[inline(always)]
    pub(crate) fn new(part: Part<'a>, used: &'a mut i64) -> Self {
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
