//! A trie of values by hash, which readers search without a lock and without a write.
//!
//! It is made for the names of a directory. A value has a hash, and a *key* of 15 digits with four bits each:
//! 14 digits of its hash, and one that tells values with equal hashes apart. A value never changes its key,
//! and no other value has it, so a listing can go on after a key.
//!
//! ```text
//!   root ──▶ [ 0 | 1 | 2 | ... | f ]        a cache line for each slot and its lock
//!              │       │
//!              ▼       ▼
//!            leaf    fork [ 0 | 1 | ... | f ]       by the next digit of the key
//!            key           │   │
//!            value         ▼   ▼
//!                        leaf  leaf
//! ```
//!
//! | a slot holds | meaning | a writer changes it to |
//! |---|---|---|
//! | 0 | no value has these digits | a leaf |
//! | leaf | one value has these digits | 0, another leaf with the same key, or a fork that leads to the leaf |
//! | fork + `FORK` | several values had these digits | 0, when the fork has become empty |
//!
//! There is no table to grow: a change allocates and writes what lies between two values whose hashes begin
//! with the same digits. That is a fork or two usually, and `LEVELS` at most, however many values there are.
//!
//! Invariants:
//! 1. One writer at a time below a slot of the root, by its lock. Each change of a slot is one store, which
//!    publishes something complete. A writer with two hashes takes two locks, the lower slot's first, and a
//!    listing takes all in this order.
//! 2. A value that stays is found by every search: its leaf stays in its slot, or moves into a fork that
//!    leads to it when the slot's store publishes the fork. It never moves up. A replaced value's slot goes
//!    from one leaf to the other.
//! 3. A fork that is taken out is empty, and stays so. A search in it began before that. It may miss values
//!    that come afterwards, as if it had ended earlier.
//! 4. Leaves and forks that were taken out are retired in the one domain of all readers. So what a search
//!    finds lives until the reader's core is quiescent.
//! 5. A value that moves from one hash to another, or to another trie, is found at one of the two places, as
//!    if both changed in one step. A writer calls [`Change::begin_move`] for the old hash, stores the new
//!    place, and then the old one. A search that begins meanwhile waits if its hash has the same first digit
//!    as the old one. So after a search that finds the new place, none finds the old one. A search that began
//!    before the move may find the old place later, as if it had ended at its beginning.
//!
//! Orderings: slots are stored with Release and loaded with Acquire, so that what they lead to is complete.
//! They also order `moving`: it is set before the new place is stored, so a reader that has found this store
//! finds it set, or finds a later value. Clearing it is a Release, and pairs with the Acquire by which a
//! search begins, so that the search finds all stores of the move.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use percore::Pinned;
use sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use sync::{SpinGuard, SpinLock};

use crate::Domain;
use crate::owned::{OutOfMemory, Owned};

/// Bits of a digit.
const DIGIT: u32 = 4;
/// Slots of a fork.
const FAN: usize = 1 << DIGIT;
/// The shift of a key's first digit.
const FIRST: u32 = 56;
/// Most forks between the root and a leaf.
const LEVELS: usize = (FIRST / DIGIT) as usize;
/// The bits of a key that come from the hash.
const HASH: u64 = ((1 << (FIRST + DIGIT)) - 1) & !(FAN as u64 - 1);
/// Set in the address of a fork.
const FORK: usize = 1;

/// The error of [`Change::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotInserted {
    /// There is no memory.
    NoMemory,
    /// Sixteen values have this hash.
    Full,
}

impl From<OutOfMemory> for NotInserted {
    fn from(_: OutOfMemory) -> Self {
        Self::NoMemory
    }
}

impl fmt::Display for NotInserted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMemory => "no memory for a value",
            Self::Full => "too many values have this hash",
        })
    }
}

impl core::error::Error for NotInserted {}

/// The error of [`Trie::try_change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLocked {
    /// The trie is immutable.
    Immutable,
    /// Another writer, or a listing, has locked values whose hashes begin with the same digit.
    Busy,
}

impl fmt::Display for NotLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Immutable => "the trie is immutable",
            Self::Busy => "another change is going on",
        })
    }
}

impl core::error::Error for NotLocked {}

struct Leaf<V> {
    key: u64,
    value: V,
}

impl<V> Leaf<V> {
    fn is(&self, hash: u64, is: &impl Fn(&V) -> bool) -> bool {
        (self.key ^ hash) & HASH == 0 && is(&self.value)
    }
}

/// A value with a place of its own in memory, for [`Change::insert`] or [`Change::replace`].
pub struct Spare<V>(Owned<Leaf<V>>);

impl<V> Spare<V> {
    /// Makes a value with `hash`, whose lowest 60 bits count.
    ///
    /// # Errors
    /// If there is no memory. The value is dropped.
    pub fn new(hash: u64, value: V) -> Result<Self, OutOfMemory> {
        Owned::try_new(Leaf { key: hash & HASH, value }).map(Self)
    }
}

impl<V> fmt::Debug for Spare<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Spare)")
    }
}

struct Fork<V>([Slot<V>; FAN]);

impl<V> Fork<V> {
    fn new() -> Self {
        Self(core::array::from_fn(|_| Slot::new()))
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(Slot::is_free)
    }
}

/// A value on cache lines of its own.
#[repr(align(64))]
struct Line<T>(T);

/// A place for a leaf or a fork.
struct Slot<V> {
    word: AtomicPtr<()>,
    _leads_to: PhantomData<V>,
}

/// The content of a slot.
enum Seen<V> {
    Nothing,
    Leaf(NonNull<Leaf<V>>),
    Fork(NonNull<Fork<V>>),
}

impl<V> Slot<V> {
    fn new() -> Self {
        Self { word: AtomicPtr::new(ptr::null_mut()), _leads_to: PhantomData }
    }

    #[inline(always)]
    fn load(&self) -> Seen<V> {
        // Acquire: see the module.
        let word = self.word.load(Ordering::Acquire);
        match NonNull::new(word.map_addr(|address| address & !FORK)) {
            None => Seen::Nothing,
            Some(found) if word.addr() & FORK == 0 => Seen::Leaf(found.cast()),
            Some(found) => Seen::Fork(found.cast()),
        }
    }

    fn store(&self, new: Seen<V>) {
        let word = match new {
            Seen::Nothing => ptr::null_mut(),
            Seen::Leaf(leaf) => leaf.as_ptr().cast(),
            Seen::Fork(fork) => fork.as_ptr().cast::<()>().map_addr(|address| address | FORK),
        };
        // Release: see the module.
        self.word.store(word, Ordering::Release);
    }

    /// Relaxed: nothing that it leads to is accessed.
    fn is_free(&self) -> bool {
        self.word.load(Ordering::Relaxed).is_null()
    }
}

#[inline(always)]
fn digit(key: u64, shift: u32) -> usize {
    (key >> shift) as usize % FAN
}

/// A slot of the root. Of all searches and changes, only those of hashes that begin with its digit access its
/// cache line.
struct RootSlot<V> {
    slot: Slot<V>,
    /// Held by the writer of such hashes.
    lock: SpinLock<()>,
    /// Set while a value moves from such a hash, or to it.
    moving: AtomicBool,
    /// The stamp of the last change of such hashes, or 0: see [`Change::stamp`].
    stamp: AtomicU64,
}

impl<V> RootSlot<V> {
    fn new() -> Self {
        Self {
            slot: Slot::new(),
            lock: SpinLock::new(()),
            moving: AtomicBool::new(false),
            stamp: AtomicU64::new(0),
        }
    }
}

/// Values by hash. See the module.
pub struct Trie<V> {
    root: Box<[Line<RootSlot<V>>; FAN]>,
    /// Set with all locks held, never reset.
    frozen: AtomicBool,
    /// The stamp if no slot has one. It is set with all locks held.
    stamp: AtomicU64,
    /// Twice the number of calls of [`Trie::set_stamp`], and one more during a call.
    settings: AtomicU64,
}

// SAFETY: it owns its values.
unsafe impl<V: Send> Send for Trie<V> {}
// SAFETY: readers share the values, and a writer may drop them on any core.
unsafe impl<V: Send + Sync> Sync for Trie<V> {}

impl<V> Trie<V> {
    /// Makes a trie without values, with this stamp.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn try_new(stamp: u64) -> Result<Self, OutOfMemory> {
        let mut root = Vec::new();
        root.try_reserve_exact(FAN).map_err(|_| OutOfMemory)?;
        root.extend((0..FAN).map(|_| Line(RootSlot::new())));
        let root = root.into_boxed_slice().try_into().map_err(|_| OutOfMemory)?;
        let (stamp, settings) = (AtomicU64::new(stamp), AtomicU64::new(0));
        Ok(Self { root, frozen: AtomicBool::new(false), stamp, settings })
    }

    /// Makes it immutable.
    pub fn freeze(&self) {
        let _all = self.lock_all();
        // Release: pairs with the Acquire in `look`, which then finds the last change.
        self.frozen.store(true, Ordering::Release);
    }

    /// Keeps writers out, unless it is immutable anyway.
    pub fn look(&self) -> Values<'_, V> {
        // Acquire: see `freeze`.
        let _locks = (!self.frozen.load(Ordering::Acquire)).then(|| self.lock_all());
        Values { trie: self, _locks }
    }

    fn lock_all(&self) -> [SpinGuard<'_, ()>; FAN] {
        self.root.each_ref().map(|line| line.0.lock.lock())
    }

    /// Returns the slot of the root that leads to values with `hash`.
    #[inline(always)]
    fn root_slot(&self, hash: u64) -> &RootSlot<V> {
        &self.root[digit(hash, FIRST)].0
    }

    /// Returns the value with `hash` for which `is` returns true. It waits for moves that began for a hash
    /// with the same first digit.
    ///
    /// # Safety
    /// The caller's core takes part in the domain in which the trie's writers retire, and is not quiescent as
    /// long as the result is used.
    #[inline]
    pub unsafe fn find<'a>(&'a self, _pin: &'a Pinned, hash: u64, is: impl Fn(&V) -> bool) -> Option<&'a V> {
        let root = self.root_slot(hash);
        // Acquire: see the module.
        while root.moving.load(Ordering::Acquire) {
            percore::relax();
        }
        // SAFETY: the caller's promise, by invariant 4.
        unsafe { search(&root.slot, hash, &is).map(|(_, leaf)| &(*leaf.as_ptr()).value) }
    }

    /// Returns the highest stamp of the changes since [`set_stamp`](Self::set_stamp), or else what that set.
    pub fn stamp(&self) -> u64 {
        loop {
            // Acquire: pairs with the last Release in `set_stamp`.
            let before = self.settings.load(Ordering::Acquire);
            // Acquire: a core that finds a store of `set_stamp` finds that it has begun.
            let highest = self.root.iter().map(|line| line.0.stamp.load(Ordering::Acquire)).max();
            let stamp = highest.filter(|&stamp| stamp != 0);
            let stamp = stamp.unwrap_or_else(|| self.stamp.load(Ordering::Acquire));
            // Relaxed: the loads above come first.
            if before.is_multiple_of(2) && self.settings.load(Ordering::Relaxed) == before {
                return stamp;
            }
            percore::relax();
        }
    }

    /// Sets the stamp, whatever changes have left. It is higher or lower than theirs.
    pub fn set_stamp(&self, stamp: u64) {
        let _all = self.lock_all();
        // Relaxed: the stores below publish it.
        let settings = self.settings.load(Ordering::Relaxed);
        self.settings.store(settings + 1, Ordering::Relaxed);
        // Release: see `stamp`.
        self.stamp.store(stamp, Ordering::Release);
        self.root.iter().for_each(|line| line.0.stamp.store(0, Ordering::Release));
        self.settings.store(settings + 2, Ordering::Release);
    }
}

/// Returns the slot and the leaf of the value with `hash` for which `is` returns true, from a slot of the
/// root on.
///
/// # Safety
/// The caller keeps what it finds: by the lock, or as a reader.
#[inline(always)]
unsafe fn search<'a, V>(
    mut slot: &'a Slot<V>,
    hash: u64,
    is: &impl Fn(&V) -> bool,
) -> Option<(&'a Slot<V>, NonNull<Leaf<V>>)> {
    let matches = |slot| match Slot::load(slot) {
        // SAFETY: the caller's promise.
        Seen::Leaf(leaf) if unsafe { leaf.as_ref() }.is(hash, is) => Some((slot, leaf)),
        _ => None,
    };
    let mut shift = FIRST;
    loop {
        match slot.load() {
            Seen::Nothing => return None,
            // SAFETY: the caller's promise.
            Seen::Leaf(leaf) => return unsafe { leaf.as_ref() }.is(hash, is).then_some((slot, leaf)),
            Seen::Fork(fork) => {
                // SAFETY: the caller's promise.
                let slots = &unsafe { fork.as_ref() }.0;
                shift -= DIGIT;
                if shift == 0 {
                    return slots.iter().find_map(matches);
                }
                slot = &slots[digit(hash, shift)];
            }
        }
    }
}

impl<V: Send + Sync + 'static> Trie<V> {
    /// Locks the values whose hashes begin with the same digit as one of these for a change. Returns `None`
    /// if the trie is immutable. A change of one value names its hash twice.
    ///
    /// # Safety
    /// All writers and readers of this trie name the same domain, in which the caller's core takes part.
    pub unsafe fn change<'a>(
        &'a self,
        domain: &'a Domain,
        pin: &'a Pinned,
        hashes: [u64; 2],
    ) -> Option<Change<'a, V>> {
        let mut digits = hashes.map(|hash| digit(hash, FIRST));
        digits.sort_unstable();
        let lock = |digit: usize| self.root[digit].0.lock.lock();
        let first = lock(digits[0]);
        let second = (digits[0] != digits[1]).then(|| lock(digits[1]));
        self.locked(domain, pin, digits, (first, second))
    }

    /// Locks the values whose hashes begin with the same digit as `hash` for a change, if that takes no
    /// waiting. For a caller that holds another lock, and may not wait for this one.
    ///
    /// # Errors
    /// If it is immutable, or would have to wait.
    ///
    /// # Safety
    /// As for [`change`](Self::change).
    pub unsafe fn try_change<'a>(
        &'a self,
        domain: &'a Domain,
        pin: &'a Pinned,
        hash: u64,
    ) -> Result<Change<'a, V>, NotLocked> {
        let digit = digit(hash, FIRST);
        let lock = self.root[digit].0.lock.try_lock().ok_or(NotLocked::Busy)?;
        self.locked(domain, pin, [digit; 2], (lock, None)).ok_or(NotLocked::Immutable)
    }

    fn locked<'a>(
        &'a self,
        domain: &'a Domain,
        pin: &'a Pinned,
        digits: [usize; 2],
        (_first, _second): (SpinGuard<'a, ()>, Option<SpinGuard<'a, ()>>),
    ) -> Option<Change<'a, V>> {
        // Relaxed: it is set with the locks held.
        let is_frozen = self.frozen.load(Ordering::Relaxed);
        (!is_frozen).then_some(Change { trie: self, domain, pin, digits, _first, _second })
    }
}

impl<V> fmt::Debug for Trie<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trie").finish_non_exhaustive()
    }
}

impl<V> Drop for Trie<V> {
    /// Drops the values at once. No core searches it any more.
    fn drop(&mut self) {
        // SAFETY: the trie is the caller's alone.
        self.root.iter().for_each(|line| unsafe { free(&line.0.slot) });
    }
}

/// Frees what is below `slot`.
///
/// # Safety
/// It is the caller's alone.
unsafe fn free<V>(slot: &Slot<V>) {
    match slot.load() {
        Seen::Nothing => {}
        // SAFETY: the slot had the leaf.
        Seen::Leaf(leaf) => drop(unsafe { Owned::from_raw(leaf) }),
        Seen::Fork(fork) => {
            // SAFETY: the slot had the fork, and all that it leads to.
            let fork = unsafe { Owned::from_raw(fork) };
            // SAFETY: as above.
            fork.0.iter().for_each(|slot| unsafe { free(slot) });
        }
    }
}

/// The values of a trie that does not change.
pub struct Values<'a, V> {
    trie: &'a Trie<V>,
    _locks: Option<[SpinGuard<'a, ()>; FAN]>,
}

impl<V> Values<'_, V> {
    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.trie.root.iter().all(|line| line.0.slot.is_free())
    }

    /// Passes the values with keys above `key` and their keys to `show`, the lowest key first, until that
    /// returns false.
    pub fn after(&self, key: u64, show: &mut dyn FnMut(u64, &V) -> bool) {
        for (at, line) in self.trie.root.iter().enumerate() {
            if !walk(&line.0.slot, (at as u64) << FIRST, FIRST, key, show) {
                return;
            }
        }
    }
}

impl<V> fmt::Debug for Values<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Values)")
    }
}

/// Shows the values below `slot` with keys above `key`. The keys there begin with the digits of `first` down
/// to the one at `shift`. Returns false if `show` has. The caller keeps writers out.
fn walk<V>(slot: &Slot<V>, first: u64, shift: u32, key: u64, show: &mut dyn FnMut(u64, &V) -> bool) -> bool {
    if first + (1 << shift) - 1 <= key {
        return true;
    }
    match slot.load() {
        Seen::Nothing => true,
        Seen::Leaf(leaf) => {
            // SAFETY: no writer takes it out.
            let leaf = unsafe { leaf.as_ref() };
            leaf.key <= key || show(leaf.key, &leaf.value)
        }
        Seen::Fork(fork) => {
            let shift = shift - DIGIT;
            // SAFETY: as above.
            let mut slots = unsafe { fork.as_ref() }.0.iter().enumerate();
            slots.all(|(at, slot)| walk(slot, first | (at as u64) << shift, shift, key, show))
        }
    }
}

/// A trie, of which the values with one or two first digits are locked for a change. Its methods panic if a
/// hash begins with another digit.
pub struct Change<'a, V> {
    trie: &'a Trie<V>,
    domain: &'a Domain,
    pin: &'a Pinned,
    digits: [usize; 2],
    _first: SpinGuard<'a, ()>,
    _second: Option<SpinGuard<'a, ()>>,
}

/// A value moves as long as this lives.
#[must_use = "a value moves while this lives"]
#[derive(Debug)]
pub struct Moving<'a>(&'a AtomicBool);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        // Release: see the module.
        self.0.store(false, Ordering::Release);
    }
}

impl<'a, V: Send + Sync + 'static> Change<'a, V> {
    /// Returns the slot of the root that leads to values with `hash`.
    ///
    /// # Panics
    /// Panics unless it is locked.
    fn locked(&self, hash: u64) -> &'a RootSlot<V> {
        let digit = digit(hash, FIRST);
        assert!(self.digits.contains(&digit), "the change is not for this hash: {hash:#x}");
        &self.trie.root[digit].0
    }

    /// Makes searches that begin from now on wait until the result is dropped, if their hash begins with the
    /// same digit as `hash`. That is the old hash of a value that moves. If the writer changes more than its
    /// two places in this step, it calls this for the new hash too. It drops the result before this, and
    /// looks at nothing meanwhile that takes long.
    pub fn begin_move(&self, hash: u64) -> Moving<'a> {
        let moving = &self.locked(hash).moving;
        // Relaxed: the stores of slots order it, see the module.
        moving.store(true, Ordering::Relaxed);
        Moving(moving)
    }

    /// Leaves a stamp of this change, such as its time, which is not 0. [`Trie::stamp`] returns the highest,
    /// so changes of different hashes write no common line.
    pub fn stamp(&self, stamp: u64) {
        // Relaxed: it orders nothing, and the lock keeps `set_stamp` out.
        self.trie.root[self.digits[0]].0.stamp.store(stamp, Ordering::Relaxed);
    }

    /// Returns the value with `hash` for which `is` returns true.
    pub fn get(&self, hash: u64, is: impl Fn(&V) -> bool) -> Option<&V> {
        // SAFETY: the lock keeps all leaves and forks.
        unsafe { search(&self.locked(hash).slot, hash, &is).map(|(_, leaf)| &(*leaf.as_ptr()).value) }
    }

    /// Adds a value. Others with its hash stay.
    ///
    /// # Errors
    /// If there is no memory, or sixteen values have this hash. The value is dropped.
    pub fn insert(&mut self, spare: Spare<V>) -> Result<(), NotInserted> {
        let mut leaf = spare.0;
        let hash = leaf.key;
        let mut shift = FIRST;
        let mut slot = &self.locked(hash).slot;
        loop {
            match slot.load() {
                Seen::Nothing => break slot.store(Seen::Leaf(leaf.into_raw())),
                Seen::Leaf(other) => break slot.store(Seen::Fork(branch(other, leaf, shift)?)),
                Seen::Fork(fork) => {
                    // SAFETY: the lock keeps it.
                    let slots = &unsafe { fork.as_ref() }.0;
                    shift -= DIGIT;
                    let mut at = digit(hash, shift);
                    if shift == 0 {
                        at = slots.iter().position(Slot::is_free).ok_or(NotInserted::Full)?;
                        leaf.key |= at as u64;
                    }
                    slot = &slots[at];
                }
            }
        }
        Ok(())
    }

    /// Replaces the value with the hash of `spare` for which `is` returns true. Returns `spare` if there is
    /// no such value.
    pub fn replace(&mut self, mut spare: Spare<V>, is: impl Fn(&V) -> bool) -> Option<Spare<V>> {
        // SAFETY: the lock keeps all leaves and forks.
        let found = unsafe { search(&self.locked(spare.0.key).slot, spare.0.key, &is) };
        let Some((slot, old)) = found else { return Some(spare) };
        // SAFETY: as above.
        spare.0.key = unsafe { old.as_ref() }.key;
        slot.store(Seen::Leaf(spare.0.into_raw()));
        // SAFETY: the leaf is in no slot any more.
        self.domain.retire(self.pin, unsafe { Owned::from_raw(old) });
        None
    }

    /// Removes the value with `hash` for which `is` returns true, if there is one, and returns whether. It is
    /// dropped after a grace period.
    pub fn remove(&mut self, hash: u64, is: impl Fn(&V) -> bool) -> bool {
        self.remove_below(&self.locked(hash).slot, FIRST, hash, &is)
    }

    /// Removes the value below `slot`, which the digit at `shift` chose, and the forks that become empty.
    fn remove_below(&self, slot: &Slot<V>, shift: u32, hash: u64, is: &impl Fn(&V) -> bool) -> bool {
        match slot.load() {
            Seen::Nothing => false,
            Seen::Leaf(leaf) => {
                // SAFETY: the lock keeps it.
                let found = unsafe { leaf.as_ref() }.is(hash, is);
                if found {
                    slot.store(Seen::Nothing);
                    // SAFETY: the leaf is in no slot any more.
                    self.domain.retire(self.pin, unsafe { Owned::from_raw(leaf) });
                }
                found
            }
            Seen::Fork(fork) => {
                // SAFETY: as above.
                let fork_ref = unsafe { fork.as_ref() };
                let shift = shift - DIGIT;
                let found = match shift {
                    0 => fork_ref.0.iter().any(|slot| self.remove_below(slot, shift, hash, is)),
                    _ => self.remove_below(&fork_ref.0[digit(hash, shift)], shift, hash, is),
                };
                if found && fork_ref.is_empty() {
                    slot.store(Seen::Nothing);
                    // SAFETY: the fork is in no slot any more, and leads to nothing.
                    self.domain.retire(self.pin, unsafe { Owned::from_raw(fork) });
                }
                found
            }
        }
    }
}

impl<V> fmt::Debug for Change<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Change)")
    }
}

/// Makes the forks that lead to two leaves, for the slot that the digit at `shift` chose. `other` stays where
/// it is if there is no memory.
fn branch<V>(
    other: NonNull<Leaf<V>>,
    mut leaf: Owned<Leaf<V>>,
    shift: u32,
) -> Result<NonNull<Fork<V>>, OutOfMemory> {
    // SAFETY: the caller's lock keeps it.
    let other_key = unsafe { other.as_ref() }.key;
    // The shift of the first digit of the hash in which they differ, or 0.
    let apart = ((other_key ^ leaf.key) & HASH).checked_ilog2().map_or(0, |bit| bit - bit % DIGIT);
    if apart == 0 {
        leaf.key |= u64::from(digit(other_key, 0) == 0);
    }
    // All of them first, so that none has a leaf if there is no memory.
    let mut forks: [Option<Owned<Fork<V>>>; LEVELS] = [const { None }; LEVELS];
    let needed = forks.iter_mut().take(((shift - apart) / DIGIT) as usize);
    for fork in needed {
        *fork = Some(Owned::try_new(Fork::new())?);
    }
    let key = leaf.key;
    let mut leaf = Some(leaf);
    let mut below = None;
    for (fork, shift) in forks.into_iter().flatten().zip((apart..).step_by(DIGIT as usize)) {
        match below {
            Some(below) => fork.0[digit(key, shift)].store(Seen::Fork(below)),
            None => {
                fork.0[digit(other_key, shift)].store(Seen::Leaf(other));
                let leaf = leaf.take().map_or(Seen::Nothing, |leaf| Seen::Leaf(leaf.into_raw()));
                fork.0[digit(key, shift)].store(leaf);
            }
        }
        below = Some(fork.into_raw());
    }
    below.ok_or(OutOfMemory)
}
