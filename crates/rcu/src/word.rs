//! Words that hold counted references, which readers use without counting them.
//!
//! A [`Word`] holds one counted reference to an object, for instance an `Arc`, and a mark. Its writers
//! change it by atomic operations, and mostly have a lock of their own. Its readers have none and write no
//! shared line. Some changes of a word that is not [frozen](Word::freeze) take no lock either.
//!
//! | word | meaning | changes to |
//! |---|---|---|
//! | 0 | free | reserved, or a reference |
//! | [`RESERVED`](Found::Reserved) | a writer will put a reference here | free, or a reference |
//! | pointer | a reference, not marked | marked, free, or another reference |
//! | pointer + `MARK` | the same, marked | not marked, free, or another reference |
//! | one of these + `FROZEN` | the same. Only writers with the lock change it | the same, not frozen |
//!
//! A reader may use the object in three ways:
//! - while it stays pinned and is not quiescent ([`Word::peek`]),
//! - by counting a reference of its own ([`Word::get`]),
//! - by a *loan*, in its core's [`LoanCell`], which becomes a counted reference only if the core is about to
//!   be quiescent, or another flow is about to run on it ([`LoanCell::keep`]).
//!
//! Invariants:
//! 1. Each reference leaves its word once: the word is exchanged, and a mark is set by a compare-and-swap.
//! 2. A reference that was taken out of a word ([`Removed`]) is dropped after a grace period that begins
//!    after the exchange. So the object lives, and its count is not 0, as long as a reader that loaded the
//!    word before is in its read section. It may add to the count. The reference is dropped at once only if
//!    no other core can be reading the word.
//! 3. A [`Loaned`] stands for one reference: either the cell of its core names the object, or it is counted.
//!    It is in the cell only until `keep`, so in one read section.
//! 4. A cell belongs to the flow that runs on its core. If the cell names the object of a `Loaned` that is
//!    given back, that loan or one to the same object is in the cell, and the rest are counted. It does not
//!    matter which, because they are all of one flow.
//! 5. A writer without the lock changes a word by a compare-and-swap, from one that is not frozen and holds a
//!    reference or is reserved. So a free word stays free, and a frozen one stays as it is, while the lock is
//!    held.
//!
//! Orderings: a reference is put by a Release, and readers load it by an Acquire, so that they see the object
//! complete. So does the writer that takes it out. All else is ordered by the domain: a callback runs after
//! every read section that was open.

use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, Range};
use core::ptr;

use percore::Pinned;
use sync::atomic::{AtomicPtr, Ordering, fence};

use crate::Domain;
use crate::owned::Owned;

const MARK: usize = 1 << 1;
const FROZEN: usize = 1 << 2;
/// No address has these bits alone.
const RESERVED: *mut () = ptr::without_provenance_mut(MARK);
/// The lowest address of an object.
const FIRST: usize = 1 << 3;

/// A counted reference that fits a word. Cloning adds to the count, dropping subtracts.
///
/// # Safety
/// `from_word` of what `into_word` returned gives the same reference back, and `target` of it the object.
/// Bits 1 and 2 of the address are 0, and it is at least 8. A clone can be made of a reference that another
/// core uses, and dropped on any core.
pub unsafe trait Counted: Clone + Deref<Target: Sized> + Send + Sync + 'static {
    /// Turns the reference into a pointer.
    fn into_word(self) -> *mut ();

    /// Turns the pointer back into the reference.
    ///
    /// # Safety
    /// The pointer came from `into_word`, and stands for a reference that the caller has.
    unsafe fn from_word(word: *mut ()) -> Self;

    /// Returns the object's address.
    fn target(word: *mut ()) -> *const Self::Target;
}

// SAFETY: an `Arc` is a pointer to its value here, which is aligned as counts are.
unsafe impl<T: Send + Sync + 'static> Counted for Arc<T> {
    fn into_word(self) -> *mut () {
        const { assert!(align_of::<T>() >= FIRST) };
        Arc::into_raw(self).cast_mut().cast()
    }

    unsafe fn from_word(word: *mut ()) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Arc::from_raw(word.cast::<T>()) }
    }

    fn target(word: *mut ()) -> *const T {
        word.cast()
    }
}

/// The content of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Free,
    /// Nothing yet.
    Reserved,
    /// A reference.
    Reference {
        /// The mark beside it.
        marked: bool,
    },
}

/// The error of [`Word::take_unlocked`]: only a writer with the lock may change the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frozen;

impl fmt::Display for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the word is frozen")
    }
}

impl core::error::Error for Frozen {}

/// A word that may hold a counted reference. See the module.
pub struct Word<P: Counted> {
    word: AtomicPtr<()>,
    _holds: PhantomData<P>,
}

impl<P: Counted> Word<P> {
    sync::const_unless_loom! {
        /// Makes a free word.
        pub fn new() -> Self {
            Self { word: AtomicPtr::new(ptr::null_mut()), _holds: PhantomData }
        }
    }

    /// Returns what the word holds. Without the writers' lock it may be out of date.
    #[inline]
    pub fn look(&self) -> Found {
        // Relaxed: the object is not accessed.
        found(self.word.load(Ordering::Relaxed))
    }

    /// Returns the object, if there is one.
    ///
    /// # Safety
    /// References that are taken out of this word are retired in one domain, or dropped as
    /// [`Removed::drop_now`] says. The caller's core takes part in that domain, and is not quiescent as long
    /// as the result is used.
    #[inline]
    pub unsafe fn peek<'a>(&'a self, _pin: &'a Pinned) -> Option<&'a P::Target> {
        // SAFETY: invariant 2.
        self.load().map(|word| unsafe { &*P::target(word) })
    }

    /// Returns a counted reference, if the word holds one.
    ///
    /// # Safety
    /// As for [`peek`](Self::peek), until this returns.
    #[inline]
    pub unsafe fn get(&self, _pin: &Pinned) -> Option<P> {
        // SAFETY: by invariant 2 there is a reference until this core is quiescent.
        self.load().map(|word| unsafe { counted(word) })
    }

    /// Replaces what the word holds, and returns the reference that it held.
    #[inline]
    pub fn put(&self, new: P, marked: bool) -> Option<Removed<P>> {
        self.exchange(with_mark(new.into_word(), marked))
    }

    /// Frees the word, and returns the reference that it held.
    #[inline]
    pub fn take(&self) -> Option<Removed<P>> {
        self.exchange(ptr::null_mut())
    }

    /// Reserves the word if it is free, and returns whether it was.
    pub fn reserve(&self) -> bool {
        // Relaxed: no object comes or goes.
        let free = ptr::null_mut();
        self.word.compare_exchange(free, RESERVED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Sets or clears the mark, if the word holds a reference.
    pub fn set_mark(&self, marked: bool) {
        let mut old = self.word.load(Ordering::Relaxed);
        while old.addr() >= FIRST {
            let new = old.map_addr(|address| if marked { address | MARK } else { address & !MARK });
            // Relaxed: a read-modify-write continues the release sequence of the one that put the reference,
            // so readers that find the object by this one see it complete too.
            match self.word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Freezes the word unless it is free, and returns what it holds. The caller has the writers' lock.
    pub fn freeze(&self) -> Found {
        // AcqRel: what a writer did before it changed the word comes before this, and the other way round.
        let freeze = |word: *mut ()| {
            let changes = !word.is_null() && word.addr() & FROZEN == 0;
            changes.then(|| word.map_addr(|address| address | FROZEN))
        };
        found(self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, freeze).unwrap_or_else(|word| word))
    }

    /// Ends that. The caller has the writers' lock.
    pub fn thaw(&self) {
        let thaw =
            |word: *mut ()| (word.addr() & FROZEN != 0).then(|| word.map_addr(|address| address & !FROZEN));
        let _was_not = self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, thaw);
    }

    /// Frees a word that holds a reference, without the writers' lock. Returns the reference, if it held one.
    ///
    /// # Errors
    /// If it is frozen.
    pub fn take_unlocked(&self) -> Result<Option<Removed<P>>, Frozen> {
        match self.change_unlocked(ptr::null_mut(), |word| reference(word).is_some()) {
            // SAFETY: it was a reference, which the word does not hold any more.
            Ok(old) => Ok(Some(unsafe { Removed::of(without_marks(old)) })),
            Err(word) if word.addr() & FROZEN != 0 => Err(Frozen),
            Err(_) => Ok(None),
        }
    }

    /// Replaces a reference by another one, without the writers' lock, and returns the old one.
    ///
    /// # Errors
    /// Returns `new` if the word is frozen or holds no reference.
    pub fn replace_unlocked(&self, new: P, marked: bool) -> Result<Removed<P>, P> {
        let old = self.put_unlocked(new, marked, |word| reference(word).is_some())?;
        // SAFETY: as in `take_unlocked`.
        Ok(unsafe { Removed::of(without_marks(old)) })
    }

    /// Puts a reference into a reserved word, without the writers' lock.
    ///
    /// # Errors
    /// Returns `new` if the word is frozen or not reserved.
    pub fn fill_unlocked(&self, new: P, marked: bool) -> Result<(), P> {
        self.put_unlocked(new, marked, |word| word == RESERVED).map(|_reserved| ())
    }

    fn put_unlocked(&self, new: P, marked: bool, is: impl Fn(*mut ()) -> bool) -> Result<*mut (), P> {
        let new = with_mark(new.into_word(), marked);
        self.change_unlocked(new, is).map_err(|_| {
            // SAFETY: it was not put there, so it is still the caller's.
            unsafe { P::from_word(without_marks(new)) }
        })
    }

    /// Changes a word that is not frozen, and for which `is` returns true, to `new`. Returns the word that
    /// was there: as an error if it was not changed.
    fn change_unlocked(&self, new: *mut (), is: impl Fn(*mut ()) -> bool) -> Result<*mut (), *mut ()> {
        let changed = |word: *mut ()| (word.addr() & FROZEN == 0 && is(word)).then_some(new);
        // AcqRel: see the module.
        self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, changed)
    }

    fn exchange(&self, new: *mut ()) -> Option<Removed<P>> {
        // AcqRel: see the module.
        let old = reference(self.word.swap(new, Ordering::AcqRel));
        // SAFETY: the word does not hold the reference any more.
        old.map(|word| unsafe { Removed::of(word) })
    }

    /// Returns the pointer without its mark, if the word holds a reference.
    #[inline(always)]
    fn load(&self) -> Option<*mut ()> {
        // Acquire: see the module.
        reference(self.word.load(Ordering::Acquire))
    }
}

/// Returns the pointer without its marks, if there is one.
#[inline(always)]
fn reference(word: *mut ()) -> Option<*mut ()> {
    (word.addr() >= FIRST).then(|| without_marks(word))
}

#[inline(always)]
fn without_marks(word: *mut ()) -> *mut () {
    word.map_addr(|address| address & !(MARK | FROZEN))
}

fn with_mark(word: *mut (), marked: bool) -> *mut () {
    if marked { word.map_addr(|address| address | MARK) } else { word }
}

#[inline]
fn found(word: *mut ()) -> Found {
    match word.map_addr(|address| address & !FROZEN) {
        word if word.is_null() => Found::Free,
        word if word == RESERVED => Found::Reserved,
        word => Found::Reference { marked: word.addr() & MARK != 0 },
    }
}

/// Returns one more reference.
///
/// # Safety
/// The word stands for a reference that is not dropped meanwhile.
unsafe fn counted<P: Counted>(word: *mut ()) -> P {
    // SAFETY: the caller's promise. The reference itself is not dropped here.
    unsafe { ManuallyDrop::new(P::from_word(word)) }.deref().clone()
}

impl<P: Counted> Default for Word<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Counted> Drop for Word<P> {
    /// Drops the reference at once. No core reads the word any more.
    fn drop(&mut self) {
        if let Some(word) = self.load() {
            // SAFETY: the word is the caller's alone. Its memory is freed after its readers have finished.
            drop(unsafe { P::from_word(word) });
        }
    }
}

impl<P: Counted> fmt::Debug for Word<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.look().fmt(f)
    }
}

/// Returns the lowest word of `range` that is free, as `is_free` finds by [`Word::look`]. The caller has the
/// writers' lock, so no word comes into use meanwhile. But some may become free (invariant 5), so the lower
/// ones are looked at again: those that are in use then were so when the one that is returned was found free.
pub fn lowest_free(range: Range<usize>, is_free: impl Fn(usize) -> bool) -> Option<usize> {
    let mut words = range.clone();
    let mut lowest = words.find(|&word| is_free(word))?;
    loop {
        // Acquire: what the writer did that freed the word is seen by the second look.
        fence(Ordering::Acquire);
        match (range.start..lowest).find(|&word| is_free(word)) {
            Some(lower) => lowest = lower,
            None => return Some(lowest),
        }
    }
}

/// A reference that was taken out of a word. Readers may still use the object without a count, so it is
/// [retired](Domain::retire_removed). Ignoring it leaks the reference.
#[must_use = "a reference that is not retired is leaked"]
pub struct Removed<P: Counted>(ManuallyDrop<P>);

impl<P: Counted> Removed<P> {
    /// # Safety
    /// The pointer stands for a reference that was in a word, which does not hold it any more.
    unsafe fn of(word: *mut ()) -> Self {
        // SAFETY: the caller's promise.
        Self(ManuallyDrop::new(unsafe { P::from_word(word) }))
    }

    /// Drops the reference at once.
    ///
    /// # Safety
    /// No other core can be using the object by the word, and this core has no loan of it.
    pub unsafe fn drop_now(self) {
        drop(ManuallyDrop::into_inner(self.0));
    }
}

impl<P: Counted> Deref for Removed<P> {
    type Target = P::Target;
    fn deref(&self) -> &P::Target {
        &self.0
    }
}

impl<P: Counted> fmt::Debug for Removed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Removed)")
    }
}

impl Domain {
    /// Drops the reference after a grace period, on some core.
    ///
    /// # Errors
    /// Returns the reference if there is no memory for the callback. The caller may then
    /// [`synchronize`](Self::synchronize) and drop it.
    ///
    /// # Panics
    /// Panics if this core is offline.
    pub fn retire_removed<P: Counted>(&self, pin: &Pinned, removed: Removed<P>) -> Result<(), Removed<P>> {
        // The room comes first, because `try_new` drops its value when it fails.
        match Owned::try_new(None) {
            Ok(mut room) => {
                *room = Some(ManuallyDrop::into_inner(removed.0));
                self.retire(pin, room);
                Ok(())
            }
            Err(_) => Err(removed),
        }
    }
}

/// The object that the flow on one core uses without counting it, or none. Accessed by its core only. All
/// accesses are Relaxed.
#[derive(Debug)]
pub struct LoanCell<P> {
    lent: AtomicPtr<()>,
    _lends: PhantomData<P>,
}

/// A loan of an object. It is given back on the core where its flow then runs ([`LoanCell::give_back`]).
/// Dropping it leaks a reference.
#[must_use = "a loan that is not given back leaks a reference"]
pub struct Loaned<P: Counted> {
    word: *mut (),
    _lends: PhantomData<P>,
}

impl<P: Counted> LoanCell<P> {
    sync::const_unless_loom! {
        /// Makes a cell without a loan.
        pub fn new() -> Self {
            Self { lent: AtomicPtr::new(ptr::null_mut()), _lends: PhantomData }
        }
    }

    /// Lends the object that `word` holds, if it holds one. A second object at once is counted.
    ///
    /// # Safety
    /// As for [`Word::peek`]. The cell is that of the caller's core, which calls [`keep`](Self::keep) before
    /// it is quiescent and before another flow runs on it. No other core uses the cell.
    #[inline(always)]
    pub unsafe fn lend(&self, _pin: &Pinned, word: &Word<P>) -> Option<Loaned<P>> {
        let word = word.load()?;
        if self.lent.load(Ordering::Relaxed).is_null() {
            self.lent.store(word, Ordering::Relaxed);
        } else {
            // SAFETY: by invariant 2 there is a reference until this core is quiescent.
            unsafe { add_one::<P>(word) }
        }
        Some(Loaned { word, _lends: PhantomData })
    }

    /// Counts the loan in the cell, if there is one. The cell is that of the caller's core.
    #[inline]
    pub fn keep(&self, _pin: &Pinned) {
        let word = self.lent.load(Ordering::Relaxed);
        if !word.is_null() {
            self.lent.store(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: the loan began in this read section (invariant 3), so as in `lend`.
            unsafe { add_one::<P>(word) }
        }
    }

    /// Ends a loan. The cell is that of the caller's core.
    ///
    /// # Safety
    /// The loan was made by the caller's flow.
    #[inline(always)]
    pub unsafe fn give_back(&self, _pin: &Pinned, loan: Loaned<P>) {
        if self.lent.load(Ordering::Relaxed) == loan.word {
            self.lent.store(ptr::null_mut(), Ordering::Relaxed);
        } else {
            // SAFETY: the loan is counted (invariants 3 and 4).
            unsafe { drop_one::<P>(loan.word) }
        }
    }
}

impl<P: Counted> Default for LoanCell<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Counted> Loaned<P> {
    /// Returns a counted reference.
    pub fn counted(&self) -> P {
        // SAFETY: the loan stands for a reference that stays while it is borrowed.
        unsafe { counted(self.word) }
    }
}

impl<P: Counted> Deref for Loaned<P> {
    type Target = P::Target;
    #[inline(always)]
    fn deref(&self) -> &P::Target {
        // SAFETY: as in `counted`.
        unsafe { &*P::target(self.word) }
    }
}

impl<P: Counted> fmt::Debug for Loaned<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Loaned)")
    }
}

/// Adds a reference that a loan stands for.
///
/// # Safety
/// As for `counted`.
#[cold]
unsafe fn add_one<P: Counted>(word: *mut ()) {
    // SAFETY: the caller's promise.
    let _loan = ManuallyDrop::new(unsafe { counted::<P>(word) });
}

/// Drops a counted reference.
///
/// # Safety
/// The caller has it.
#[cold]
unsafe fn drop_one<P: Counted>(word: *mut ()) {
    // SAFETY: the caller's promise.
    drop(unsafe { P::from_word(word) });
}
