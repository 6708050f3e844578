//! SIGSEGV and SIGBUS that are *sent*, by `tgkill` and other calls.
//!
//! The two are not blocked while the program or the runtime runs, because an access to memory that a member
//! lacks is a fault at any moment. So a fault that is sent comes when another signal would wait. The runtime
//! does here what the kernel does with signals that are blocked.
//!
//! | a sent fault comes | it is | and then |
//! |---|---|---|
//! | in the program, or in `entry` on the way into a call and out of it | handled there | |
//! | in other code of the runtime | held back | sent again on the way out |
//! | while the program's handler of this signal runs | held back | sent again when the handler returns, or sets its signals |
//! | in a stub for one of the two, or in `sigaction::fault` | pending in the kernel | delivered when that ends |
//!
//! 1. *The place decides*, and no mark that would be set a moment too late. The last thing that the assembly
//!    does on the way out is to look at [`HELD`]. A fault that comes before that instruction is held back
//!    and seen by it. A fault that comes afterwards is handled where it comes.
//! 2. *[`send_again`] leaves all signals blocked*. The call that follows in assembly blocks those from before
//!    only: there the kernel delivers, where nothing of the runtime is under way.
//! 3. *Stubs for the two begin with both blocked*, and no handler runs in itself unless the program asks for
//!    that. So faults that are sent faster than they are handled do not fill the stack.
//! 4. *[`DEFERRED`] is a part of the set of blocked signals that the program sees.* A handler's context has
//!    the part from before, which holds again when it returns. Only a handler that begins adds to it:
//!    the program itself cannot block the two.
//!
//! All words are those of one thread and its handlers, so no ordering is needed.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::context::Information;
use crate::entry::{self, Frame};
use crate::sys::{self, harmless, nr};
use crate::{sigaction, user};

use super::{SIGBUS, SIGSEGV, is_on, never_blocked, own_thread};

/// The set of the two signals.
pub const FAULTS: u64 = 1 << (SIGBUS - 1) | 1 << (SIGSEGV - 1);

/// The signals that were blocked before [`send_again`], without the two.
pub static SET_BEFORE: AtomicU64 = AtomicU64::new(0);

/// The set of signals that are held back.
pub static HELD: AtomicU32 = AtomicU32::new(0);

/// The set of signals whose handlers run, and have to return first.
pub static DEFERRED: AtomicU32 = AtomicU32::new(0);

/// The words of a `siginfo`.
const WORDS: usize = 16;

/// The information of the signals that are held back: SIGBUS, SIGSEGV.
static INFORMATION: [[AtomicU64; WORDS]; 2] = [const { [const { AtomicU64::new(0) }; WORDS] }; 2];

/// Returns the set with this signal, if it is one of the two.
fn set_of(signal: i32) -> u32 {
    (FAULTS as u32) & 1_u32.wrapping_shl((signal - 1) as u32)
}

fn information_of(signal: u64) -> &'static [AtomicU64; WORDS] {
    &INFORMATION[usize::from(signal == SIGSEGV)]
}

/// Holds a sent fault back that comes at the wrong moment. Both signals are blocked. Returns whether it is
/// held back.
pub fn holds_back(information: &Information, place: u64) -> bool {
    let set = set_of(information.signal);
    let is_sent = information.code <= 0 && set != 0 && is_on();
    let is_early = || set & DEFERRED.load(Ordering::Relaxed) != 0 || entry::is_inside(place);
    if !is_sent || !is_early() {
        return false;
    }
    // As in the kernel, a second one while the first is pending is the same.
    if HELD.load(Ordering::Relaxed) & set == 0 {
        keep(information);
        HELD.fetch_or(set, Ordering::Relaxed);
    }
    true
}

/// Keeps what the kernel said about a signal.
fn keep(information: &Information) {
    let at = (&raw const *information).cast::<u64>();
    for (index, word) in information_of(information.signal as u64).iter().enumerate() {
        // SAFETY: the kernel made a whole `siginfo` here, on the stack of the handler.
        word.store(unsafe { *at.add(index) }, Ordering::Relaxed);
    }
}

/// Sends the signals again that were held back and may come now. Leaves all blocked that may be, and the two,
/// until the next call in `entry`.
pub extern "C" fn send_again() {
    let before = sys::block(!never_blocked() | FAULTS);
    SET_BEFORE.store(before & !FAULTS, Ordering::Relaxed);
    let deferred = DEFERRED.load(Ordering::Relaxed);
    let held = HELD.fetch_and(deferred, Ordering::Relaxed) & !deferred;
    // A member is a process with one thread that runs the program.
    let own = u64::from(own_thread());
    for signal in [SIGBUS, SIGSEGV].into_iter().filter(|signal| held & set_of(*signal as i32) != 0) {
        let information = information_of(signal).as_ptr() as u64;
        let _ = harmless!(nr::TGSIGQUEUEINFO, own, own, signal, information);
    }
}

/// Begins a handler of the program: it must return before its signal comes again, if it is one of the two.
/// Returns the set of those that have to wait when it has returned.
pub fn begin_handler(signal: i32) -> u64 {
    let set = if sigaction::nests(signal as u64) { 0 } else { set_of(signal) };
    u64::from(DEFERRED.fetch_or(set, Ordering::Relaxed))
}

/// Returns whether the stub of a signal has to unblock both: it is one of them, or has come in the stub of
/// one, where both were blocked. `before` is what was blocked when it came.
pub fn are_blocked_in_stub(signal: i32, before: u64) -> bool {
    is_on() && (set_of(signal) != 0 || before & FAULTS != 0)
}

/// Notes a call that changes the set of blocked signals, or reads it. A handler may let its own signal come,
/// and what it reads has that signal.
pub fn note_mask(frame: &mut Frame) {
    const SIG_UNBLOCK: u64 = 1;
    let [_, how, new_at, old_at, size, ..] = frame.call;
    let deferred = DEFERRED.load(Ordering::Relaxed);
    if deferred == 0 || size != 8 {
        return;
    }
    let new = if new_at == 0 { Ok([0]) } else { user::words(new_at) };
    // A wrong address is left to the kernel.
    let Ok([new]) = new else { return };
    if old_at != 0 && user::write_words(old_at, &[sys::block(0) | u64::from(deferred)]).is_ok() {
        frame.call[3] = 0;
    }
    match how {
        _ if new_at == 0 => {}
        SIG_UNBLOCK => _ = DEFERRED.fetch_and(!new as u32, Ordering::Relaxed),
        sys::SIG_SETMASK => _ = DEFERRED.fetch_and(new as u32, Ordering::Relaxed),
        _ => {}
    }
}

/// Forgets the signals that are held back, in a new process.
pub fn forget_held() {
    HELD.store(0, Ordering::Relaxed);
}

/// Forgets all, in a new thread.
pub fn forget() {
    forget_held();
    DEFERRED.store(0, Ordering::Relaxed);
}
