//! The lock of the record in this process: how it is taken, and what becomes of it when its holder is
//! killed. The protocol is in `pathreads::requests` and `pathreads::parts`.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use abi::Errno;
use pathreads::record::{MOST_MEMBERS, Record};
use pathreads::{parts, requests};

use super::{
    MILLISECOND, SIGSTKFLT, control, cpu_timers, faults, fork, helpers, leader, me, postponed, serve_here,
    signals, stats, thread, wait, wake,
};
use crate::sys::{self, harmless, nr};
use crate::{sigaction, user};

/// The holder of the lock that is a thread of the leader, and not the program's.
pub const OF_LEADER: u32 = MOST_MEMBERS as u32 + 1;

/// Set in the holder's number while it waits for members that change their own memory, and has changed
/// nothing itself.
pub const WAITS: u32 = 1 << 31;

/// Runs `f` with the record, under the lock, with signals blocked.
pub fn locked<R>(f: impl FnOnce(&mut Record) -> R) -> R {
    sys::with_signals_blocked(|| with_record(f))
}

/// Runs `f` with the record, under the lock. The caller has blocked signals: a handler of the program could
/// not take the lock. The two that cannot be blocked are held back ([`faults`]).
pub fn with_record<R>(f: impl FnOnce(&mut Record) -> R) -> R {
    let is_member = !is_helper();
    if is_member {
        IN_RECORD.store(true, Ordering::Relaxed);
    }
    // This member's own handlers see the mark before the lock is taken, and until it is released.
    compiler_fence(Ordering::SeqCst);
    lock();
    let number = if is_member { me() as u32 + 1 } else { OF_LEADER };
    // A child of `vfork` may be killed while it waits: its maker finds the lock taken then.
    control().holder.store(number | WAITS, Ordering::Relaxed);
    await_all_insides();
    control().holder.store(number, Ordering::Relaxed);
    // SAFETY: the lock is held.
    let result = f(unsafe { &mut *control().record.get() });
    release();
    compiler_fence(Ordering::SeqCst);
    if is_member {
        IN_RECORD.store(false, Ordering::Relaxed);
    }
    result
}

/// Waits for members that change their own memory. A child of `vfork` lives on when the program is killed,
/// and a member that was in then never comes out.
fn await_all_insides() {
    const TRIES: u32 = 100;
    while !parts::await_others(insides(), TRIES, &Linux) {
        let program = u64::from(leader());
        if fork::is_sharing() && harmless!(nr::TGKILL, program, program, 0) == Err(Errno::ESRCH) {
            parts::forget(insides(), &control().table);
        }
    }
}

/// Returns the words by which members say that they change their own memory without the lock (`own`).
fn insides() -> impl Iterator<Item = &'static AtomicU32> {
    let most = control().most.load(Ordering::Relaxed) as usize;
    control().members[..=most].iter().map(|member| &member.inside)
}

/// Returns whether this is another thread of the leader than the program's.
pub fn is_helper() -> bool {
    thread::is_watcher() || helpers::is_helper() || signals::is_courier() || cpu_timers::is_ticker()
}

/// Whether this member has the lock, or waits for it. The watcher does not say so, because the leader's own
/// thread reads the same word.
pub static IN_RECORD: AtomicBool = AtomicBool::new(false);

/// Forgets what the maker of this member or process was about: it had the lock.
pub fn forget_maker() {
    IN_RECORD.store(false, Ordering::Relaxed);
    faults::forget_held();
    postponed::forget();
}

/// Ends the program by a fault of the processor in a member that has the lock, or waits for it: handling
/// that would take the lock. Returns whether this is one.
pub fn fails(signal: i32, code: i32) -> bool {
    let fails = code > 0 && IN_RECORD.load(Ordering::Relaxed) && !is_helper();
    if fails {
        sigaction::die_of(signal as u64);
    }
    fails
}

/// Has the memory below this function's frame mapped, before the lock is taken: a stack may reach from one
/// region into another, and must not fault then.
pub fn prepare_stack() {
    let here = 0_u8;
    let below = (&raw const here as u64).wrapping_sub(pathreads::PAGE);
    // A wrong address is no harm. The copy ends there.
    user::read_some(below, &mut [0]);
    // So that it can be written to: it may be in a snapshot, or be mapped without that right.
    user::write_same(below);
}

/// Linux, as members wait for each other and interrupt each other.
pub struct Linux;

impl requests::Kernel for Linux {
    fn wait(&self, word: &AtomicU32, value: u32, milliseconds: u64) {
        wait(word, value, milliseconds * MILLISECOND);
    }

    fn wake(&self, word: &AtomicU32) {
        wake(word);
    }

    fn interrupt(&self, thread: u32) {
        let thread = u64::from(thread);
        let _ = harmless!(nr::TGKILL, thread, thread, SIGSTKFLT);
        stats::note_request();
    }
}

/// Takes the lock. A signal of a request interrupts the sleep. Requests to the leader are its own thread's,
/// which must stop, or queue signals, itself.
pub fn lock() {
    requests::take_lock(&control().lock, &Linux, || {
        if !is_helper() {
            serve_here();
        }
    });
}

/// Takes the lock, if it is released within some milliseconds: its holder may have been killed. Returns
/// whether it is taken.
pub fn lock_within(milliseconds: u64) -> bool {
    requests::take_lock_within(&control().lock, milliseconds, &Linux)
}

/// Waits for members that change their own memory, for some time each: they may have been killed.
pub fn await_insides() {
    const TRIES: u32 = 20;
    parts::await_others(insides(), TRIES, &Linux);
}

/// Forgets the members that were killed before a program is executed: in the leader's watcher, which has the
/// lock. If it has not, one of them may have held it, or been asked by the leader's own thread, which only
/// waits from now on.
pub fn forget_members(is_locked: bool) {
    for member in &control().members[1..] {
        member.thread.store(0, Ordering::Relaxed);
        member.pending.store(0, Ordering::Release);
        wake(&member.pending);
    }
    parts::forget(control().members[1..].iter().map(|member| &member.inside), &control().table);
    if is_locked || !matches!(control().holder.load(Ordering::Relaxed) & !WAITS, 1 | OF_LEADER) {
        unlock();
    }
}

/// Forgets what members were about when a process was copied, which has one of its own: another may have been
/// stopped when it was about to see that the lock is taken.
pub fn forget_insides() {
    parts::forget(control().members.iter().map(|member| &member.inside), &control().table);
}

/// Releases the lock of the record.
pub fn release() {
    control().holder.store(0, Ordering::Relaxed);
    unlock();
}

/// Releases the lock.
pub fn unlock() {
    requests::release_lock(&control().lock, &Linux);
}

/// Releases the lock if it was taken in this member's name, by a child that was killed. Returns whether that
/// had begun to change the record.
pub fn release_for_child() -> bool {
    let number = me() as u32 + 1;
    let holder = control().holder.load(Ordering::Relaxed);
    if holder == number | WAITS {
        release();
    }
    holder == number
}
