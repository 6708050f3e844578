//! The blocks in which users have local counters, in a table: what a question about one object looks
//! through, while users come and go.
//!
//! A user is a process, and its block a page of [`ClaimedSet`](super::claimed::ClaimedSet)s. The host counts
//! reads of the table by epochs: an *epoch passes* when every reader that was there before has gone.
//!
//! ```text
//!   user      make block   insert     count ... count                                another user's block
//!   slot      empty        the block                                      empty      the other block
//!   tenant                 the user   used, unused, used ...   no user
//!   sweep/end                                                  take away
//!   epochs                                                          pass   remove   pass   free
//! ```
//!
//! | a slot | becomes | by |
//! |---|---|---|
//! | empty | a block | the user that made it, by compare-and-swap |
//! | a block | empty | the caller that is about to free it: it has no tenant, an epoch has passed since, and it counts nothing |
//!
//! | a [`Tenant`] | becomes | by |
//! |---|---|---|
//! | a user, used | the same, not used | the sweep |
//! | a user, not used | the same, used | the user, when it counts |
//! | a user, not used | none | the sweep |
//! | a user | none | the user's end |
//!
//! 1. A user remembers its slot, not its block. So the sweep takes a block away from a user without a look
//!    at the user, which may end meanwhile. A user that finds another's name in the block, or no block, has
//!    none.
//! 2. Each step out of a user's name is a compare-and-swap, so one caller takes a block away.
//! 3. A block that a reader finds in its slot is not freed before the reader has gone: an epoch passes after
//!    the slot is empty.
//! 4. The question ([`Slots::ask`]) is asked when no reference to the object is taken any more, and no
//!    counter claimed for it. So a slot that was looked at once needs no second look, whatever is there
//!    later, and the question may be asked in pieces. It takes no lock and writes no slot.
//! 5. A slot has one of 31 groups. A user notes its group in the object before it claims a counter, so the
//!    question passes over the other groups. Users that belong together ask for slots of one group.
//! 6. A user's new block may come into the slot that the user remembers from the one before, where its other
//!    threads find it at once. So a block has its number before it is in the slot.
//!
//! 7. Threads of a user may make blocks at the same time, and one may come into the slot that the user has
//!    remembered. So the thread that changes the remembered slot looks at the one before
//!    ([`Slots::remember`]), and no block of the user's is forgotten.
//!
//! Orderings: `remove` is Release and `get` is Acquire. So a question that finds a slot empty is ordered
//! after the last reference in the block that was there, as is one that finds the next block: `insert` is a
//! read-modify-write and continues the release sequence of `remove`. Tenants are Relaxed: epochs lie between
//! the last use of a block and its end.

use core::ptr::{self, NonNull};

use sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A table of `N` blocks.
#[derive(Debug)]
pub struct Slots<B, const N: usize> {
    slots: [AtomicPtr<B>; N],
    /// A slot that may be the first empty one. Relaxed: a hint.
    free: AtomicUsize,
    /// All slots from here on were always empty. Relaxed: epochs lie between an insertion and a question.
    end: AtomicUsize,
    /// The slots that are not empty. Relaxed: a hint.
    used: AtomicUsize,
}

/// The groups of slots.
const GROUPS: usize = 31;

impl<B, const N: usize> Slots<B, N> {
    /// Creates an empty table.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        let slots = [const { AtomicPtr::new(ptr::null_mut()) }; N];
        let [free, end, used] = [const { AtomicUsize::new(0) }; 3];
        Self { slots, free, end, used }
    }

    /// Creates an empty table.
    #[cfg(loom)]
    pub fn new() -> Self {
        let slots = core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        let [free, end, used] = core::array::from_fn(|_| AtomicUsize::new(0));
        Self { slots, free, end, used }
    }

    /// Puts a block into an empty slot, one of the `wanted` group if it has one (the number of a group is
    /// taken modulo their number). Returns the slot's number, or `None` if there is no empty one. `note`
    /// writes the number to the block before any user can find it there: see 6.
    pub fn insert(&self, block: NonNull<B>, wanted: usize, note: impl Fn(usize)) -> Option<usize> {
        let first = self.free.load(Ordering::Relaxed).min(N);
        let others = (first..N).chain(0..first);
        let mut all = (wanted % GROUPS..N).step_by(GROUPS).chain(others);
        let at = all.find(|&at| self.put(at, block, &note))?;
        self.end.fetch_max(at + 1, Ordering::Relaxed);
        self.used.fetch_add(1, Ordering::Relaxed);
        self.free.store(at + 1, Ordering::Relaxed);
        Some(at)
    }

    fn put(&self, at: usize, block: NonNull<B>, note: impl Fn(usize)) -> bool {
        // Relaxed: the compare-and-swap decides.
        let is_empty = |slot: &&AtomicPtr<B>| slot.load(Ordering::Relaxed).is_null();
        self.slots.get(at).filter(is_empty).is_some_and(|slot| {
            note(at);
            // Release: the block is seen as it was made, with its number.
            let (none, block) = (ptr::null_mut(), block.as_ptr());
            slot.compare_exchange(none, block, Ordering::Release, Ordering::Relaxed).is_ok()
        })
    }

    /// Empties the slot of a block that has no tenant and no count, and that no user finds any more. The
    /// block may be freed when an epoch has passed.
    pub fn remove(&self, at: usize) {
        if let Some(slot) = self.slots.get(at) {
            // Release: see the module.
            slot.store(ptr::null_mut(), Ordering::Release);
            self.free.fetch_min(at, Ordering::Relaxed);
            self.used.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the block in slot `at`.
    #[inline]
    pub fn get(&self, at: usize) -> Option<NonNull<B>> {
        // Acquire: see the module.
        NonNull::new(self.slots.get(at)?.load(Ordering::Acquire))
    }

    /// Returns slot `at`, which a user may keep and load by Acquire.
    pub fn slot(&self, at: usize) -> Option<&AtomicPtr<B>> {
        self.slots.get(at)
    }

    /// Makes slot `at` the one that a user remembers in `word`, which was `old` when the user's thread began
    /// to make `block` and put it there. Returns a block that is one too many if it has this user: that one,
    /// if another thread was faster, or the one in the slot before. The caller ends its tenant.
    pub fn remember(
        &self,
        word: &AtomicPtr<AtomicPtr<B>>,
        old: *mut AtomicPtr<B>,
        at: usize,
        block: NonNull<B>,
    ) -> Option<NonNull<B>> {
        let new = self.slot(at).map_or(ptr::null_mut(), |slot| ptr::from_ref(slot).cast_mut());
        // Release: the block is seen in its slot. Acquire: so is one that another thread has put into the
        // slot before, if this one changes the word after it.
        let change = word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
        match change {
            Err(_) => Some(block),
            Ok(_) if ptr::eq(old, new) => None,
            Ok(_) => self.get(self.number_of(old)),
        }
    }

    /// Returns the number of a slot of the table. Of another it is none of the table's.
    fn number_of(&self, slot: *const AtomicPtr<B>) -> usize {
        slot.addr().wrapping_sub(self.slots.as_ptr().addr()) / size_of::<AtomicPtr<B>>()
    }

    /// Returns a number above those of all blocks.
    pub fn end(&self) -> usize {
        self.end.load(Ordering::Relaxed)
    }

    /// Returns whether more than half of the slots have blocks.
    pub fn is_half_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) > N / 2
    }

    /// Returns the bit of a slot's group in the groups of an object. Bit 31 means no group.
    pub const fn group(at: usize) -> u32 {
        1 << (at % GROUPS)
    }

    /// Looks at the slots of `groups` from `from` on, at most at `most` of them, for a block that `has` a
    /// reference to the object.
    pub fn ask(
        &self,
        groups: u32,
        from: usize,
        most: usize,
        mut has: impl FnMut(NonNull<B>) -> bool,
    ) -> Asked {
        let mut asked = (from..self.end()).filter(|&at| groups & Self::group(at) != 0);
        let found = asked.by_ref().take(most).find(|&at| self.get(at).is_some_and(&mut has));
        match found {
            Some(at) => Asked::Held(at),
            None => asked.next().map_or(Asked::Free, Asked::Unfinished),
        }
    }
}

/// The answer to a piece of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The object has no reference in any block, if the earlier pieces have reached this one.
    Free,
    /// The block in this slot has one. The next piece begins there.
    Held(usize),
    /// The question is not over. The next piece begins at this slot.
    Unfinished(usize),
}

#[cfg(not(loom))]
impl<B, const N: usize> Default for Slots<B, N> {
    fn default() -> Self {
        Self::new()
    }
}

/// The user that counts in a block, and whether it has since the last sweep.
#[derive(Debug)]
pub struct Tenant(AtomicUsize);

const USED: usize = 1;

impl Tenant {
    /// Creates the word of a block of `user`, an even number other than 0. The next sweep leaves it alone.
    pub fn new(user: usize) -> Self {
        Self(AtomicUsize::new(user | USED))
    }

    /// Returns whether the block is that of `user`, and known to be used.
    #[inline]
    pub fn is_used_by(&self, user: usize) -> bool {
        self.0.load(Ordering::Relaxed) == user | USED
    }

    /// Returns whether the block is that of `user`, which is about to count there.
    pub fn is(&self, user: usize) -> bool {
        // Another thread of the user may set the bit in between.
        self.is_used_by(user) || self.change(user, user | USED) || self.is_used_by(user)
    }

    /// Takes the block from its user if that has not counted there since the last sweep. Returns whether it
    /// did: the caller then frees the block, some epochs later.
    pub fn sweep(&self) -> bool {
        let value = self.0.load(Ordering::Relaxed);
        if value & USED != 0 {
            self.change(value, value & !USED);
            return false;
        }
        value != 0 && self.change(value, 0)
    }

    /// Takes the block from `user`, which ends or does not need it. Returns whether it was the user's until
    /// now: the caller then frees the block, some epochs later.
    pub fn end(&self, user: usize) -> bool {
        // Only the user sets the bit, and does not any more.
        self.change(user | USED, 0) || self.change(user, 0)
    }

    fn change(&self, from: usize, to: usize) -> bool {
        self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
