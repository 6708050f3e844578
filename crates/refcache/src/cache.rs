//! The delta cache.

use alloc::boxed::Box;
use core::ptr::NonNull;

use crate::object::Header;

#[derive(Clone, Copy, Debug)]
struct Entry {
    object: Option<NonNull<Header>>,
    delta: i64,
}

const EMPTY: Entry = Entry { object: None, delta: 0 };

/// One core's deltas: direct-mapped by the object's address.
#[derive(Debug)]
pub(crate) struct DeltaCache {
    entries: Box<[Entry]>,
    used: usize,
}

// SAFETY: the entries point to objects that are `Send` and `Sync`.
unsafe impl Send for DeltaCache {}

impl DeltaCache {
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots.is_power_of_two());
        Self { entries: (0..slots).map(|_| EMPTY).collect(), used: 0 }
    }

    /// Adds `delta` if the object has an entry.
    #[inline(always)]
    pub(crate) fn add(&mut self, object: NonNull<Header>, delta: i64) -> bool {
        let entry = self.entry(object);
        let hit = entry.object == Some(object);
        if hit {
            entry.delta += delta;
        }
        hit
    }

    /// Gives the object an entry; returns the one that had its place.
    pub(crate) fn insert(&mut self, object: NonNull<Header>, delta: i64) -> Option<(NonNull<Header>, i64)> {
        let old = core::mem::replace(self.entry(object), Entry { object: Some(object), delta });
        self.used += usize::from(old.object.is_none());
        old.object.map(|object| (object, old.delta))
    }

    /// Empties the cache, also of deltas that are zero.
    pub(crate) fn flush(&mut self, mut evict: impl FnMut(NonNull<Header>, i64)) {
        for entry in &mut self.entries {
            if self.used == 0 {
                break;
            }
            let old = core::mem::replace(entry, EMPTY);
            if let Some(object) = old.object {
                self.used -= 1;
                evict(object, old.delta);
            }
        }
    }

    #[inline(always)]
    fn entry(&mut self, object: NonNull<Header>) -> &mut Entry {
        let hash = (object.addr().get() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let at = hash as usize & (self.entries.len() - 1);
        &mut self.entries[at]
    }
}
