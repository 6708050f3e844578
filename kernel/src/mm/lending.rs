//! Open files that calls use without counting them.
//!
//! A look-up of a descriptor lends the file to the call: it names the file in a cell of the core, which no
//! other core accesses. The rest is as `rcu::Word` describes. Kernel code is not preempted, so the loan lasts
//! until the call ends, or until the core does one of these:
//!
//! | what the core does | where |
//! |---|---|
//! | it switches to another task, because the call sleeps or makes way | `sched::switch` |
//! | it is quiescent, in a pause of a long call or when memory is reclaimed | `epoch` |
//!
//! Both call [`keep`] first, which counts the file. So a call that moves to another core, or sleeps, has a
//! counted file, and all others write no shared line for it.
//!
//! Nodes are used in the same time without a loan: a walk of a path [finds](find) them in the tries of
//! directories, and ends before the call does something of the table (`fs/path.rs`).

use core::mem::ManuallyDrop;
use core::ops::Deref;

use percore::{Pinned, pin};
use rcu::{Change, Counted, LoanCell, Loaned, NotLocked, Removed, Trie, Word};

use super::Files;
use super::epoch::rcu;
use super::static_or_arc::StaticOrArc;
use crate::above::Above;
use crate::arch::per_core::all_cores;

/// A reference to an open file.
type File = StaticOrArc<<Above as Files>::Open>;

all_cores! {
    static CELLS: LoanCell<File> = LoanCell::new();
}

/// An open file that a call uses, perhaps without having counted it. It stays with its task.
pub struct Borrowed(ManuallyDrop<Loaned<File>>);

impl Borrowed {
    /// Returns a counted reference.
    pub fn counted(&self) -> File {
        self.0.counted()
    }
}

impl Deref for Borrowed {
    type Target = <Above as Files>::Open;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Borrowed {
    #[inline(always)]
    fn drop(&mut self) {
        let pin = pin();
        // SAFETY: taken once, because this is dropped.
        let loan = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: a loan is no `Send`, so it is the running task's.
        unsafe { CELLS.mine(&pin).give_back(&pin, loan) }
    }
}

/// Returns the object that `word` holds, if it holds one. The caller uses it only until the core does
/// something of the table above.
#[inline(always)]
pub fn peek<'a, P: Counted>(pin: &'a Pinned, word: &'a Word<P>) -> Option<&'a P::Target> {
    // SAFETY: a core that runs a task takes part in the kernel's RCU domain, in which `discard` retires all
    // references. The caller's promise.
    unsafe { word.peek(pin) }
}

/// Returns a counted reference, if `word` holds one.
pub fn get<P: Counted>(pin: &Pinned, word: &Word<P>) -> Option<P> {
    // SAFETY: as for `peek`. The core is not quiescent in this function.
    unsafe { word.get(pin) }
}

/// Lends the file that `word` holds, if it holds one. Called by a task.
#[inline(always)]
pub fn borrow(pin: &Pinned, word: &Word<File>) -> Option<Borrowed> {
    // SAFETY: a core that runs a task takes part in the RCU domain, and calls `keep` as the module says.
    unsafe { CELLS.mine(pin).lend(pin, word) }.map(|loan| Borrowed(ManuallyDrop::new(loan)))
}

/// Counts the file that the running task uses without having counted it, if there is one. Called before
/// another flow runs on this core, and before it is quiescent in the RCU domain.
#[inline]
pub fn keep(pin: &Pinned) {
    CELLS.mine(pin).keep(pin);
}

/// Drops a reference that was taken out of a word: at once if the caller is `alone`, and otherwise when no
/// core can be using it. The caller is alone if no other task reads the word without the writers' lock, which
/// the caller does not hold any more.
pub fn discard<P: Counted>(removed: Removed<P>, alone: bool) {
    let pin = pin();
    let left = if alone { Err(removed) } else { rcu().retire_removed(&pin, removed) };
    if let Err(removed) = left {
        keep(&pin);
        if !alone {
            // There is no memory, not even for a callback.
            rcu().synchronize(&pin);
        }
        // SAFETY: no other task reads the word, or those that did have finished. This one has counted the
        // file that it uses.
        unsafe { removed.drop_now() }
    }
}

/// Returns the value in `trie` with `hash` for which `is` returns true. The caller uses it only until the
/// core does something of the table above.
#[inline]
pub fn find<'a, V: Send + Sync + 'static>(
    pin: &'a Pinned,
    trie: &'a Trie<V>,
    hash: u64,
    is: impl Fn(&V) -> bool,
) -> Option<&'a V> {
    // SAFETY: a core that runs a task takes part in the kernel's RCU domain, in which `change` retires. The
    // caller's promise.
    unsafe { trie.find(pin, hash, is) }
}

/// Locks the values of `trie` with these hashes, and similar ones, for a change, or returns `None` if it is
/// immutable.
pub fn change<'a, V: Send + Sync + 'static>(
    pin: &'a Pinned,
    trie: &'a Trie<V>,
    hashes: [u64; 2],
) -> Option<Change<'a, V>> {
    // SAFETY: the kernel has one domain. See `find`.
    unsafe { trie.change(rcu(), pin, hashes) }
}

/// Does the same for one hash, if that takes no waiting.
///
/// # Errors
/// If it is immutable, or another task has locked it.
pub fn try_change<'a, V: Send + Sync + 'static>(
    pin: &'a Pinned,
    trie: &'a Trie<V>,
    hash: u64,
) -> Result<Change<'a, V>, NotLocked> {
    // SAFETY: as above.
    unsafe { trie.try_change(rcu(), pin, hash) }
}
