//! Handlers of the program that wait while this member changes its own memory ([`super::own`]), without a
//! call that blocks signals.
//!
//! A handler must not run there: other members wait for this one, and the handler's calls would change the
//! same memory. So a word says that handlers wait, and the stub that a signal enters looks at it.
//!
//! | handlers | a signal that the program handles | become |
//! |---|---|---|
//! | run | is handled | wait, at the begin of such a change |
//! | wait | is kept by the stub, which returns with all signals blocked | blocked, by the stub or by a request |
//! | blocked | is pending in the kernel | run, at the end: what is kept is sent again, and the signals are unblocked |
//!
//! 1. *All that is kept is sent again before any signal is unblocked.* From there on all is as if signals
//!    had been blocked from the begin. Then two of each number would be pending at most, one for the thread
//!    and one for its process. So two of each are kept, and sent again so ([`send_again`]).
//! 2. *A stub blocks only what the program's action says*, so a second signal comes at any instruction of the
//!    first one's stub, also behind [`block_in`]. Each stub, and each handler of the runtime in which a
//!    signal may come, returns with all blocked, whether it has kept its signal or not: it would undo what a
//!    stub above it has done otherwise. The set before is what *all* of them found blocked. The outermost
//!    found the change's own set, and those above found more.
//! 3. *A place is taken before it is written to*, by one instruction. A stub that comes between takes the
//!    other one of its number, or none. All stubs have returned when the places are read.
//! 4. *Some signals say more than that they came, or do more*. The kernel keeps several real-time signals of
//!    a number, in order: sent again, one would come behind others. SIGCONT takes back signals that stop the
//!    process, and these take it back. An action for once is the default one when its stub has run. So
//!    signals are blocked as elsewhere in the runtime, from then on, when the program has installed such a
//!    handler, or one without a stub ([`crate::sigaction`]). The C library's own signals, 32 and 33, say
//!    nothing that has an order. The kernel refuses them when too many are pending, so they are sent until
//!    there is room ([`siginfo::queue_again`]).
//! 5. *Handlers begin to wait by one instruction*, which looks whether they can. So such a handler is
//!    installed before, or in another member, whose request then has signals blocked here ([`end_request`]).
//! 6. *All words are those of one thread and its handlers*, so no ordering is needed. The compiler keeps
//!    the order in which a handler sees them. A child of `vfork` has its maker's words, and does not use
//!    them: a signal might end it between. A loan in a loan ends with the outer one.
//! 7. *The frames of signals that come at once have room* on the stack of such a change
//!    ([`crate::stack::with_all`]), below which there is no memory.
//! 8. *Signals that are never blocked come as ever*: they find their own handlers, which are for that. But a
//!    SIGSYS that is sent runs the program's handler in the change (`docs/design/pathreads.md`).
//! 9. *A signal whose action is the default one* ends the member there, or stops it, as SIGKILL and SIGSTOP
//!    do at any place. The watcher ends the others.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use super::{NEVER_BLOCKED, fork, siginfo};
use crate::context::{Context, Information};
use crate::sys::{self, nr};

/// The first real-time signal.
const FIRST_REAL_TIME: u64 = 32;

/// The first one that is not the C library's own.
const FIRST_IN_ORDER: u64 = 34;

/// SIGCONT, SIGTSTP, SIGTTIN and SIGTTOU.
const OF_JOBS: [u64; 4] = [18, 20, 21, 22];

/// The signals of a number that are kept: for the thread, and for its process.
const OF_A_NUMBER: usize = 2;

/// The places of signals, by number.
const PLACES: usize = FIRST_IN_ORDER as usize;

/// The state: of the values below.
static STATE: AtomicU32 = AtomicU32::new(0);

/// Handlers wait, or signals are blocked.
const WAITING: u32 = 1;
/// Signals are blocked until the change ends.
const BLOCKED: u32 = 2;
/// The program has installed a handler that cannot wait.
const OVER: u32 = 4;
/// A child of `vfork` has the same memory.
const LENT: u32 = 8;

/// The signals that were blocked before. All, while no stub has said which.
static BEFORE: AtomicU64 = AtomicU64::new(u64::MAX);

/// The signals that are kept, by number, and how many of each have come.
struct Kept(UnsafeCell<[[[u64; siginfo::WORDS]; OF_A_NUMBER]; PLACES]>);

// SAFETY: only this process's thread that is the program's, and its handlers, use it.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept(UnsafeCell::new([[[0; siginfo::WORDS]; OF_A_NUMBER]; PLACES]));
static COUNTS: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];

fn has(values: u32) -> bool {
    STATE.load(Ordering::Relaxed) & values != 0
}

/// Returns whether handlers can wait.
pub fn are_possible() -> bool {
    !has(OVER | LENT) && !fork::is_sharing()
}

/// Notes that a child is made that has the same memory. Returns whether there was one before: then this is a
/// child itself.
pub fn lend() -> bool {
    STATE.fetch_or(LENT, Ordering::Relaxed) & LENT != 0
}

/// Notes that it has ended, or executes a program, with what [`lend`] returned.
pub fn end_loan(was_lent: bool) {
    // A child has changed nothing, and its maker may use the words by now.
    if !was_lent {
        forget();
    }
}

/// Notes a handler of the program before it is installed, with whether it is for once, and has a stub.
pub fn note_handler(signal: u64, is_for_once: bool, has_stub: bool) {
    if signal >= FIRST_IN_ORDER || OF_JOBS.contains(&signal) || is_for_once || !has_stub {
        STATE.fetch_or(OVER, Ordering::Relaxed);
    }
}

/// Runs `f`, which changes this member's memory, while handlers wait. Returns `false` if they cannot.
#[inline(always)]
pub fn while_handlers_wait(f: impl FnOnce() -> bool) -> bool {
    let order = Ordering::Relaxed;
    if fork::is_sharing() || STATE.compare_exchange(0, WAITING, order, order).is_err() {
        return false;
    }
    compiler_fence(Ordering::SeqCst);
    let result = f();
    compiler_fence(Ordering::SeqCst);
    // A signal that comes behind this is handled. One that came before is seen.
    if STATE.fetch_and(!WAITING, Ordering::Relaxed) & BLOCKED != 0 {
        handle_kept();
    }
    result
}

/// Keeps a signal for which the program has a handler, if handlers wait. Returns whether the handler is not
/// to run: the stub blocks all signals then ([`block_in`]).
pub fn keeps(information: &Information) -> bool {
    if !has(WAITING) || information.is_fault() {
        return false;
    }
    let number = information.signal as usize;
    // A handler of a larger number was installed after handlers began to wait: then signals are blocked.
    let Some(count) = COUNTS.get(number) else { return false };
    let place = count.fetch_add(1, Ordering::Relaxed) as usize;
    // The kernel would keep no more than two, if they had been blocked.
    if place < OF_A_NUMBER {
        let words = information.words();
        // SAFETY: the place is within the array, and this stub alone has taken it.
        unsafe {
            KEPT.0.get().cast::<[u64; siginfo::WORDS]>().add(number * OF_A_NUMBER + place).write(words)
        };
    }
    true
}

/// Has signals blocked when a stub or a handler of the runtime returns, if it has interrupted a change.
pub fn block_in(context: &mut Context) {
    if has(WAITING) {
        let before = context.block(!NEVER_BLOCKED);
        BEFORE.fetch_and(before, Ordering::Relaxed);
        STATE.fetch_or(BLOCKED, Ordering::Relaxed);
    }
}

/// Has signals blocked after a request, if that has installed a handler that cannot wait, or a SIGSYS that
/// was sent has come in the handler of the request and had them blocked. No other signal comes there, so
/// otherwise it need not.
pub fn end_request(context: &mut Context) {
    if has(OVER | BLOCKED) {
        block_in(context);
    }
}

/// Sends again what is kept, and unblocks signals. They are blocked.
#[cold]
#[inline(never)]
fn handle_kept() {
    for (number, count) in COUNTS.iter().enumerate() {
        let count = count.swap(0, Ordering::Relaxed) as usize;
        if count > 0 {
            // SAFETY: signals are blocked, so no stub runs.
            let kept = unsafe { (*KEPT.0.get())[number] };
            send_again(number as u64, &kept[..count.min(OF_A_NUMBER)]);
        }
    }
    let before = BEFORE.swap(u64::MAX, Ordering::Relaxed);
    STATE.fetch_and(!BLOCKED, Ordering::Relaxed);
    sys::set_mask(before);
}

/// Sends kept signals of a number again, the first one to the thread. The kernel takes one of them for the
/// thread, and one for its process, if they are no real-time signals. So one that is pending by now makes
/// room, and comes after the first.
fn send_again(signal: u64, kept: &[[u64; siginfo::WORDS]]) {
    let newer = (signal < FIRST_REAL_TIME).then(|| siginfo::take(signal).ok()).flatten();
    siginfo::queue_again(signal, &kept[0], nr::TGSIGQUEUEINFO);
    for words in kept[1..].iter().chain(&newer) {
        siginfo::queue_again(signal, words, nr::SIGQUEUEINFO);
    }
}

/// Forgets what the maker of this member or process was about.
pub fn forget() {
    STATE.fetch_and(OVER, Ordering::Relaxed);
    BEFORE.store(u64::MAX, Ordering::Relaxed);
    COUNTS.iter().for_each(|count| count.store(0, Ordering::Relaxed));
}
