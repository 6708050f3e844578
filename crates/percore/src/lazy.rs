//! Per-core data that is allocated when its core first asks for it.
//!
//! A part that is allocated ahead costs time and memory once for every core of the machine, and most
//! processes never leave the core where they began. So only one word per core is allocated ahead, and the
//! part at its first use. The words lie side by side, as each is written once: cores that only use their
//! parts share the words unchanged. The existing parts form a list, so visiting or dropping all of them does
//! not read every core's word.
//!
//! A core that looks for another core's part and finds none may draw a conclusion from that:
//!
//! ```text
//!   the other                         the owner
//!   ─────────                         ─────────
//!   O1  changes a word                P1  its part begins
//!   O2  fence                         P2  fence
//!   O3  looks: no part                P3  uses its part, reads the word
//! ```
//! If O3 misses P1, then O2 came before P2, and P3 finds O1.

use alloc::alloc::{Layout, alloc};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::iter;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use sync::CachePadded;
use sync::atomic::{AtomicPtr, Ordering, fence};

use crate::per_core::made_for_fewer;
use crate::{CoreId, Pinned};

/// One `T` for each core that asked for one, each alone on its cache lines.
#[derive(Debug)]
pub struct LazyPerCore<T> {
    parts: Box<[AtomicPtr<Padded<T>>]>,
    /// The part that began last.
    newest: AtomicPtr<Padded<T>>,
    owns: PhantomData<T>,
}

type Padded<T> = CachePadded<Part<T>>;

#[derive(Debug)]
struct Part<T> {
    value: T,
    /// The part that began before, or null.
    before: *mut Padded<T>,
}

impl<T: Send + Sync> LazyPerCore<T> {
    /// Begins without parts, for cores 0 to `cores - 1`. Returns `None` if there is no memory for that.
    pub fn try_new(cores: usize) -> Option<Self> {
        let mut parts = Vec::new();
        parts.try_reserve_exact(cores).ok()?;
        parts.extend((0..cores).map(|_| AtomicPtr::new(ptr::null_mut())));
        let newest = AtomicPtr::new(ptr::null_mut());
        Some(Self { parts: parts.into_boxed_slice(), newest, owns: PhantomData })
    }

    /// Returns the caller's own part, if it has one. Relaxed: the same core stored it.
    #[inline(always)]
    pub fn mine(&self, pin: &Pinned) -> Option<&T> {
        self.part(pin.core(), Ordering::Relaxed)
    }

    /// Returns the caller's own part, made by `make` if needed, or `None` if there is no memory for it.
    #[inline]
    pub fn mine_or_new(&self, pin: &Pinned, make: impl FnOnce(CoreId) -> T) -> Option<&T> {
        self.mine(pin).or_else(|| self.begin(pin, make))
    }

    /// Returns the part of `core`, if it has one. Reading it moves a cache line if `core` writes it. Acquire,
    /// partner of the Release in `begin`.
    #[inline(always)]
    pub fn of(&self, core: CoreId) -> Option<&T> {
        self.part(core, Ordering::Acquire)
    }

    /// Returns the existing parts, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        // Acquire, partner of the Release in `link`. Older parts are seen with it, because each was put in
        // front of them. SAFETY: parts live as long as `self`.
        let newest = unsafe { self.newest.load(Ordering::Acquire).as_ref() };
        // SAFETY: as above, and `before` does not change any more.
        iter::successors(newest, |part| unsafe { part.before.as_ref() }).map(|part| &part.value)
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.parts.len()
    }

    #[inline(always)]
    fn part(&self, core: CoreId, order: Ordering) -> Option<&T> {
        let Some(part) = self.parts.get(core.index()) else { made_for_fewer(core, self.cores()) };
        let part = part.load(order);
        // SAFETY: `begin` stores pointers to parts only, and a part lives as long as `self`.
        unsafe { part.as_ref() }.map(|part| &part.value)
    }

    /// Makes the caller's part. Only its core stores there, and it has no part yet. Release, partner of the
    /// Acquire in `of`.
    #[cold]
    fn begin(&self, pin: &Pinned, make: impl FnOnce(CoreId) -> T) -> Option<&T> {
        let value = make(pin.core());
        if let Some(part) = self.mine(pin) {
            // `make` asked for the part, too.
            return Some(part);
        }
        let part = boxed(Part { value, before: ptr::null_mut() })?;
        self.link(part);
        self.parts[pin.core().index()].store(part.as_ptr(), Ordering::Release); // P1
        fence(Ordering::SeqCst); // P2, partner of O2
        self.mine(pin)
    }

    /// Puts a part at the front of the list.
    fn link(&self, mut part: NonNull<Padded<T>>) {
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: no other core knows the part yet.
            unsafe { part.as_mut() }.before = newest;
            // Release, partner of the Acquire in `iter`.
            let linked = self.newest.compare_exchange_weak(
                newest,
                part.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            match linked {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }
}

/// Boxes a part, or returns `None` if there is no memory.
fn boxed<T>(part: Part<T>) -> Option<NonNull<Padded<T>>> {
    // SAFETY: padded, so its size is not 0.
    let place = NonNull::new(unsafe { alloc(Layout::new::<Padded<T>>()) })?.cast();
    // SAFETY: fresh memory for such a value.
    unsafe { place.write(CachePadded::new(part)) };
    Some(place)
}

impl<T> Drop for LazyPerCore<T> {
    /// Relaxed: the caller of the drop has synchronised with all cores that used it.
    fn drop(&mut self) {
        let mut next = self.newest.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: `boxed` made it as a box is made, and no core uses it any more.
            let part = unsafe { Box::from_raw(next) };
            next = part.before;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn on(core: usize) -> Pinned {
        // SAFETY: these tests have one flow of control, which plays all cores.
        unsafe { Pinned::assume(CoreId::new(core)) }
    }

    #[test]
    fn a_part_begins_at_its_first_use_and_stays() {
        let parts = LazyPerCore::try_new(3).unwrap();
        assert!(parts.mine(&on(1)).is_none() && parts.iter().next().is_none());
        let first = parts.mine_or_new(&on(1), CoreId::index).unwrap();
        assert_eq!((*first, parts.cores()), (1, 3));
        let again = parts.mine_or_new(&on(1), |_| 99).unwrap();
        assert!(ptr::eq(first, again) && ptr::eq(first, parts.of(CoreId::new(1)).unwrap()));
        assert!(parts.mine(&on(2)).is_none());
        assert_eq!(ptr::from_ref(first).addr() % 128, 0);
    }

    #[test]
    fn a_part_is_made_once_though_its_maker_asks_for_it() {
        let parts = LazyPerCore::try_new(1).unwrap();
        let outer = parts.mine_or_new(&on(0), |_| {
            parts.mine_or_new(&on(0), |_| 1).unwrap();
            2
        });
        assert_eq!((outer, parts.iter().count()), (Some(&1), 1));
    }

    #[test]
    fn parts_are_dropped_once() {
        let witness = Arc::new(());
        let parts = LazyPerCore::try_new(4).unwrap();
        for core in [3, 0, 3] {
            parts.mine_or_new(&on(core), |_| witness.clone());
        }
        assert_eq!((parts.iter().count(), Arc::strong_count(&witness)), (2, 3));
        drop(parts);
        assert_eq!(Arc::strong_count(&witness), 1);
    }
}
