//! A trie of values by hash, which readers search without a lock and without a write.
//!
//! It is made for the names of a directory. A value has a hash, and a *key* of 15 digits with four bits each:
//! 14 digits of its hash, and one that tells values with equal hashes apart. A value never changes its key,
//! and no other value has it, so a listing can go on after a key.
//!
//! ```text
//!   root ──▶ [ 0 | 1 | 2 | ... | f ]        a cache line for each slot, made with the first value
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
//! 1. One writer at a time, by the trie's lock. Each change of a slot is one store, which publishes something
//!    complete.
//! 2. A value that stays is found by every search: its leaf stays in its slot, or moves into a fork that
//!    leads to it when the slot's store publishes the fork. It never moves up. A replaced value's slot goes
//!    from one leaf to the other.
//! 3. A fork that is taken out is empty, and stays so. A search in it began before that. It may miss values
//!    that come afterwards, as if it had ended earlier.
//! 4. Leaves and forks that were taken out are retired in the one domain of all readers. So what a search
//!    finds lives until the reader's core is quiescent.
//! 5. A value that moves from one hash to another, or to another trie, is found at one of the two places, as
//!    if both changed in one step. A writer stores the new place first and makes the changes inside
//!    [`Change::begin_move`], and a search that begins meanwhile waits. So a search that finds one of the
//!    stores of a move is followed only by searches that find all of them. A search that began before the
//!    move may find it done or not, as if it had ended at its beginning.
//!
//! Orderings: slots are stored with Release and loaded with Acquire, so that what they lead to is complete.
//! They also order `moving`: it is set before the first slot is stored, so a reader that has found this
//! store finds it set, or finds a later value. Clearing it is a Release, and pairs with the Acquire by which
//! a search begins, so that the search finds all stores of the move.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use percore::Pinned;
use sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use sync::{FreezeLock, Look, SpinGuard};

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

/// The part that readers load and moves write.
struct Top<V> {
    /// The first of [`FAN`] lines, or null as long as there was no value.
    root: AtomicPtr<Line<Slot<V>>>,
    /// Set while values move.
    moving: AtomicBool,
}

/// Values by hash. See the module.
pub struct Trie<V> {
    top: Line<Top<V>>,
    writers: Line<FreezeLock<()>>,
    _owns: PhantomData<V>,
}

// SAFETY: it owns its values.
unsafe impl<V: Send> Send for Trie<V> {}
// SAFETY: readers share the values, and a writer may drop them on any core.
unsafe impl<V: Send + Sync> Sync for Trie<V> {}

impl<V> Trie<V> {
    sync::const_unless_loom! {
        /// Makes a trie without values. It allocates nothing.
        pub fn new() -> Self {
            let top = Top { root: AtomicPtr::new(ptr::null_mut()), moving: AtomicBool::new(false) };
            Self { top: Line(top), writers: Line(FreezeLock::new(())), _owns: PhantomData }
        }
    }

    /// Makes it immutable.
    pub fn freeze(&self) {
        self.writers.0.freeze();
    }

    /// Keeps writers out, unless it is immutable anyway.
    pub fn look(&self) -> Values<'_, V> {
        Values { trie: self, _still: self.writers.0.look() }
    }

    #[inline(always)]
    fn root(&self) -> Option<&[Line<Slot<V>>; FAN]> {
        // Acquire: pairs with the Release in `make_root`. The lines are empty or more.
        let root = NonNull::new(self.top.0.root.load(Ordering::Acquire))?;
        // SAFETY: the lines stay as long as the trie.
        Some(unsafe { root.cast::<[Line<Slot<V>>; FAN]>().as_ref() })
    }

    /// Returns the slot and the leaf of the value with `hash` for which `is` returns true.
    ///
    /// # Safety
    /// The caller keeps what it finds: by the lock, or as a reader.
    #[inline(always)]
    unsafe fn search(&self, hash: u64, is: &impl Fn(&V) -> bool) -> Option<(&Slot<V>, NonNull<Leaf<V>>)> {
        let matches = |slot| match Slot::load(slot) {
            // SAFETY: the caller's promise.
            Seen::Leaf(leaf) if unsafe { leaf.as_ref() }.is(hash, is) => Some((slot, leaf)),
            _ => None,
        };
        let mut shift = FIRST;
        let mut slot = &self.root()?[digit(hash, shift)].0;
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

    /// Returns the value with `hash` for which `is` returns true. It waits for values that move.
    ///
    /// # Safety
    /// The caller's core takes part in the domain in which the trie's writers retire, and is not quiescent as
    /// long as the result is used.
    #[inline]
    pub unsafe fn find<'a>(&'a self, _pin: &'a Pinned, hash: u64, is: impl Fn(&V) -> bool) -> Option<&'a V> {
        // Acquire: see the module.
        while self.top.0.moving.load(Ordering::Acquire) {
            percore::relax();
        }
        // SAFETY: the caller's promise, by invariant 4.
        unsafe { self.search(hash, &is).map(|(_, leaf)| &(*leaf.as_ptr()).value) }
    }

    /// Returns whether there is no value. The caller keeps writers out.
    fn is_empty(&self) -> bool {
        self.root().is_none_or(|lines| lines.iter().all(|line| line.0.is_free()))
    }
}

impl<V: Send + Sync + 'static> Trie<V> {
    /// Locks it for a change, or returns `None` if it is immutable.
    ///
    /// # Safety
    /// All writers and readers of this trie name the same domain, in which the caller's core takes part.
    pub unsafe fn change<'a>(&'a self, domain: &'a Domain, pin: &'a Pinned) -> Option<Change<'a, V>> {
        Some(Change { _lock: self.writers.0.change()?, trie: self, domain, pin })
    }
}

impl<V> Default for Trie<V> {
    fn default() -> Self {
        Self::new()
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
        let root = self.top.0.root.load(Ordering::Acquire);
        if !root.is_null() {
            // SAFETY: made by `make_root`, and the trie is the caller's alone.
            let lines = unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(root, FAN)) };
            // SAFETY: as above.
            lines.iter().for_each(|line| unsafe { free(&line.0) });
        }
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
    _still: Look<'a, ()>,
}

impl<V> Values<'_, V> {
    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.trie.is_empty()
    }

    /// Returns the value with `hash` for which `is` returns true.
    pub fn get(&self, hash: u64, is: impl Fn(&V) -> bool) -> Option<&V> {
        // SAFETY: no writer takes a leaf or a fork out while this lives.
        unsafe { self.trie.search(hash, &is).map(|(_, leaf)| &(*leaf.as_ptr()).value) }
    }

    /// Passes the values with keys above `key` and their keys to `show`, the lowest key first, until that
    /// returns false.
    pub fn after(&self, key: u64, show: &mut dyn FnMut(u64, &V) -> bool) {
        for (at, line) in self.trie.root().into_iter().flatten().enumerate() {
            if !walk(&line.0, (at as u64) << FIRST, FIRST, key, show) {
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

/// A trie that is locked for a change.
pub struct Change<'a, V> {
    trie: &'a Trie<V>,
    domain: &'a Domain,
    pin: &'a Pinned,
    _lock: SpinGuard<'a, ()>,
}

/// Values move as long as this lives.
#[must_use = "values move while this lives"]
#[derive(Debug)]
pub struct Moving<'a>(&'a AtomicBool);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        // Release: see the module.
        self.0.store(false, Ordering::Release);
    }
}

impl<'a, V: Send + Sync + 'static> Change<'a, V> {
    /// Makes searches that begin from now on wait until the result is dropped. The caller drops it before
    /// this, and looks at nothing meanwhile that takes long.
    pub fn begin_move(&self) -> Moving<'a> {
        let moving = &self.trie.top.0.moving;
        // Relaxed: the stores of slots order it, see the module.
        moving.store(true, Ordering::Relaxed);
        Moving(moving)
    }

    /// Returns whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.trie.is_empty()
    }

    /// Returns the value with `hash` for which `is` returns true.
    pub fn get(&self, hash: u64, is: impl Fn(&V) -> bool) -> Option<&V> {
        // SAFETY: the lock keeps all leaves and forks.
        unsafe { self.trie.search(hash, &is).map(|(_, leaf)| &(*leaf.as_ptr()).value) }
    }

    /// Adds a value. Others with its hash stay.
    ///
    /// # Errors
    /// If there is no memory, or sixteen values have this hash. The value is dropped.
    pub fn insert(&mut self, spare: Spare<V>) -> Result<(), NotInserted> {
        let mut leaf = spare.0;
        let hash = leaf.key;
        let mut shift = FIRST;
        let mut slot = &self.make_root()?[digit(hash, shift)].0;
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
        let Some((slot, old)) = (unsafe { self.trie.search(spare.0.key, &is) }) else { return Some(spare) };
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
        let lines = self.trie.root();
        lines.is_some_and(|lines| self.remove_below(&lines[digit(hash, FIRST)].0, FIRST, hash, &is))
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

    fn make_root(&self) -> Result<&'a [Line<Slot<V>>; FAN], NotInserted> {
        if let Some(root) = self.trie.root() {
            return Ok(root);
        }
        let mut lines: Vec<Line<Slot<V>>> = Vec::new();
        lines.try_reserve_exact(FAN).map_err(|_| NotInserted::NoMemory)?;
        lines.extend((0..FAN).map(|_| Line(Slot::new())));
        let lines = Box::into_raw(lines.into_boxed_slice()).cast::<Line<Slot<V>>>();
        // Release: pairs with the Acquire in `root`.
        self.trie.top.0.root.store(lines, Ordering::Release);
        self.trie.root().ok_or(NotInserted::NoMemory)
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
