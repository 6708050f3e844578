//! Parts of memory that members change side by side, each its own, while none has the lock of all memory
//! (`requests`). A part is the addresses where a member looks for free ones, as far as it alone has the
//! memory.
//!
//! | `inside` of a member | what it does | becomes |
//! |---|---|---|
//! | out | nothing without the lock | in, by itself |
//! | in | it changes its part, if the lock was free then, or leaves | out, by itself; awaited, by the one that has the lock |
//! | awaited | the same, and the one that has the lock sleeps | out, by itself, which wakes that one |
//!
//! 1. *A member changes its part when it is in and has then seen the lock free. One that has the lock does
//!    anything only when it has then seen all others out.* Each writes its own word and reads the other's,
//!    with a barrier between, so not both go on. Leaving and releasing the lock are releases, and the loads
//!    that see them acquire, so each sees the changes of the other.
//! 2. *A member that is in asks no other, and waits only for the lock of the table*, whose holders are in. So
//!    the one that has the lock waits for calls of Linux that change a mapping, and for nothing else. It
//!    waits for one member after the other, and no member waits for it while it is in, so there is no cycle.
//! 3. *The table is one for all parts*, so those that are in change it under a lock of its own, which they
//!    hold for no call of Linux. The one that has the lock of all memory does not need it.
//! 4. *A handler of the program never runs in a member that is in*, as in one that has the lock. A request
//!    does not come: all are out when there is one.
//! 5. *A member that is killed while it is in stays in.* The leader's watcher ends all others then. Before it
//!    executes a program it takes the lock, and waits for members that are in, before it kills them.
//! 6. *A copy of the words, of a child of `fork`, begins with all out* ([`forget`]). They were copied under
//!    the lock, and a member may have been stopped where it is in and has not seen the lock taken.

use sync::atomic::{AtomicU32, Ordering, fence};

use crate::requests::{self, Kernel};

const OUT: u32 = 0;
const IN: u32 = 1;
const AWAITED: u32 = 2;

/// Begins to change this member's part, if no other has the lock of all memory. Returns whether it has begun.
pub fn enter(inside: &AtomicU32, lock: &AtomicU32, kernel: &impl Kernel) -> bool {
    inside.store(IN, Ordering::Relaxed);
    // One of two sees the other: this member, or the one that takes the lock (`await_others`).
    fence(Ordering::SeqCst);
    // Acquire pairs with the release of the lock.
    let is_free = lock.load(Ordering::Acquire) == requests::FREE;
    if !is_free {
        leave(inside, kernel);
    }
    is_free
}

/// Ends what [`enter`] has begun.
pub fn leave(inside: &AtomicU32, kernel: &impl Kernel) {
    // Release pairs with the acquire in `await_others`.
    if inside.swap(OUT, Ordering::Release) == AWAITED {
        kernel.wake(inside);
    }
}

/// Waits until members do not change their parts. The lock of all memory was taken. Gives up after some tries
/// for each of them, because it may have been killed. Returns whether all are out.
pub fn await_others<'a>(
    members: impl Iterator<Item = &'a AtomicU32>,
    tries: u32,
    kernel: &impl Kernel,
) -> bool {
    fence(Ordering::SeqCst);
    // All are awaited, also behind one that stays.
    members.fold(true, |all, inside| {
        let is_out = (0..tries).any(|_| is_out(inside, kernel)) || has_left(inside);
        all && is_out
    })
}

fn has_left(inside: &AtomicU32) -> bool {
    // Acquire pairs with the release in `leave`.
    inside.load(Ordering::Acquire) == OUT
}

/// Returns whether a member is out, and sleeps a while if it is not.
fn is_out(inside: &AtomicU32, kernel: &impl Kernel) -> bool {
    if has_left(inside) {
        return true;
    }
    // It fails if the member has left meanwhile, or is awaited already.
    let _ = inside.compare_exchange(IN, AWAITED, Ordering::Relaxed, Ordering::Relaxed);
    kernel.wait(inside, AWAITED, 10);
    false
}

/// Makes members out that are gone, and the lock of the table free. No other member is in.
pub fn forget<'a>(members: impl Iterator<Item = &'a AtomicU32>, table: &AtomicU32) {
    members.for_each(|inside| inside.store(OUT, Ordering::Relaxed));
    table.store(requests::FREE, Ordering::Relaxed);
}

/// Takes the lock of the table. This member is in.
pub fn take_table(table: &AtomicU32, kernel: &impl Kernel) {
    requests::take_lock(table, kernel, || {});
}

/// Releases the lock of the table.
pub fn release_table(table: &AtomicU32, kernel: &impl Kernel) {
    requests::release_lock(table, kernel);
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoSleep;

    impl Kernel for NoSleep {
        fn wait(&self, _: &AtomicU32, _: u32, _: u64) {}
        fn wake(&self, _: &AtomicU32) {}
        fn interrupt(&self, _: u32) {}
    }

    #[test]
    fn a_member_that_stays_in_keeps_no_other_from_being_awaited() {
        let inside = [IN, OUT, IN].map(AtomicU32::new);
        assert!(!await_others(inside.iter(), 2, &NoSleep));
        assert_eq!(inside.map(|word| word.load(Ordering::Relaxed)), [AWAITED, OUT, AWAITED]);
    }
}
