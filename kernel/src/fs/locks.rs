//! Locks of files: POSIX's for ranges of bytes, those of open files for ranges, and `flock`'s for whole files
//! (fcntl(2), flock(2)).
//!
//! | lock | owner | released by |
//! |---|---|---|
//! | POSIX | the table of descriptors | its owner, the close of any descriptor of the file in that table, the table's end |
//! | open file (OFD) | the open file | its owner, the close of the last descriptor |
//! | `flock` | the open file | the same |
//!
//! POSIX and OFD locks exclude each other, and `flock`'s exclude themselves only. The locks of a file are in
//! one of 64 lists, by the node's address: the owner of a lock keeps the node.
//!
//! 1. The locks of one owner on one file do not overlap, and those that touch and are of one kind are one.
//! 2. An owner is named by an address, which it has until its locks are released.
//! 3. A waiter for a POSIX lock names the owner that it waits for in [`WAITERS`] before it sleeps. The waiter
//!    that closes a circle finds it. The entry goes, under the lock of the file's list, when the waiter has
//!    its lock, and when that owner changes its locks on the file: the waiter then looks again.
//!
//! 4. An open file that nothing uses any more is freed, with its locks, after a grace period of RCU, and some
//!    epochs of Refcache later if it was mapped. A call that meets a lock of an open file waits for these
//!    first. If it may sleep it does so again every [`LOOK_AGAIN_NS`], because no call may follow the end of
//!    the last use.
//!
//! 5. A call that only looks for locks, or removes some, does not lock a list that has none. A thread that
//!    takes a lock and then finds its descriptor still open is found by the close of that descriptor: each
//!    has a SeqCst fence ([`order`]) between its write and its look at the other's.
//!
//! Lock order: a list, then `WAITERS`.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use abi::Errno;
use sync::SpinLock;

use super::content::Content;
use super::node::NodeRef;
use crate::arch;
use crate::mm::{epoch, fallible};
use crate::sched::{self, WaitQueue};

/// The end of a range that goes on to the end of any file.
pub const FOREVER: u64 = i64::MAX as u64 + 1;

const LISTS: usize = 64;
/// The most locks of one owner on one file, and of all owners in one list.
const MOST: usize = 1024;
const MOST_IN_LIST: usize = 8192;
/// The most waiters that are visited in search of a circle. Linux visits 10.
const MOST_STEPS: u32 = 64;

/// How long a call sleeps until it looks again whether the open file that has the lock is in use: far longer
/// than that takes, and short for a person.
const LOOK_AGAIN_NS: u64 = 100_000_000;

/// The kind of a lock, which says what owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// POSIX's, of a table of descriptors.
    Posix,
    /// For ranges, of an open file.
    OpenFile,
    /// For the whole file, of an open file.
    Flock,
}

/// An owner of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The kind of its locks.
    pub kind: Kind,
    /// Its address.
    pub address: usize,
    /// The number of the process that takes them.
    pub pid: u32,
}

/// A lock.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    node: usize,
    /// The owner.
    pub owner: Owner,
    /// Set if it excludes all other owners, and not only exclusive locks.
    pub is_exclusive: bool,
    /// The first byte.
    pub start: u64,
    /// The end.
    pub end: u64,
}

/// The outcome of an attempt to take a lock.
#[derive(PartialEq, Eq)]
enum Attempt {
    /// It ended. After a success, another attempt succeeds too and changes nothing.
    Done(Result<(), Errno>),
    /// A lock of this kind excludes it.
    Blocked(Kind),
}

/// On cache lines of its own.
#[repr(align(64))]
struct List {
    locks: SpinLock<Vec<Lock>>,
    /// The number of locks, written with them locked: see invariant 5.
    len: AtomicUsize,
    released: WaitQueue,
}

impl List {
    const fn new() -> Self {
        Self { locks: SpinLock::new(Vec::new()), len: AtomicUsize::new(0), released: WaitQueue::new() }
    }

    /// Returns whether it has no lock, without taking its own.
    fn is_empty(&self) -> bool {
        // Relaxed: it accesses nothing of them.
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Calls `change` with the locks, and notes how many there are then.
    fn change<R>(&self, change: impl FnOnce(&mut Vec<Lock>) -> R) -> R {
        let mut locks = self.locks.lock();
        let changed = change(&mut locks);
        if self.len.load(Ordering::Relaxed) != locks.len() {
            self.len.store(locks.len(), Ordering::Relaxed);
        }
        changed
    }
}

static ALL: [List; LISTS] = [const { List::new() }; LISTS];

/// The tables that wait for POSIX locks.
static WAITERS: SpinLock<Vec<Waiter>> = SpinLock::new(Vec::new());

/// Their number. Relaxed: an entry for a file is added with the lock of the file's list held, and looked for
/// with that lock.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// A task that waits for a POSIX lock for its table, and the owner that it waits for.
struct Waiter {
    task: u32,
    address: usize,
    node: usize,
    owner: usize,
}

impl Kind {
    fn excludes(self, other: Kind) -> bool {
        (self == Kind::Flock) == (other == Kind::Flock)
    }
}

impl Owner {
    fn is(&self, other: &Owner) -> bool {
        self.kind == other.kind && self.address == other.address
    }
}

impl Lock {
    /// Creates a lock of `node`, which nothing has yet.
    pub fn new(node: &NodeRef, owner: Owner, is_exclusive: bool, (start, end): (u64, u64)) -> Self {
        Self { node: address(node), owner, is_exclusive, start, end }
    }

    fn overlaps(&self, other: &Lock) -> bool {
        self.node == other.node && self.start < other.end && other.start < self.end
    }

    fn excludes(&self, other: &Lock) -> bool {
        self.overlaps(other)
            && self.owner.kind.excludes(other.owner.kind)
            && !self.owner.is(&other.owner)
            && (self.is_exclusive || other.is_exclusive)
    }

    fn is_of(&self, node: usize, owner: &Owner) -> bool {
        self.node == node && self.owner.is(owner)
    }
}

fn address(node: &NodeRef) -> usize {
    core::ptr::from_ref(&**node).addr()
}

fn list(node: usize) -> &'static List {
    #[allow(clippy::indexing_slicing)] // the remainder is an index
    &ALL[node / 64 % LISTS]
}

/// Returns the first lock that excludes `wanted`, if there is one.
pub fn find(wanted: &Lock) -> Option<Lock> {
    let list = list(wanted.node);
    if list.is_empty() {
        return None;
    }
    let locks = list.locks.lock();
    locks.iter().filter(|lock| lock.excludes(wanted)).min_by_key(|lock| lock.start).copied()
}

/// Takes a lock of `node`, in place of those of its owner in its range. Waits for the others if it may.
///
/// # Errors
/// EAGAIN if it may not wait, EDEADLK if the owners would wait for each other for ever, EINTR, ENOLCK if
/// there are too many locks or no memory.
pub fn take(node: &NodeRef, wanted: &Lock, wait: bool) -> Result<(), Errno> {
    let list = list(wanted.node);
    if wanted.owner.kind == Kind::Flock && !has_same(wanted) {
        // As in Linux, a lock is given up before one of the other kind is waited for.
        remove(wanted)?;
    }
    let task = sched::current().tid();
    let taken = until_done(node, wait, || {
        list.change(|locks| {
            let own = locks.iter().filter(|lock| lock.is_of(wanted.node, &wanted.owner)).count();
            if own >= MOST || locks.len() >= MOST_IN_LIST {
                return Attempt::Done(Err(Errno::ENOLCK));
            }
            match locks.iter().find(|lock| lock.excludes(wanted)) {
                Some(blocking) if wait => match wait_for(task, wanted, &blocking.owner) {
                    Ok(()) => Attempt::Blocked(blocking.owner.kind),
                    Err(error) => Attempt::Done(Err(error)),
                },
                Some(blocking) => Attempt::Blocked(blocking.owner.kind),
                None => Attempt::Done(replace(locks, wanted, Some(wanted.is_exclusive))),
            }
        })
    });
    if wait {
        forget_waiters(|waiter| waiter.task == task);
    }
    taken?;
    // A lock that has become shared may let others in.
    list.released.wake_all();
    Ok(())
}

/// Calls `attempt` until it is done, and waits in between if that is allowed.
///
/// # Errors
/// EAGAIN if it is not, EINTR, and those of the attempt.
fn until_done(node: &NodeRef, wait: bool, mut attempt: impl FnMut() -> Attempt) -> Result<(), Errno> {
    let List { released, .. } = list(address(node));
    loop {
        let mut found = attempt();
        if matches!(found, Attempt::Blocked(Kind::OpenFile | Kind::Flock)) {
            free_open_files(node);
            found = attempt();
        }
        let kind = match found {
            Attempt::Done(result) => return result,
            Attempt::Blocked(kind) if wait => kind,
            Attempt::Blocked(_) => return Err(Errno::EAGAIN),
        };
        let deadline = (kind != Kind::Posix).then(|| arch::now_ns() + LOOK_AGAIN_NS);
        let change = || (attempt() != Attempt::Blocked(kind)).then_some(());
        let waited = released.wait_until_or(deadline, change);
        waited.inspect_err(|_| sched::current().thread.signals.allow_restart())?;
    }
}

/// Frees open files of a node that nothing uses any more: invariant 4.
fn free_open_files(node: &NodeRef) {
    match node.content().and_then(Content::pages) {
        Some(pages) if pages.was_mapped() => epoch::free_unused(),
        _ => _ = epoch::free_removed(),
    }
}

/// Returns whether an owner has this very lock.
fn has_same(wanted: &Lock) -> bool {
    let is_same =
        |lock: &Lock| lock.is_of(wanted.node, &wanted.owner) && lock.is_exclusive == wanted.is_exclusive;
    let list = list(wanted.node);
    !list.is_empty() && list.locks.lock().iter().any(is_same)
}

/// Removes the locks of an owner in the range of `wanted`.
///
/// # Errors
/// ENOLCK if a lock cannot be split without memory.
pub fn remove(wanted: &Lock) -> Result<(), Errno> {
    let list = list(wanted.node);
    if list.is_empty() {
        return Ok(());
    }
    list.change(|locks| replace(locks, wanted, None))?;
    list.released.wake_all();
    Ok(())
}

/// Returns whether an owner has locks on a file.
pub fn has_any(node: &NodeRef, owner: &Owner) -> bool {
    let node = address(node);
    let list = list(node);
    !list.is_empty() && list.locks.lock().iter().any(|lock| lock.is_of(node, owner))
}

/// Gives all locks of an owner to another one of the same kind, which has none.
pub fn hand_over(old: &Owner, new: &Owner) {
    for List { locks, .. } in &ALL {
        let mut locks = locks.lock();
        locks.iter_mut().filter(|lock| lock.owner.is(old)).for_each(|lock| lock.owner.address = new.address);
        if WAITING.load(Ordering::Relaxed) > 0 {
            let mut waiters = WAITERS.lock();
            waiters
                .iter_mut()
                .filter(|waiter| waiter.owner == old.address)
                .for_each(|waiter| waiter.owner = new.address);
        }
    }
}

/// Stands between the write of a thread and its look at what another one writes: invariant 5.
pub fn order() {
    fence(Ordering::SeqCst);
}

/// Removes all locks of an owner on a file.
pub fn remove_all(node: &NodeRef, owner: &Owner) {
    let node = address(node);
    let is_waited_for = |waiter: &Waiter| waiter.owner == owner.address && waiter.node == node;
    remove_those(list(node), |lock| lock.is_of(node, owner), is_waited_for);
}

/// Removes all locks of an owner.
pub fn remove_all_of(owner: &Owner) {
    for one in &ALL {
        let is_waited_for =
            |waiter: &Waiter| waiter.owner == owner.address && core::ptr::eq(list(waiter.node), one);
        remove_those(one, |lock| lock.owner.is(owner), is_waited_for);
    }
}

/// Removes the locks of a list for which `is` returns true, and has those look again that wait for them.
fn remove_those(list: &List, is: impl Fn(&Lock) -> bool, is_waited_for: impl Fn(&Waiter) -> bool) {
    if list.is_empty() {
        return;
    }
    let changed = list.change(|locks| {
        let before = locks.len();
        locks.retain(|lock| !is(lock));
        let changed = locks.len() != before;
        if changed {
            forget_waiters(is_waited_for);
        }
        changed
    });
    if changed {
        list.released.wake_all();
    }
}

/// Replaces the locks of an owner in the range of `wanted` by one lock, or by none.
fn replace(locks: &mut Vec<Lock>, wanted: &Lock, exclusive: Option<bool>) -> Result<(), Errno> {
    // One may be split in two, and one is added. After this nothing fails.
    locks.try_reserve(2).map_err(|_| Errno::ENOLCK)?;
    let mut new = Lock { is_exclusive: exclusive.unwrap_or_default(), ..*wanted };
    let mut at = 0;
    while let Some(old) = locks.get(at).copied() {
        let is_mine = old.is_of(wanted.node, &wanted.owner);
        let touches = old.start <= new.end && new.start <= old.end;
        if is_mine && touches && exclusive == Some(old.is_exclusive) {
            (new.start, new.end) = (new.start.min(old.start), new.end.max(old.end));
            locks.swap_remove(at);
        } else if is_mine && old.overlaps(&new) {
            locks.swap_remove(at);
            // The rest of it does not overlap, so it is passed over when the loop gets there.
            let left = [(old.start, old.end.min(new.start)), (old.start.max(new.end), old.end)];
            let parts = left.into_iter().filter(|(start, end)| start < end);
            locks.extend(parts.map(|(start, end)| Lock { start, end, ..old }));
        } else {
            at += 1;
        }
    }
    if exclusive.is_some() {
        locks.push(new);
        // The owner waits no more, and others cannot wait for it and it for them meanwhile.
        let task = sched::current().tid();
        forget_waiters(|waiter| waiter.task == task);
    }
    let me = wanted.owner.address;
    forget_waiters(|waiter| waiter.owner == me && waiter.node == wanted.node);
    Ok(())
}

/// Removes entries of [`WAITERS`].
fn forget_waiters(is_over: impl Fn(&Waiter) -> bool) {
    if WAITING.load(Ordering::Relaxed) > 0 {
        let mut waiters = WAITERS.lock();
        waiters.retain(|waiter| !is_over(waiter));
        WAITING.store(waiters.len(), Ordering::Relaxed);
    }
}

/// Notes that the owner of a POSIX lock waits for another one.
///
/// # Errors
/// EDEADLK if that one waits for this one, perhaps by way of others. ENOLCK without memory.
fn wait_for(task: u32, wanted: &Lock, blocking: &Owner) -> Result<(), Errno> {
    if wanted.owner.kind != Kind::Posix || blocking.kind != Kind::Posix {
        return Ok(());
    }
    let me = wanted.owner.address;
    let mut waiters = WAITERS.lock();
    waiters.retain(|waiter| waiter.task != task);
    if leads_to(&waiters, blocking.address, me, &mut { MOST_STEPS }) {
        return Err(Errno::EDEADLK);
    }
    let waiter = Waiter { task, address: me, node: wanted.node, owner: blocking.address };
    let pushed = fallible::push(&mut waiters, waiter).map_err(|_| Errno::ENOLCK);
    WAITING.store(waiters.len(), Ordering::Relaxed);
    pushed
}

/// Returns whether the owner `from` is `to`, or waits for it, perhaps by way of others, as far as that is
/// seen in a number of `steps`. Owners with many threads have many ways.
fn leads_to(waiters: &[Waiter], from: usize, to: usize, steps: &mut u32) -> bool {
    let Some(left) = steps.checked_sub(1) else { return false };
    *steps = left;
    let mut next = waiters.iter().filter(|waiter| waiter.address == from);
    from == to || next.any(|waiter| leads_to(waiters, waiter.owner, to, steps))
}
