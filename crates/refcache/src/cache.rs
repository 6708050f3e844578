//! A core's delta cache: it maps an object to the change that this core has not applied to the global count
//! yet.
//!
//! Only the owner core accesses it, so nothing here is atomic. An entry stays when its delta comes back to
//! zero, because it records that the core touched the object, and the flush must apply that.
//!
//! An object's entry is in one of two slots: its *home* slot, or the *neighbour* slot, which is the home of
//! other objects. The fast path looks at the home only. A miss swaps a neighbour entry into the home. When
//! both slots are taken by other objects, the one with a delta of zero is evicted if there is one: applying a
//! zero writes no line that other cores read.

use alloc::boxed::Box;
use core::mem;
use core::ptr::NonNull;

use crate::header::Header;

/// An entry that leaves the cache: an object and the delta to apply to it.
pub(crate) type Evicted = (NonNull<Header>, i64);

#[derive(Debug)]
pub(crate) struct DeltaCache {
    /// The slots, whose number is a power of two. If it is one, home and neighbour are the same.
    entries: Box<[Option<Evicted>]>,
    /// The number of slots that are not empty.
    used: usize,
}

// SAFETY: the entries point to objects, and all cores share those anyway.
unsafe impl Send for DeltaCache {}

impl DeltaCache {
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots.is_power_of_two(), "the delta cache needs a power of two of slots");
        Self { entries: (0..slots).map(|_| None).collect(), used: 0 }
    }

    /// Adds `delta` to the object's entry, if it is in its home slot.
    #[inline(always)]
    pub(crate) fn add(&mut self, object: NonNull<Header>, delta: i64) -> bool {
        match self.home(object) {
            Some((cached, sum)) if *cached == object => {
                *sum += delta;
                true
            }
            _ => false,
        }
    }

    /// Adds `delta` for an object that is not in its home slot, and brings it home. The entry that was there
    /// moves to the neighbour slot. One of the two entries that were there may be evicted, which is returned.
    pub(crate) fn insert(&mut self, object: NonNull<Header>, delta: i64) -> Option<Evicted> {
        if self.home(object).is_some() {
            self.swap(object);
            if self.add(object, delta) {
                return None;
            }
            if self.home(object).is_some() && has_nothing_to_tell(self.beside(object)) {
                self.swap(object);
            }
        }
        let evicted = self.home(object).replace((object, delta));
        self.used += usize::from(evicted.is_none());
        evicted
    }

    /// Evicts all entries.
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
    fn home(&mut self, object: NonNull<Header>) -> &mut Option<Evicted> {
        let at = self.at(object);
        // SAFETY: see `at`.
        unsafe { self.entries.get_unchecked_mut(at) }
    }

    fn beside(&self, object: NonNull<Header>) -> &Option<Evicted> {
        &self.entries[self.next_to(self.at(object))]
    }

    fn swap(&mut self, object: NonNull<Header>) {
        let at = self.at(object);
        self.entries.swap(at, self.next_to(at));
    }

    /// Returns the index of the object's home. It is in range: the length is a power of two, so it is not 0,
    /// and a number masked by the length minus one is less than the length.
    #[inline(always)]
    fn at(&self, object: NonNull<Header>) -> usize {
        // Fibonacci hashing: objects lie at multiples of their size, and the product's high bits depend on
        // all bits of the address.
        let hash = (object.addr().get() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        hash as usize & (self.entries.len() - 1)
    }

    fn next_to(&self, at: usize) -> usize {
        (at ^ 1) & (self.entries.len() - 1)
    }
}

fn has_nothing_to_tell(entry: &Option<Evicted>) -> bool {
    matches!(entry, Some((_, 0)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn headers() -> [Header; 64] {
        core::array::from_fn(|_| Header::new(1, None, |_, _, _| unreachable!("nothing is released")))
    }

    /// Returns three objects with the same home.
    fn same_home(cache: &DeltaCache, headers: &[Header]) -> [NonNull<Header>; 3] {
        let mut at_zero = headers.iter().map(NonNull::from).filter(|&header| cache.at(header) == 0);
        core::array::from_fn(|_| at_zero.next().unwrap())
    }

    #[test]
    fn entries_without_a_delta_are_evicted_first() {
        let (headers, mut cache) = (headers(), DeltaCache::new(2));
        let [busy, quiet, new] = same_home(&cache, &headers);
        assert_eq!((cache.insert(busy, 0), cache.insert(quiet, 1)), (None, None), "there is room for two");
        assert_eq!((cache.insert(busy, 1), cache.insert(quiet, 0)), (None, None), "they change places");
        assert!(cache.add(quiet, -1) && !cache.add(busy, 1), "only the last to miss is at home");
        assert_eq!(cache.insert(busy, 1), None, "it was beside");
        assert!(cache.add(busy, 0) && !cache.add(quiet, 0));
        assert_eq!(cache.insert(new, 1), Some((quiet, 0)));
        assert_eq!(cache.insert(quiet, 1), Some((busy, 2)), "of two with something to tell the older");
        let mut left = [None; 3];
        let mut at = 0;
        cache.flush(|evicted| (left[at], at) = (Some(evicted), at + 1));
        assert_eq!(left, [Some((quiet, 1)), Some((new, 1)), None]);
    }

    #[test]
    fn an_entry_without_a_delta_is_evicted_from_home_too() {
        let (headers, mut cache) = (headers(), DeltaCache::new(2));
        let [busy, quiet, new] = same_home(&cache, &headers);
        assert_eq!((cache.insert(busy, 1), cache.insert(quiet, 0)), (None, None), "the last is at home");
        assert_eq!(cache.insert(new, 1), Some((quiet, 0)));
    }

    #[test]
    fn objects_are_spread_over_the_slots() {
        let (headers, cache) = (headers(), DeltaCache::new(64));
        let mut is_home = [false; 64];
        headers.iter().for_each(|header| is_home[cache.at(NonNull::from(header))] = true);
        assert!(is_home.iter().filter(|is_home| **is_home).count() > 16);
    }

    #[test]
    fn two_slots_are_neighbours_of_each_other() {
        let neighbours = |slots: usize| {
            let cache = DeltaCache::new(slots);
            core::array::from_fn::<_, 4, _>(|at| if at < slots { cache.next_to(at) } else { at })
        };
        assert_eq!((neighbours(4), neighbours(2), neighbours(1)), ([1, 0, 3, 2], [1, 0, 2, 3], [0, 1, 2, 3]));
    }
}
