//! The locks between mapping operations and faults: all that distinguishes the designs with a tree.
//!
//! | design | a mapping operation holds | a fault holds |
//! |---|---|---|
//! | `rwlock` | the space's lock, to write | the space's lock, to read |
//! | `faultlock` | the same; and the *fault lock*, to write, from its first change on | the fault lock, to read |
//! | `hybrid` | the same; and the *tree's lock*, to write, around each change of the tree | the tree's lock, to read, while it looks its region up |
//! | `bonsai` | the space's lock, to write | nothing |
//! | `pervma` | the same; and the lock of each region that it changes, until it ends | its region's lock, to read |
//!
//! The first four are those of the Bonsai paper (sections 4.1, 5.1 to 5.3). The fifth has the shape of
//! today's Linux. An operation that only looks holds the space's lock to read. In all five a page's slot is
//! locked while its translation changes (the paper's PTE locks).
//!
//! A fault of the last three may find its region changing, or gone. It finds out (`fault.rs`), and tries
//! again with the space's lock, to read, which keeps mapping operations out.
//!
//! Order: the space's lock, then the second one, or regions' locks, then slots.
//!
//! # The lock of a region
//!
//! A region is locked to write if its sequence number is that of the space: so one store to the space's
//! unlocks all that an operation has locked. Readers are counted.
//!
//! ```text
//!   a mapping operation                          a fault
//!   1  region.sequence := space.sequence         1  region.readers += 1
//!      fence W                                      fence R
//!   2  wait until region.readers = 0             2  region.sequence = space.sequence?  then it leaves
//! ```
//! One of the two fences comes first (both are SeqCst). If it is W, the fault sees the lock. If it is R, the
//! operation sees the reader, and waits. An operation that is over has raised the space's number, so an old
//! number locks nothing. Both numbers are stored with Release and loaded with Acquire: a fault that enters
//! sees what was done by those that are over. A reader leaves by Release, partner of the Acquire in the wait.

use percore::relax;
use sync::CachePadded;
use sync::atomic::{AtomicU64, Ordering, fence};

use super::rwlock::{ReadGuard, RwLock, WriteGuard};

/// How mapping operations and faults are kept apart: see `docs/design/designs.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// One reader-writer lock, as Linux 2.6 had it.
    RwLock,
    /// A lock of their own for faults.
    FaultLock,
    /// Regions are found under the tree's lock, and used without one.
    Hybrid,
    /// Faults take no lock.
    Bonsai,
    /// Each region has a lock, as in today's Linux.
    PerVma,
}

impl Locking {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::RwLock, Self::FaultLock, Self::Hybrid, Self::Bonsai, Self::PerVma];
}

/// The locks of one space. Each has a line of its own.
pub(super) struct Locks {
    locking: Locking,
    space: CachePadded<RwLock>,
    /// The fault lock, or the tree's.
    second: CachePadded<RwLock>,
    sequence: CachePadded<AtomicU64>,
}

impl Locks {
    pub(super) fn new(locking: Locking) -> Self {
        let lock = || CachePadded::new(RwLock::default());
        Self { locking, space: lock(), second: lock(), sequence: CachePadded::new(AtomicU64::new(1)) }
    }

    #[inline]
    fn second_of(&self, locking: Locking) -> Option<&RwLock> {
        (self.locking == locking).then_some(&*self.second)
    }

    /// For a mapping operation.
    pub(super) fn write(&self) -> WriteGuard<'_> {
        self.space.write()
    }

    /// Locks the space to read, for operations that only look and for faults that try again.
    pub(super) fn read(&self) -> ReadGuard<'_> {
        self.space.read()
    }

    /// For a mapping operation that begins to change something.
    #[inline]
    pub(super) fn exclude_faults(&self) -> Option<WriteGuard<'_>> {
        self.second_of(Locking::FaultLock).map(RwLock::write)
    }

    /// For a change of the tree.
    #[inline]
    pub(super) fn change_tree(&self) -> Option<WriteGuard<'_>> {
        self.second_of(Locking::Hybrid).map(RwLock::write)
    }

    /// For a fault that is to find its region changing.
    pub(super) fn look_up(&self) -> Option<ReadGuard<'_>> {
        self.second_of(Locking::Hybrid).map(RwLock::read)
    }

    /// Returns whether a fault may find its region changing.
    #[inline]
    pub(super) fn is_optimistic(&self) -> bool {
        !matches!(self.locking, Locking::RwLock | Locking::FaultLock)
    }

    /// For a fault that is not to.
    pub(super) fn fault(&self) -> ReadGuard<'_> {
        self.second_of(Locking::FaultLock).unwrap_or(&self.space).read()
    }

    /// Locks a region that is about to change.
    #[inline]
    pub(super) fn lock_vma(&self, lock: &VmaLock) {
        if self.locking == Locking::PerVma {
            // Relaxed: only mapping operations change the number, one at a time. Release: partner of the
            // Acquire in `enter`.
            lock.sequence.store(self.sequence.load(Ordering::Relaxed), Ordering::Release);
            fence(Ordering::SeqCst); // W, partner of R
            // Acquire: partner of the Release in the guard's drop.
            while lock.readers.load(Ordering::Acquire) != 0 {
                relax();
            }
        }
    }

    /// The mapping operation is over.
    pub(super) fn unlock_vmas(&self) {
        if self.locking == Locking::PerVma {
            // Release: partner of the Acquire in `enter`.
            self.sequence.fetch_add(1, Ordering::Release);
        }
    }

    /// Locks the region that a fault has found. Returns none if the region is changing.
    pub(super) fn enter<'v>(&self, lock: &'v VmaLock) -> Option<VmaGuard<'v>> {
        if self.locking != Locking::PerVma {
            return Some(VmaGuard(None));
        }
        // Relaxed: the fence orders it.
        lock.readers.fetch_add(1, Ordering::Relaxed);
        let guard = VmaGuard(Some(lock));
        fence(Ordering::SeqCst); // R, partner of W
        // Acquire, both: partners of the Release in `lock_vma` and in `unlock_vmas`.
        let locked_in = lock.sequence.load(Ordering::Acquire);
        (locked_in != self.sequence.load(Ordering::Acquire)).then_some(guard)
    }
}

/// The lock of a region, used by [`Locking::PerVma`] only.
#[derive(Debug, Default)]
pub(super) struct VmaLock {
    sequence: AtomicU64,
    readers: AtomicU64,
}

/// Unlocks when dropped what was locked.
pub(super) struct VmaGuard<'v>(Option<&'v VmaLock>);

impl Drop for VmaGuard<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.0 {
            // Release: partner of the Acquire in `lock_vma`.
            lock.readers.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::format;

    #[test]
    fn each_design_takes_its_locks() {
        use Locking::*;
        // The holders of the space's lock and of the second one.
        let held = |locks: &Locks| {
            [&locks.space, &locks.second].map(|lock| match &*format!("{:?}", **lock) {
                "RwLock(0)" => "-",
                "RwLock(1)" => "write",
                "RwLock(2)" => "read",
                other => panic!("{other}"),
            })
        };
        for (locking, fault, exclude, change, look_up) in [
            (RwLock, ["read", "-"], "-", "-", "-"),
            (FaultLock, ["-", "read"], "write", "-", "-"),
            (Hybrid, ["read", "-"], "-", "write", "read"),
            (Bonsai, ["read", "-"], "-", "-", "-"),
            (PerVma, ["read", "-"], "-", "-", "-"),
        ] {
            let locks = Locks::new(locking);
            let guard = locks.fault();
            assert_eq!(held(&locks), fault, "{locking:?}");
            drop(guard);
            let guard = locks.exclude_faults();
            assert_eq!(held(&locks), ["-", exclude], "{locking:?}");
            drop(guard);
            let guard = locks.change_tree();
            assert_eq!(held(&locks), ["-", change], "{locking:?}");
            drop(guard);
            let guard = locks.look_up();
            assert_eq!(held(&locks), ["-", look_up], "{locking:?}");
            drop(guard);
            assert_eq!(held(&locks), ["-", "-"], "{locking:?}");
            assert_eq!(locks.is_optimistic(), [Hybrid, Bonsai, PerVma].contains(&locking));
        }
    }
}
