//! The lock of the record, requests between members, and versions of the record, for threads in address
//! spaces of their own. These are words that all members share. The runtime says how a member waits for
//! another one and interrupts it ([`Kernel`]), and has the request itself in a cell beside them.
//!
//! | `pending` of a member | the member | becomes |
//! |---|---|---|
//! | 0 | is not asked | asked, by a member that has the lock |
//! | asked | is interrupted, and finds it | serving, by itself |
//! | serving | does what the request says | 0, by itself |
//!
//! 1. *Only a member that has the lock asks*, and it waits for all answers. So there is one request at a
//!    time, and a member that serves reads the request, and the record, as if it had the lock itself.
//! 2. *A member that waits for the lock serves*: the one that has it may wait for its answer.
//! 3. *A member comes and goes under the lock*: it is there if its number in Linux is not 0. So none is asked
//!    that will not answer. A new member may be asked from its first instruction on.
//! 4. *Members that are stopped sleep at `stops`*, which is odd then, and serve when it changes.
//! 5. *The version grows with each change after which a member may have less mapped than is recorded.* A
//!    member that has had everything mapped has noted it. The change itself is read under the lock, so a
//!    version orders nothing.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The calls by which members wait for each other and interrupt each other.
pub trait Kernel {
    /// Sleeps while a word has a value, for some milliseconds at most, or until a signal.
    fn wait(&self, word: &AtomicU32, value: u32, milliseconds: u64);

    /// Wakes all that sleep at a word.
    fn wake(&self, word: &AtomicU32);

    /// Interrupts the member that has this number in Linux, so that it serves.
    fn interrupt(&self, thread: u32);
}

pub(crate) const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and another member may sleep.
const AWAITED: u32 = 2;

/// Takes the lock. `serve` answers a request to this member, if there is one.
#[inline(always)]
pub fn take_lock(lock: &AtomicU32, kernel: &impl Kernel, serve: impl Fn()) {
    // Acquire pairs with the release in `release_lock`.
    if lock.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        return;
    }
    while lock.swap(AWAITED, Ordering::Acquire) != FREE {
        serve();
        kernel.wait(lock, AWAITED, 1);
    }
}

/// Takes the lock, if it is released within some milliseconds: the member that has it may have been killed.
/// Returns whether it is taken.
pub fn take_lock_within(lock: &AtomicU32, milliseconds: u64, kernel: &impl Kernel) -> bool {
    (0..milliseconds).any(|_| {
        // Acquire pairs with the release in `release_lock`.
        let is_taken = lock.swap(AWAITED, Ordering::Acquire) == FREE;
        if !is_taken {
            kernel.wait(lock, AWAITED, 1);
        }
        is_taken
    })
}

/// Releases the lock.
pub fn release_lock(lock: &AtomicU32, kernel: &impl Kernel) {
    // Release pairs with the acquire in `take_lock`.
    if lock.swap(FREE, Ordering::Release) == AWAITED {
        kernel.wake(lock);
    }
}

const ANSWERED: u32 = 0;
const ASKED: u32 = 1;
const SERVING: u32 = 2;

/// The words of a member by which it is asked.
#[derive(Clone, Copy)]
pub struct Seat<'a> {
    /// Its number in Linux, or 0 if there is no such member.
    pub thread: &'a AtomicU32,
    /// Whether a request waits for it, or it serves.
    pub pending: &'a AtomicU32,
}

impl Seat<'_> {
    fn is_there(&self) -> bool {
        self.thread.load(Ordering::Relaxed) != 0
    }
}

/// Asks members, and waits for their answers. The lock is held, and the request is written.
#[inline(always)]
pub fn ask<'a>(members: impl Iterator<Item = Seat<'a>> + Clone, stops: &AtomicU32, kernel: &impl Kernel) {
    for Seat { thread, pending } in members.clone().filter(Seat::is_there) {
        // Release pairs with the acquire in `serve`: the request is seen.
        pending.store(ASKED, Ordering::Release);
        kernel.interrupt(thread.load(Ordering::Relaxed));
    }
    if is_stop(stops.load(Ordering::Relaxed)) {
        // Release pairs with the acquire in `stay_stopped`: those that are stopped see that they are asked.
        stops.fetch_add(2, Ordering::Release);
        kernel.wake(stops);
    }
    for Seat { pending, .. } in members.filter(Seat::is_there) {
        loop {
            // Acquire pairs with the release in `serve`: what was asked is done.
            match pending.load(Ordering::Acquire) {
                ANSWERED => break,
                value => kernel.wait(pending, value, 10),
            }
        }
    }
}

/// Answers a request to this member, if there is one, when `f` has done what it says. Returns whether there
/// was one.
#[inline(always)]
pub fn serve(pending: &AtomicU32, kernel: &impl Kernel, f: impl FnOnce()) -> bool {
    // Acquire pairs with the release in `ask`.
    if pending.compare_exchange(ASKED, SERVING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return false;
    }
    f();
    // Release pairs with the acquire in `ask`.
    pending.store(ANSWERED, Ordering::Release);
    kernel.wake(pending);
    true
}

fn is_stop(stops: u32) -> bool {
    !stops.is_multiple_of(2)
}

/// Begins a time in which members that are asked to stop do. Returns the value of `stops` to ask with. The
/// lock is held.
pub fn begin_stop(stops: &AtomicU32) -> u32 {
    stops.fetch_add(1, Ordering::Relaxed) + 1
}

/// Ends the time in which members are stopped.
pub fn end_stop(stops: &AtomicU32, kernel: &impl Kernel) {
    // Release pairs with the acquire in `stay_stopped`: what was done meanwhile is seen.
    stops.fetch_add(1, Ordering::Release);
    kernel.wake(stops);
}

/// Waits until members go on, after a request to stop with a value of `stops`. `serve` answers a request to
/// this member, if there is one.
pub fn stay_stopped(stops: &AtomicU32, mut seen: u32, kernel: &impl Kernel, serve: impl Fn()) {
    loop {
        // Acquire pairs with the release in `end_stop` and in `ask`.
        match stops.load(Ordering::Acquire) {
            now if !is_stop(now) => break,
            now if now == seen => kernel.wait(stops, now, 10),
            now => {
                seen = now;
                serve();
            }
        }
    }
}

/// Notes that members may have less than is recorded. Returns the version before. The lock is held.
pub fn announce(version: &AtomicU64) -> u64 {
    let before = version.load(Ordering::Relaxed);
    version.store(before + 1, Ordering::Relaxed);
    before
}

/// Notes that this member has what was announced after a version, if it had everything else.
pub fn note_announced(synced: &AtomicU64, before: u64) {
    if synced.load(Ordering::Relaxed) == before {
        synced.store(before + 1, Ordering::Relaxed);
    }
}

/// Notes that this member has everything mapped. The lock is held.
pub fn note_synced(version: &AtomicU64, synced: &AtomicU64) {
    synced.store(version.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Returns whether nothing was announced since this member had everything mapped.
pub fn is_synced(version: &AtomicU64, synced: &AtomicU64) -> bool {
    version.load(Ordering::Relaxed) == synced.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member that has what it announces itself may lack something else.
    #[test]
    fn a_member_is_synced_again_if_it_was() {
        let (version, synced) = (AtomicU64::new(7), AtomicU64::new(7));
        note_announced(&synced, announce(&version));
        assert!(is_synced(&version, &synced));
        announce(&version);
        note_announced(&synced, announce(&version));
        assert!(!is_synced(&version, &synced));
        note_synced(&version, &synced);
        assert!(is_synced(&version, &synced));
    }
}
