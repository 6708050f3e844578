//! Memory that the program does not have any more and that a member may still have mapped, for threads in
//! address spaces of their own. A member that has it mapped is not asked to unmap it (`requests`): the kernel
//! lets it touch nothing there, and it unmaps it when it comes by. The runtime says how (`isolate::stale`).
//!
//! | state of memory in a member | access | becomes |
//! |---|---|---|
//! | mapped: it is a holder | as the program was promised | stale, by the member that takes the memory away |
//! | stale: not recorded, or recorded again without this member | a fault | unmapped, by the member itself |
//! | unmapped | a fault | mapped, by the member itself |
//!
//! 1. *The list of stale ranges says all that is stale.* It changes under the lock, or by its member where it
//!    changes its own memory without that (`parts`), or serves a request.
//! 2. *A member unmaps what is stale before it maps anything there, and before its address space is copied*:
//!    the kernel does not guard the copy.
//! 3. *The kernel does not make memory stale under a call that names it*: the call would fail where on Linux
//!    it goes on with the memory that is mapped there next. A member writes what its call names ([`Named`]),
//!    and then looks at what it has. The one that takes memory away counts that ([`Stale::count`]), makes it
//!    stale, and then looks at what is named. There is a barrier between each two, so one sees the other. If
//!    it is named, the member is asked. If it was counted, the member waits for the lock: other memory may be
//!    mapped there in the same step.

use core::array;
use sync::atomic::{AtomicU64, Ordering, fence};

/// The most ranges of one member. It is asked then, and unmaps all of them. Models have few.
pub const MOST: usize = if cfg!(loom) { 2 } else { 32 };

/// The memory that a member's last call names: from the first byte to the last one, with what lies between.
/// All zeroes name nothing.
#[derive(Default)]
#[cfg_attr(not(loom), repr(C, align(64)))]
pub struct Named {
    start: AtomicU64,
    end: AtomicU64,
}

impl Named {
    /// Begins a call, which names nothing yet.
    #[inline(always)]
    pub fn begin(&self) {
        self.start.store(u64::MAX, Ordering::Relaxed);
        self.end.store(0, Ordering::Relaxed);
    }

    /// Adds memory that the call names. The mappings of this member are looked at after this.
    #[inline(always)]
    pub fn add(&self, start: u64, end: u64) {
        let (from, to) = (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        if from <= start && end <= to {
            return;
        }
        self.start.store(from.min(start), Ordering::Relaxed);
        self.end.store(to.max(end), Ordering::Relaxed);
        // Pairs with the barrier in `touches`.
        fence(Ordering::SeqCst);
    }

    /// Returns whether the member's call names memory of a range. It was made stale before this.
    pub fn touches(&self, start: u64, end: u64) -> bool {
        // Pairs with the barrier in `add`.
        fence(Ordering::SeqCst);
        self.start.load(Ordering::Relaxed) < end && start < self.end.load(Ordering::Relaxed)
    }
}

/// A range of addresses. It is empty if its end is 0.
#[derive(Default)]
struct Range {
    start: AtomicU64,
    end: AtomicU64,
}

impl Range {
    fn get(&self) -> (u64, u64) {
        (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed))
    }

    fn set(&self, (start, end): (u64, u64)) {
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
    }

    fn take(&self) -> (u64, u64) {
        let range = self.get();
        self.set((0, 0));
        range
    }
}

/// The stale ranges of a member, none of which touches another. All zeroes are an empty list.
pub struct Stale {
    ranges: [Range; MOST],
    count: AtomicU64,
}

impl Default for Stale {
    fn default() -> Self {
        Stale { ranges: array::from_fn(|_| Range::default()), count: AtomicU64::new(0) }
    }
}

impl Stale {
    /// Adds a range, and joins it with its neighbours. Returns whether there is room. The lock is held.
    pub fn add(&self, start: u64, end: u64) -> bool {
        let is_neighbour = |range: &&Range| {
            let (from, to) = range.get();
            to != 0 && from <= end && start <= to
        };
        let neighbours = self.ranges.iter().filter(is_neighbour);
        let joined = neighbours.fold((start, end), |(start, end), range| {
            let (from, to) = range.take();
            (start.min(from), end.max(to))
        });
        let free = self.ranges.iter().find(|range| range.get().1 == 0);
        free.inspect(|range| range.set(joined)).is_some()
    }

    /// Returns whether there is room for a range.
    pub fn has_room(&self) -> bool {
        self.ranges.iter().any(|range| range.get().1 == 0)
    }

    /// Counts that the member has less from now on: memory becomes stale, and was added, or was unmapped for
    /// a request.
    pub fn note(&self) {
        // It is written under the lock, or by the member as it serves a request.
        self.count.store(self.count() + 1, Ordering::Relaxed);
    }

    /// Returns how often this was. A member that has seen this number has all that it had then.
    #[inline(always)]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns whether an address is stale.
    pub fn has(&self, address: u64) -> bool {
        self.ranges.iter().map(Range::get).any(|(start, end)| start <= address && address < end)
    }

    /// Removes the ranges that a range touches, when `unmap` has unmapped each. One that it cannot unmap
    /// stays, and its error is returned when all were tried.
    pub fn unmap<E>(&self, start: u64, end: u64, unmap: impl Fn(u64, u64) -> Result<(), E>) -> Result<(), E> {
        let mut result = Ok(());
        for range in &self.ranges {
            let (from, to) = range.get();
            if from < end && start < to {
                match unmap(from, to) {
                    Ok(()) => range.set((0, 0)),
                    Err(error) => result = Err(error),
                }
            }
        }
        result
    }

    /// Removes all ranges, of an address space that is gone.
    pub fn clear(&self) {
        self.ranges.iter().for_each(|range| range.set((0, 0)));
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::cell::RefCell;
    use std::vec::Vec;

    #[test]
    fn a_call_names_all_between_the_first_byte_and_the_last() {
        let named = Named::default();
        assert!(!named.touches(0, u64::MAX));
        // Upwards and downwards.
        for both in [[(40, 50), (10, 20)], [(10, 20), (40, 50)]] {
            named.begin();
            assert!(!named.touches(0, u64::MAX));
            both.into_iter().chain([(12, 45)]).for_each(|(start, end)| named.add(start, end));
            let touched =
                [(0, 10), (0, 11), (20, 40), (49, 90), (50, 90)].map(|(from, to)| named.touches(from, to));
            assert_eq!(touched, [false, true, true, true, false]);
        }
        named.begin();
        assert!(!named.touches(0, u64::MAX));
    }

    #[test]
    fn neighbours_are_one_range_and_others_are_not() {
        let stale = Stale::default();
        assert!(stale.add(10, 20) && stale.add(30, 40) && stale.add(20, 30) && stale.add(50, 60));
        assert_eq!(unmapped(&stale, 40, 50), []);
        assert_eq!(unmapped(&stale, 39, 51), [(10, 40), (50, 60)]);
        assert_eq!(unmapped(&stale, 0, u64::MAX), []);
    }

    /// Unmaps what is stale in a range, and returns that.
    fn unmapped(stale: &Stale, start: u64, end: u64) -> Vec<(u64, u64)> {
        let ranges = RefCell::new(Vec::new());
        let unmap = |from, to| {
            ranges.borrow_mut().push((from, to));
            Ok::<(), ()>(())
        };
        stale.unmap(start, end, unmap).unwrap();
        let mut ranges = ranges.into_inner();
        ranges.sort_unstable();
        ranges
    }

    #[test]
    fn a_range_that_cannot_be_unmapped_stays_and_the_others_go() {
        let stale = Stale::default();
        assert!(stale.add(10, 20) && stale.add(30, 40) && stale.add(50, 60));
        let unmap = |from, _| if from == 10 { Err("no room") } else { Ok(()) };
        assert_eq!(stale.unmap(0, u64::MAX, unmap), Err("no room"));
        assert_eq!(unmapped(&stale, 0, u64::MAX), [(10, 20)]);
    }

    #[test]
    fn a_full_list_takes_neighbours_only() {
        let stale = Stale::default();
        let ranges = (0..MOST as u64).map(|number| (number * 10 + 1, number * 10 + 5));
        assert!(ranges.clone().all(|(start, end)| stale.add(start, end)));
        assert!(!stale.has_room() && !stale.add(7, 9));
        assert!(stale.add(5, 9));
        assert!(ranges.clone().all(|(start, _)| stale.has(start)) && stale.has(8) && !stale.has(9));
        assert_eq!(unmapped(&stale, 0, u64::MAX).len(), MOST);
        assert!(stale.has_room() && stale.add(7, 9));
    }

    #[test]
    fn an_empty_list_has_no_address() {
        let stale = Stale::default();
        assert!(!stale.has(0) && unmapped(&stale, 0, 1).is_empty());
        assert!(stale.add(0, 4096) && stale.has(0));
        stale.clear();
        assert!(!stale.has(0));
    }
}
