//! Calls that wait without memory which they name. A request interrupts a call, and its member prepares it
//! again. It may find then that the program does not have all the memory, or not with both rights. Linux
//! looks for that when it needs it, and the program may have it by then.
//!
//! 1. *A member says that its call lacks memory* under the lock, when it has looked at the record. It looks
//!    only when it prepares a call again.
//! 2. *A member that adds memory or rights asks those that lack some* ([`tell`]), under the lock. So each of
//!    them prepares its call once more, when the lock is released.

use core::sync::atomic::{AtomicBool, Ordering};

use pathreads::record::{Members, Record, Region};
use pathreads::{RUNTIME_BASE, RUNTIME_END};

use super::{Request, blocks, control, me, request};
use crate::sys::{PROT_READ, PROT_WRITE};

/// Whether this member prepares a call again.
static LOOKS: AtomicBool = AtomicBool::new(false);

/// Whether it has said that its call lacks memory.
static LACKS: AtomicBool = AtomicBool::new(false);

/// Returns whether this member has to look at the record.
#[inline(always)]
pub fn looks() -> bool {
    LOOKS.load(Ordering::Relaxed)
}

/// Runs `f`, which prepares a call again.
pub fn looking(f: impl FnOnce()) {
    LOOKS.store(true, Ordering::Relaxed);
    f();
    LOOKS.store(false, Ordering::Relaxed);
}

/// Notes whether a call lacks memory of a range. The lock is held.
pub fn note(record: &Record, start: u64, end: u64) {
    const BOTH: u64 = PROT_READ | PROT_WRITE;
    // Some arguments are the runtime's.
    if (RUNTIME_BASE..RUNTIME_END).contains(&start) {
        return;
    }
    if super::fork::is_sharing() {
        return;
    }
    let is_new = !LACKS.swap(true, Ordering::Relaxed);
    if is_new {
        control().members[me()].lacks.store(1, Ordering::Relaxed);
        // Counted before the states of reservations are seen: a barrier, as `reservations::open` has one.
        control().lacking.fetch_add(1, Ordering::SeqCst);
    }
    let is_there = |region: &Region| region.rights & BOTH == BOTH && !blocks::is_closed(region);
    let has_all = record.covers(start, end) && record.touched(start, end).all(is_there);
    if has_all && is_new {
        forget_lack();
    }
}

/// Returns whether this member has said that its call lacks memory.
pub fn is_noted() -> bool {
    LACKS.load(Ordering::Relaxed)
}

/// Begins a call, or a handler or a thread: the one before does not wait any more.
#[inline(always)]
pub fn forget() {
    LOOKS.store(false, Ordering::Relaxed);
    if LACKS.load(Ordering::Relaxed) {
        forget_lack();
    }
}

/// Not inlined, because Go makes calls with little stack.
#[inline(never)]
fn forget_lack() {
    if LACKS.swap(false, Ordering::Relaxed) && control().members[me()].lacks.swap(0, Ordering::Relaxed) != 0 {
        control().lacking.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Forgets the lacks of all, in a new process.
pub fn begin_process() {
    LACKS.store(false, Ordering::Relaxed);
    control().lacking.store(0, Ordering::Relaxed);
    control().members.iter().for_each(|member| member.lacks.store(0, Ordering::Relaxed));
}

/// Forgets the lack of the maker of this member.
pub fn begin_member() {
    LACKS.store(false, Ordering::Relaxed);
}

/// Asks the members whose calls lack memory, because there is more. The lock is held.
pub fn tell() {
    if control().lacking.load(Ordering::Relaxed) != 0 {
        tell_all();
    }
}

#[inline(never)]
fn tell_all() {
    let all = control().members.iter().enumerate();
    let lacking = all.filter(|(_, member)| member.lacks.load(Ordering::Relaxed) != 0);
    let members = lacking.fold(Members::NONE, |set, (member, _)| set.with(member));
    request(members, Request::Look);
}
