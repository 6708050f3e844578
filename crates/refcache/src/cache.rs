//! A core's delta cache: direct-mapped, from an object to what this core has not told its global count yet.
//!
//! Only the owner core touches it, so nothing here is atomic. An entry stays when its delta comes back to
//! zero: it witnesses that the core touched the object, and the flush must say so.

use alloc::boxed::Box;
use core::mem;
use core::ptr::NonNull;

use crate::header::Header;

/// What leaves the cache: an object and the delta to apply to it.
pub(crate) type Evicted = (NonNull<Header>, i64);

#[derive(Debug)]
pub(crate) struct DeltaCache {
    /// A power of two of them.
    entries: Box<[Option<Evicted>]>,
    /// How many are not empty.
    used: usize,
}

// SAFETY: the entries point to objects, and those are shared by all cores anyway.
unsafe impl Send for DeltaCache {}

impl DeltaCache {
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots.is_power_of_two(), "the delta cache needs a power of two of slots");
        Self { entries: (0..slots).map(|_| None).collect(), used: 0 }
    }

    /// Adds `delta` to the object's entry, if it has one.
    #[inline(always)]
    pub(crate) fn add(&mut self, object: NonNull<Header>, delta: i64) -> bool {
        match self.slot(object) {
            Some((cached, sum)) if *cached == object => {
                *sum += delta;
                true
            }
            _ => false,
        }
    }

    /// Gives the object an entry, and evicts the one that has its place.
    pub(crate) fn insert(&mut self, object: NonNull<Header>, delta: i64) -> Option<Evicted> {
        let evicted = self.slot(object).replace((object, delta));
        self.used += usize::from(evicted.is_none());
        evicted
    }

    /// Evicts everything.
    pub(crate) fn flush(&mut self, mut evict: impl FnMut(Evicted)) {
        let mut left = mem::take(&mut self.used);
        let mut entries = self.entries.iter_mut();
        while left > 0 {
            if let Some(evicted) = entries.next().and_then(Option::take) {
                left -= 1;
                evict(evicted);
            }
        }
    }

    #[inline(always)]
    fn slot(&mut self, object: NonNull<Header>) -> &mut Option<Evicted> {
        // Fibonacci hashing: objects lie at multiples of their size, and the product's high bits depend on
        // all of them.
        let hash = (object.addr().get() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let at = hash as usize & (self.entries.len() - 1);
        // SAFETY: the length is a power of two, so it is not 0, and nothing masked by one less reaches it.
        unsafe { self.entries.get_unchecked_mut(at) }
    }
}
