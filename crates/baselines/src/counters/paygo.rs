//! PayGo: references are counted where they are taken, and pay for migrating when they are dropped elsewhere.
//!
//! After Jung, Kim, Ryu, Kang and Jung (Pay Migration Tax to Homeland: Anchor-based Scalable Reference
//! Counting for Multicores, FAST 2019). The idea and the comparison come from the LODIC paper (ATC 2021,
//! section 2.2 and table 1). We did not have the FAST paper's text, so the way to find zero is our own.
//!
//! Each core has a table of entries, hashed by object. A reference is counted in the entry of the core where
//! it is taken, its *anchor*, and the holder remembers which core that was. If it is dropped there, the
//! entry's local count goes down, without an atomic change. If it is dropped elsewhere, the entry's *anchor
//! count* goes up, atomically: that is the migration tax.
//!
//! ```text
//!    core 0's table                    core 1's table                     the object
//!    object A: local 5, anchored 2     object B: local 1, anchored 0      central: 1 + those that found no entry
//! ```
//!
//! | entry | means |
//! |---|---|
//! | object A, local > anchored | the difference is the number of references to A that have their anchor here |
//! | local = anchored | free, whichever object it names |
//!
//! 1. `local` and `object` are written by the owner core only. `anchored` only grows, and wraps.
//! 2. An entry names another object only when it is free. So a reference that has its anchor there finds it.
//!    A core whose entry is taken by another object counts centrally.
//! 3. The sum over all cores, read one after the other, proves nothing while references are taken. So
//!    `settle` first *closes* the count: from then on references are taken centrally, and an entry found free
//!    for this object stays so.
//! 4. All entries together are one reference in the central count. The call of `settle` that finds all of
//!    them free drops it, once. So the one subtraction that makes the central count zero is the last of all.
//!
//! Two-sided order for 3: `inc` writes the entry, fences (T), then reads `closed`. `settle` writes `closed`,
//! fences (A), then reads the entries. If T is before A, the entry is seen. If A is before T, `closed` is
//! seen, and the reference is moved to the central count before any caller has it. This costs a fence in each
//! `inc`, which a host whose readers are pinned could trade for a grace period in `settle`.
//!
//! The entry is read `local` first, then `anchored`. When it is closed, the two counts only come closer,
//! except for references that are being moved. So if they are the same, the entry is free.
//!
//! A host whose cores are pinned when they count does without the fence and the count in the object. It uses
//! the tables alone ([`PayGo::anchor`]) and asks ([`PayGo::is_anchored`]) after a grace period in which every
//! core that could take a reference has unpinned. That period takes the place of closing the count.
//!
//! Orderings: a drop is Release in either count, partner of the Acquire loads in `settle`. Central drops are
//! AcqRel, partners of each other.

use alloc::boxed::Box;
use core::mem::size_of;

use percore::{CoreId, PerCore, Pinned};
use sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use crate::{OutOfMemory, Scheme, Zero};

/// Counts in the table of the core where a reference is taken.
#[derive(Debug)]
pub struct PayGo {
    tables: PerCore<Box<[Entry]>>,
    slots: usize,
}

#[derive(Debug, Default)]
#[repr(align(32))]
struct Entry {
    /// The object's address.
    object: AtomicUsize,
    local: AtomicU64,
    anchored: AtomicU64,
}

/// The part of a count that is not in the tables.
#[derive(Debug)]
pub struct PayGoCount {
    /// References without an entry, and one for all entries.
    central: AtomicU64,
    closed: AtomicBool,
    /// Set when the entries' reference was dropped.
    settled: AtomicBool,
}

/// The part of a reference that says where it is counted.
#[derive(Clone, Copy, Debug)]
pub enum PayGoToken {
    /// In the object.
    Central,
    /// In the table of a core.
    Anchor(CoreId),
}

impl Entry {
    /// Counts a reference to `object`, unless the entry is taken by another. Called by the owner.
    #[inline]
    fn take(&self, object: usize) -> bool {
        // Relaxed: the words are the owner's own. It fences before another core relies on them.
        let local = self.local.load(Ordering::Relaxed);
        if self.object.load(Ordering::Relaxed) != object {
            if local != self.anchored.load(Ordering::Relaxed) {
                return false;
            }
            self.object.store(object, Ordering::Relaxed);
        }
        self.local.store(local.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// Drops a reference. Called by the owner.
    #[inline]
    fn drop_locally(&self) {
        let local = self.local.load(Ordering::Relaxed);
        // Release: partner of the Acquire in `is_free_of`.
        self.local.store(local.wrapping_sub(1), Ordering::Release);
    }

    /// Drops a reference. Called by another core.
    fn drop_remotely(&self) {
        // Release: partner of the Acquire in `is_free_of`.
        self.anchored.fetch_add(1, Ordering::Release);
    }

    /// Returns whether no reference to a closed object has its anchor here.
    fn is_free_of(&self, object: usize) -> bool {
        self.object.load(Ordering::Relaxed) != object
            // Acquire: partners of the Release of both drops.
            || self.local.load(Ordering::Acquire) == self.anchored.load(Ordering::Acquire)
    }
}

impl PayGo {
    /// Makes tables of `slots` entries, a power of two, for each of `cores` cores.
    ///
    /// # Panics
    /// Panics if `slots` is no power of two.
    pub fn new(cores: usize, slots: usize) -> Self {
        assert!(slots.is_power_of_two(), "a table needs a power of two of entries");
        let table = |_| (0..slots).map(|_| Entry::default()).collect();
        Self { tables: PerCore::new(cores, table), slots }
    }

    #[inline]
    fn entry(&self, core: CoreId, object: usize) -> &Entry {
        // Fibonacci hashing, as in Refcache.
        let hash = (object as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.tables.of(core)[hash as usize & (self.slots - 1)]
    }

    /// Counts a reference to `object`, which is not 0, in this core's table. Returns the core, or `None` if
    /// the entry is taken by another object.
    #[inline]
    pub fn anchor(&self, pin: &Pinned, object: usize) -> Option<CoreId> {
        self.entry(pin.core(), object).take(object).then_some(pin.core())
    }

    /// Drops a reference to `object` that [`anchor`](Self::anchor) counted in the table of `core`.
    #[inline]
    pub fn leave(&self, pin: &Pinned, core: CoreId, object: usize) {
        let entry = self.entry(core, object);
        if core == pin.core() { entry.drop_locally() } else { entry.drop_remotely() }
    }

    /// Returns whether a reference to `object` is counted in a table, and how many tables were looked at.
    /// Exact if no core takes a new one and the caller has synchronised with every core that took one.
    pub fn ask(&self, object: usize) -> (bool, usize) {
        let cores = self.tables.cores();
        let first = (0..cores).position(|core| !self.entry(CoreId::new(core), object).is_free_of(object));
        (first.is_some(), first.map_or(cores, |core| core + 1))
    }

    /// Returns whether a reference to `object` is counted in a table, as [`ask`](Self::ask) does.
    pub fn is_anchored(&self, object: usize) -> bool {
        self.ask(object).0
    }

    fn is_free_of(&self, object: usize) -> bool {
        !self.is_anchored(object)
    }
}

fn address(count: &PayGoCount) -> usize {
    core::ptr::from_ref(count).addr()
}

impl Scheme<'_> for PayGo {
    type Count = PayGoCount;
    type Token = PayGoToken;

    const NAME: &'static str = "paygo";
    const ZERO: Zero = Zero::WhenAsked;
    const FIRST: PayGoToken = PayGoToken::Central;

    fn count(_cores: usize) -> Result<PayGoCount, OutOfMemory> {
        let (closed, settled) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(PayGoCount { central: AtomicU64::new(2), closed, settled })
    }

    fn object_bytes(_cores: usize) -> usize {
        size_of::<PayGoCount>()
    }

    fn core_bytes(&self) -> usize {
        self.slots * size_of::<Entry>()
    }

    #[inline]
    fn inc(&self, pin: &Pinned, count: &PayGoCount) -> PayGoToken {
        let entry = self.entry(pin.core(), address(count));
        if entry.take(address(count)) {
            // T, partner of A in `settle`.
            fence(Ordering::SeqCst);
            if !count.closed.load(Ordering::Relaxed) {
                return PayGoToken::Anchor(pin.core());
            }
            entry.drop_locally();
        }
        // Relaxed: the caller has another reference, which keeps the count from zero.
        count.central.fetch_add(1, Ordering::Relaxed);
        PayGoToken::Central
    }

    #[inline]
    fn dec(&self, pin: &Pinned, count: &PayGoCount, token: PayGoToken) -> bool {
        match token {
            PayGoToken::Anchor(core) => self.leave(pin, core, address(count)),
            PayGoToken::Central => return count.central.fetch_sub(1, Ordering::AcqRel) == 1,
        }
        false
    }

    fn settle(&self, _pin: &Pinned, count: &PayGoCount) -> bool {
        count.closed.store(true, Ordering::Relaxed);
        // A, partner of T in `inc`.
        fence(Ordering::SeqCst);
        // Relaxed: the flag only makes it happen once. The users' accesses are ordered by the entries.
        self.is_free_of(address(count))
            && !count.settled.swap(true, Ordering::Relaxed)
            && count.central.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
