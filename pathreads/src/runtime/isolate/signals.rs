//! Signals to the process. Linux keeps them for the leader's process, and POSIX gives each to any thread that
//! has it open, or waits for it by `sigwait`.
//!
//! The leader's own thread gets what it has open, or waits for, from the kernel. The rest is given to other
//! members by the *courier*, a real thread of the leader in the runtime's code, with all signals blocked.
//! Each member writes the set that it takes to `open` in the control area: what it does not block, and what
//! a call waits for or unblocks for its own time. The words, and who changes them, are those of
//! `pathreads::delivery`, which has a loom model.
//!
//! 1. *A signal leaves the process only for a member that is claimed.* So one that none takes stays pending
//!    there, in order, where `sigpending` and `execve` find it.
//! 2. *A signal that comes to a member too late is another one's*, or the process's again: the member has
//!    begun a handler, and blocks it. One for which a member has no room is held: the courier tries again at
//!    each look, looks soon, and gives others meanwhile.
//! 3. *A member queues a signal to itself*, as an answer to a request: the kernel lets it keep all that the
//!    signal says. One from `kill` gets a [`MARK`], because copies that a member has of what is sent to the
//!    whole group are dropped (`super::is_copy`).
//! 4. *A wait takes one signal.* With it `sigtimedwait` ends, so the member's set loses what it waits for. A
//!    signal that the thread does not block may be ignored, and ends no wait. Nor does one that it blocks and
//!    reads by a descriptor (8).
//! 5. *The sets follow the kernel's mask* at calls, at the begin of a handler and at its end. A signal that
//!    comes within the first instructions of a handler may wait until that returns.
//! 6. *A pending signal comes at once.* A thread that unblocks signals, or that waits with a time, first has
//!    the courier look ([`look`]): POSIX promises one of them before the call returns.
//! 7. *A signal that a thread was given and did not take goes back to the process*, when its call or the
//!    thread ends.
//!
//! 8. *One member reads signals by a descriptor at a time* (`signal_files`). Its set has them, though it
//!    blocks them, and what it was given is not given back by a handler or the end of a wait. It comes last
//!    when a signal is given, because it may not read now. It is asked to look again when a descriptor gets
//!    other signals ([`read_more`]).
//!
//! The courier and the watcher begin together, so a program with one thread has neither, and no sets.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, compiler_fence};

use abi::Errno;
use pathreads::delivery::{self, AWAKE, CLAIMED};
use pathreads::record::{MOST_MEMBERS, Members};

use super::helpers::{self, What};
use super::siginfo::{MARK, WORDS, bit, pause, queue_again, queue_beyond, take};
use super::{
    MILLISECOND, NEVER_BLOCKED, Request, SIGSTKFLT, control, fork, leader, me, own_thread, thread, wait,
    waiting,
};
use crate::context::Information;
use crate::dispatch::Then;
use crate::entry::{self, Frame};
use crate::sys::{self, SIG_SETMASK, harmless, nr};
use crate::{sigaction, user};

const SIGKILL: u64 = 9;
const SIGSTOP: u64 = 19;

/// SIGTSTP, SIGTTIN and SIGTTOU.
const STOPS: [u64; 3] = [20, 21, 22];

// No set has this signal.
const _: () = assert!(CLAIMED == bit(SIGKILL));

/// The signals that the courier gives.
const GIVABLE: u64 = !(NEVER_BLOCKED | bit(SIGKILL) | bit(SIGSTOP));

/// The real-time signals, of which several of a number may be pending. Given back, one would come after those
/// that were sent later. So they are refused by no handler, and wait until that returns.
const IN_ORDER: u64 = u64::MAX << 31;

/// The signals that are blocked while a call that has waited ends: all that may be.
pub static MOST: u64 = !NEVER_BLOCKED;

/// The time after which the courier looks when the leader has blocked signals, in nanoseconds. Most are
/// unblocked before: a C library blocks all while it makes a thread.
const DELAY: u64 = 10 * MILLISECOND;

/// The part of the control area that is the courier's.
pub struct Courier {
    /// Its number in Linux, or 0 if there is none.
    thread: AtomicU32,
    /// Its state, and above that the number of its looks. Members sleep here.
    rests: AtomicU32,
    /// The signals for which it looks.
    watched: AtomicU64,
    /// The information of the signal that a member is asked to queue. Written under the lock.
    carried: UnsafeCell<[u64; WORDS]>,
    /// The answer: [`TAKEN`] and others.
    answer: AtomicU32,
    /// The signals that are held.
    held: AtomicU64,
}

/// The member has queued the signal, or ignores it.
const TAKEN: u32 = 0;
/// It blocks the signal now.
const REFUSED: u32 = 1;
/// No more signals may be pending.
const NO_ROOM: u32 = 2;

/// The information of the signals that are held, in the leader's process. Read and written under the lock.
struct Held(UnsafeCell<[[u64; WORDS]; 64]>);

// SAFETY: the lock is held.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new([[0; WORDS]; 64]));

/// Holds a signal for which there is no room, in the leader's process. The lock is held. Returns whether none
/// of its number is held.
fn hold(signal: u64, information: [u64; WORDS]) -> bool {
    let is_first = control().courier.held.fetch_or(bit(signal), Ordering::Relaxed) & bit(signal) == 0;
    if is_first {
        // SAFETY: the lock is held.
        unsafe { (*HELD.0.get())[signal as usize - 1] = information };
    }
    is_first
}

/// Takes a signal that is held. The lock is held.
fn take_held(signal: u64) -> Option<[u64; WORDS]> {
    let is_held = control().courier.held.fetch_and(!bit(signal), Ordering::Relaxed) & bit(signal) != 0;
    // SAFETY: the lock is held.
    is_held.then(|| unsafe { (*HELD.0.get())[signal as usize - 1] })
}

impl Courier {
    fn words(&self) -> delivery::Courier<'_> {
        delivery::Courier { rests: &self.rests, watched: &self.watched }
    }
}

/// Whether there is a courier. Only then sets are kept.
pub static HAS_COURIER: AtomicU8 = AtomicU8::new(0);

/// Whether this member makes a call that waits with a set of its own, and which: [`NO_WAIT`] and others.
pub static WAITS: AtomicU8 = AtomicU8::new(NO_WAIT);

const NO_WAIT: u8 = 0;
/// The call takes a signal.
const TAKES: u8 = 1;
/// The call has handlers run for signals that are blocked otherwise.
const UNBLOCKS: u8 = 2;

/// The signals that the program blocks, but for the time of such a call.
static MASK: AtomicU64 = AtomicU64::new(0);

/// The signals that such a call leaves blocked while it waits. Written before [`WAITS`].
static DURING: AtomicU64 = AtomicU64::new(0);

/// The signals of which this member was given one and may not have taken it.
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// The signals that this member reads by a descriptor (`signal_files`). It blocks them, and takes them. Only
/// set under the lock, by the member that `reader` names then: it is asked to stop when another one reads.
static READ: AtomicU64 = AtomicU64::new(0);

/// Whether this member was given such signals, which another one reads now.
static HAS_UNREAD: AtomicBool = AtomicBool::new(false);

/// The descriptor by which the courier waits, or a number that is none.
static FILE: AtomicU64 = AtomicU64::new(u64::MAX);

/// A place for what a call says, if the program does not ask, and for a signal that a thread sends to itself.
static TOLD: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// Returns the courier's descriptor, or a number that is none.
pub fn file() -> u64 {
    FILE.load(Ordering::Relaxed)
}

/// Returns whether this task keeps a set.
fn keeps_set() -> bool {
    HAS_COURIER.load(Ordering::Relaxed) != 0 && !fork::is_sharing()
}

fn open_of(member: usize) -> &'static AtomicU64 {
    &control().members[member].open
}

// ---- The members.

/// Notes the signals that this thread blocks.
pub fn note(mask: u64) {
    if keeps_set() {
        MASK.store(mask, Ordering::Relaxed);
        publish(!mask);
    }
}

/// Forgets the wait of the member that this one, or this process, is a copy of.
pub fn forget_wait() {
    WAITS.store(NO_WAIT, Ordering::Relaxed);
    GIVEN.store(0, Ordering::Relaxed);
    READ.store(0, Ordering::Relaxed);
    HAS_UNREAD.store(false, Ordering::Relaxed);
    forget_stub();
}

/// Forgets a stub: of the member that this one is a copy of, or of a child that had the same memory.
pub fn forget_stub() {
    BEGINS.store(false, Ordering::Relaxed);
    BLOCKED_BY_STUB.store(0, Ordering::Relaxed);
}

/// Begins a new thread with the signals that it blocks.
pub fn begin_thread(mask: u64) {
    forget_wait();
    // Its maker may not have said so yet, and the courier looks no further.
    control().most.fetch_max(me() as u32, Ordering::SeqCst);
    note(mask);
}

/// Begins a process with one thread.
pub fn begin_process() {
    sys::close(FILE.swap(u64::MAX, Ordering::Relaxed));
    HAS_COURIER.store(0, Ordering::Relaxed);
    forget_wait();
    let Courier { thread, rests, watched, held, .. } = &control().courier;
    held.store(0, Ordering::Relaxed);
    thread.store(0, Ordering::Relaxed);
    rests.store(AWAKE, Ordering::Relaxed);
    watched.store(0, Ordering::Relaxed);
    control().members.iter().for_each(|member| member.open.store(0, Ordering::Relaxed));
    super::signal_files::begin_process();
}

/// Returns the signals that this thread blocks, also while a call waits with a set of its own.
fn blocked() -> u64 {
    let word = if WAITS.load(Ordering::Relaxed) == NO_WAIT { &MASK } else { &DURING };
    word.load(Ordering::Relaxed)
}

/// Returns the signals that this member takes, with those that it reads by a descriptor.
fn taken_with(open: u64) -> u64 {
    (open | READ.load(Ordering::Relaxed)) & GIVABLE
}

/// Has this member take signals that it is about to read by a descriptor, and the one not any more that did
/// so before. Those that are pending come before this returns. Not inlined, because Go makes calls with
/// little stack.
#[inline(never)]
pub fn read_by_file() {
    if !keeps_set() {
        return;
    }
    pass_unread_on();
    let files = &control().signal_files;
    // The kernel gives the leader its own.
    let read = || if me() == 0 { 0 } else { files.set.load(Ordering::Relaxed) & GIVABLE };
    if (files.reader.load(Ordering::Relaxed) as usize, READ.load(Ordering::Relaxed)) != (me(), read()) {
        super::prepare_stack();
        super::locked(|_| {
            make_reader(me());
            // Another member that reads asks this one to stop under the lock, so after this.
            READ.store(read(), Ordering::Relaxed);
        });
    }
    if me() != 0 {
        publish_unclaimed(!blocked());
        look(READ.load(Ordering::Relaxed));
    }
}

/// Makes a member, or the leader, the one that reads signals, and has the one stop that did so before. The
/// lock is held.
fn make_reader(member: usize) {
    let old = control().signal_files.reader.swap(member as u32, Ordering::Relaxed) as usize;
    if old != 0 {
        super::request(Members::NONE.with(old), Request::Unread);
    }
}

/// Has no member read signals by a descriptor, because there is none any more. The lock is held.
pub fn end_reading() {
    if keeps_set() {
        make_reader(0);
        // A request leaves this member out.
        stop_reading();
    }
}

/// Gives back the signals that another member reads, after a request to stop reading them.
#[inline(always)]
pub fn pass_unread_on() {
    if HAS_UNREAD.load(Ordering::Relaxed) {
        pass_unread_now();
    }
}

/// Not inlined, because Go makes calls with little stack.
#[inline(never)]
fn pass_unread_now() {
    sys::with_signals_blocked(|| {
        HAS_UNREAD.store(false, Ordering::Relaxed);
        // A signal for which a call waits stays: the wait was counted as ended when it was given.
        pass_on(blocked());
    });
}

/// Stops taking signals that another member reads. Those that this one has go back ([`pass_unread_on`]) after
/// the request, when the runtime is left or enters the kernel. The lock is held, so this member is not
/// claimed. A call that waits goes on, with what it waits for.
pub fn stop_reading() {
    let read = READ.swap(0, Ordering::Relaxed);
    if read != 0 {
        HAS_UNREAD.store(true, Ordering::Relaxed);
        delivery::remove(open_of(me()), read & blocked());
    }
}

/// Has the member that reads signals by a descriptor look at those again, after a change. The lock is held.
pub fn read_more() {
    let reader = control().signal_files.reader.load(Ordering::Relaxed) as usize;
    // This member looks before it reads.
    if keeps_set() && reader != 0 && reader != me() {
        super::request(Members::NONE.with(reader), Request::Read);
        wake_courier(AWAKE);
    }
}

/// Takes what was added to the signals that this member reads. A call that reads them is made again, by the
/// kernel's new set. The one that asks has the lock, and wakes the courier.
pub fn go_on_reading() {
    let read = control().signal_files.set.load(Ordering::Relaxed) & GIVABLE;
    READ.store(read, Ordering::Relaxed);
    delivery::add(open_of(me()), read);
}

/// Has the courier look after a change of an action: a member may take a signal now that stops the process by
/// default.
pub fn note_action(signal: u64) {
    if keeps_set() && STOPS.contains(&signal) {
        wake_courier(AWAKE);
    }
}

/// Writes this member's set.
fn publish(open: u64) {
    write_set(open, |open| delivery::publish(open_of(me()), open));
}

/// Writes this member's set by `write`, which returns the one before. If a request to stop reading signals
/// came meanwhile, what it has written may be overwritten, so the set is written again without them.
#[inline(always)]
fn write_set(open: u64, write: impl Fn(u64) -> u64) {
    loop {
        let taken = taken_with(open);
        call_courier(write(taken), taken);
        if taken_with(open) == taken {
            return;
        }
    }
}

/// Writes this member's set when it has got the signal for which it is claimed. Requests are answered
/// meanwhile, and the signal comes if it is not blocked.
#[inline(never)]
fn publish_unclaimed(open: u64) {
    let pending = &control().members[me()].pending;
    write_set(open, |open| {
        delivery::publish_unclaimed(open_of(me()), open, || wait(pending, 0, MILLISECOND))
    });
}

/// Wakes the courier if it has to look at this member's set, which has just changed.
fn call_courier(old: u64, open: u64) {
    let words = control().courier.words();
    if let Some(to) = delivery::call_after(words, open_of(0), me() == 0, old & GIVABLE, open) {
        wake_courier(to);
    }
}

/// Wakes the courier. Returns the number of the look that it takes then, unless it is awake.
fn wake_courier(to: u32) -> Option<u32> {
    let rests = &control().courier.rests;
    let rouse = || {
        let courier = u64::from(control().courier.thread.load(Ordering::Relaxed));
        let _ = harmless!(nr::TGKILL, u64::from(leader()), courier, SIGSTKFLT);
    };
    // A handler between the two might not come back here: the program makes its call again after it.
    sys::with_signals_blocked(|| delivery::call(rests, to, rouse, || super::wake(rests)))
}

/// Has the courier look, if this member now takes signals of this set that the leader does not: those that
/// are pending come before this returns. Requests are answered meanwhile.
#[inline(never)]
fn look(opened: u64) {
    if me() == 0 || opened & GIVABLE & !open_of(0).load(Ordering::Relaxed) == 0 {
        return;
    }
    let rests = &control().courier.rests;
    delivery::look(rests, || wake_courier(AWAKE), |value| wait(rests, value, MILLISECOND));
}

/// Notes a call that changes the set of blocked signals, before it is made. Not inlined, because Go makes
/// calls with little stack.
#[inline(never)]
pub fn note_call(frame: &Frame) {
    const SIG_BLOCK: u64 = 0;
    const SIG_UNBLOCK: u64 = 1;
    let [_, how, new_at, _, size, ..] = frame.call;
    if !keeps_set() || new_at == 0 || size != 8 {
        return;
    }
    // A wrong address is left to the kernel.
    let Ok([new]) = user::words(new_at) else { return };
    let old = MASK.load(Ordering::Relaxed);
    let mask = match u64::from(how as u32) {
        SIG_BLOCK => old | new,
        SIG_UNBLOCK => old & !new,
        SIG_SETMASK => new,
        _ => return,
    };
    if (old ^ mask) & GIVABLE != 0 {
        MASK.store(mask, Ordering::Relaxed);
        publish_unclaimed(!mask);
        look(old & !mask);
    }
}

/// Notes a call that may wait with a set of its own. `entry` makes it, and ends with [`end_wait`]. Not
/// inlined, because Go makes calls with little stack.
#[inline(never)]
pub fn begin_wait(frame: &mut Frame) {
    let mask = MASK.load(Ordering::Relaxed);
    if !keeps_set() {
        return;
    }
    let Some(set) = set_of(&frame.call) else { return };
    let takes = frame.call[0] == nr::SIGTIMEDWAIT;
    let during = if takes { mask & !set } else { set };
    if !takes && (during ^ mask) & GIVABLE == 0 {
        return;
    }
    if takes && frame.call[2] == 0 {
        frame.call[2] = TOLD.as_ptr() as u64;
    }
    DURING.store(during, Ordering::Relaxed);
    // A request that this member serves sees the set of the wait that it finds.
    compiler_fence(Ordering::SeqCst);
    WAITS.store(if takes { TAKES } else { UNBLOCKS }, Ordering::Relaxed);
    publish_unclaimed(!during);
    let is_without_time = frame.call[0] == nr::SIGSUSPEND || takes && frame.call[3] == 0;
    if !is_without_time {
        look(mask & !during);
    }
}

/// Returns the set of signals that a call names, if it names one.
fn set_of(call: &[u64; 7]) -> Option<u64> {
    let [number, a, b, _, d, e, f] = *call;
    let (at, size) = match number {
        nr::SIGSUSPEND => (a, b),
        nr::SIGTIMEDWAIT => (a, d),
        nr::PPOLL => (d, e),
        nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => (e, f),
        nr::PSELECT6 if f != 0 => user::words(f).ok().map(|[at, size]| (at, size))?,
        _ => return None,
    };
    if at == 0 || size != 8 {
        return None;
    }
    user::words(at).ok().map(|[set]| set)
}

/// Ends a call that has waited with a set of its own, and that no handler of the program has interrupted.
/// Signals are blocked.
pub extern "C" fn end_wait(frame: &mut Frame) {
    WAITS.store(NO_WAIT, Ordering::Relaxed);
    publish_unclaimed(!MASK.load(Ordering::Relaxed));
    if frame.call[0] == nr::SIGTIMEDWAIT {
        // A signal that was given meanwhile ends the call, if none did.
        if Errno::from_result(frame.rax).is_some() && GIVEN.load(Ordering::Relaxed) != 0 {
            try_again(frame);
        }
        if !tell(frame, frame.rax) {
            frame.again = frame.call[0];
        }
    }
    pass_on(MASK.load(Ordering::Relaxed));
}

/// Makes a call that takes a signal again, without waiting.
fn try_again(frame: &mut Frame) {
    let [number, set, told, ..] = frame.call;
    let (mut information, none) = ([0_u64; 16], [0_u64; 2]);
    // A request may take the program's memory away before the kernel writes, and the signal would be lost.
    let at = information.as_mut_ptr() as u64;
    if let Ok(signal) = harmless!(number, set, at, none.as_ptr() as u64, 8) {
        let _ = user::write_words(told, &information);
        frame.rax = signal;
    }
}

/// Tells the program what the signal says that its call has taken. Returns whether the signal is for it.
fn tell(frame: &Frame, result: u64) -> bool {
    let at = frame.call[2];
    if Errno::from_result(result).is_some() || at == 0 {
        return true;
    }
    let Ok(words) = user::words::<WORDS>(at) else { return true };
    let mut information = Information::of(words);
    if super::is_copy(&information) {
        return false;
    }
    information.show();
    let _ = user::write_words(at, &information.words());
    true
}

/// Returns the result that a handler is shown of a call which it has interrupted after it took a signal.
pub fn shown_result(frame: &Frame, result: u64) -> u64 {
    let takes = WAITS.load(Ordering::Relaxed) == TAKES;
    if takes && frame.call[0] == nr::SIGTIMEDWAIT && !tell(frame, result) {
        Errno::EINTR.to_result()
    } else {
        result
    }
}

/// Whether this member begins a handler, and has not noted which signals that blocks.
static BEGINS: AtomicBool = AtomicBool::new(false);

/// The signals that the handler blocks that a request has interrupted at its begin.
static BLOCKED_BY_STUB: AtomicU64 = AtomicU64::new(0);

/// Begins to show the program to a handler.
pub fn begin_stub() {
    BEGINS.store(true, Ordering::Relaxed);
}

/// Serves requests by `f` where these signals are blocked, in a stub or elsewhere.
pub fn serving(is_in_stub: bool, mask: u64, f: impl FnOnce()) {
    let is_early = is_in_stub || BEGINS.load(Ordering::Relaxed);
    BLOCKED_BY_STUB.store(if is_early { mask } else { 0 }, Ordering::Relaxed);
    f();
    BLOCKED_BY_STUB.store(0, Ordering::Relaxed);
}

/// Ends the work of a stub, when the signal is not for the program.
pub fn end_stub() {
    BEGINS.store(false, Ordering::Relaxed);
}

/// Begins a handler of the program: a call that waits has ended, and more signals are blocked. Those of them
/// that this member was given before are another one's.
pub fn begin_handler() {
    if keeps_set() {
        WAITS.store(NO_WAIT, Ordering::Relaxed);
        note(sys::block(0));
        end_stub();
        if GIVEN.load(Ordering::Relaxed) != 0 {
            sys::with_signals_blocked(|| pass_on(MASK.load(Ordering::Relaxed) & !IN_ORDER));
        }
    }
    end_stub();
}

/// Ends a handler of the program, which has left this set of blocked signals. All are blocked until that is
/// the kernel's.
pub extern "C" fn end_handler(mask: u64) {
    sys::block(!NEVER_BLOCKED);
    note(mask);
}

/// Ends this member's thread. The signals that it was given and has not taken go back to the process.
pub fn end_thread() {
    if keeps_set() {
        end_own_reading();
        publish_unclaimed(0);
        pass_on(u64::MAX);
    }
}

/// Has this member read no signals by a descriptor any more.
fn end_own_reading() {
    let reader = &control().signal_files.reader;
    if me() != 0 && reader.load(Ordering::Relaxed) as usize == me() {
        super::prepare_stack();
        // None asks this member to read more from then on.
        super::locked(|_| {
            let _ = reader.compare_exchange(me() as u32, 0, Ordering::Relaxed, Ordering::Relaxed);
        });
    }
    READ.store(0, Ordering::Relaxed);
}

/// Gives back what this member was given of these signals, and has not taken. Signals are blocked.
fn pass_on(blocked: u64) {
    if GIVEN.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut pending = 0_u64;
    // A request may give this member a signal between any two of these.
    let old = GIVEN.swap(0, Ordering::Relaxed);
    let _ = harmless!(nr::SIGPENDING, &raw mut pending as u64, 8);
    GIVEN.fetch_or(old & pending, Ordering::Relaxed);
    let given = GIVEN.load(Ordering::Relaxed) & !READ.load(Ordering::Relaxed);
    for signal in (1..=64).filter(|signal| given & blocked & bit(*signal) != 0) {
        pass_number_on(signal);
    }
}

/// The most signals of a number that were sent to a thread and that may be pending before one that goes back.
/// Behind more of them it stays with the thread.
const MOST_OWN: usize = 4;

/// Gives the signals of a number back that this member was given, and drops copies. Those that were sent to
/// the thread stay, or go with it.
#[inline(never)]
fn pass_number_on(signal: u64) {
    let (mut own, mut count) = ([[0; WORDS]; MOST_OWN], 0);
    while count < MOST_OWN
        && let Ok(words) = take(signal)
    {
        let information = Information::of(words);
        if information.is_given() {
            give_back(signal, words);
        } else if !super::is_copy(&information) {
            // A copy would keep the kernel from queueing one that is given.
            own[count] = words;
            count += 1;
        }
    }
    for words in &own[..count] {
        queue_again(signal, words, nr::TGSIGQUEUEINFO);
    }
}

/// Gives a signal back to the process.
fn give_back(signal: u64, words: [u64; WORDS]) {
    super::prepare_stack();
    while super::locked(|_| carry(0, signal, words)) == NO_ROOM {
        pause();
    }
    if control().courier.held.load(Ordering::Relaxed) & bit(signal) != 0 {
        // Nothing else ends its rest.
        wake_courier(AWAKE);
    }
}

/// Queues the signal that this member was asked to: to itself, or to the process if it is the leader.
pub fn take_carried(signal: u64) {
    // SAFETY: the one that asks has the lock, and waits for the answer.
    let information = unsafe { &*control().courier.carried.get() };
    let answer_as = |answer: u32| control().courier.answer.store(answer, Ordering::Relaxed);
    if me() == 0 {
        let is_full = queue_beyond(signal, information, nr::SIGQUEUEINFO) == Err(Errno::EAGAIN);
        return answer_as(if is_full && !hold(signal, *information) { NO_ROOM } else { TAKEN });
    }
    let (set, mask) = (open_of(me()), MASK.load(Ordering::Relaxed));
    let answer = match () {
        () if is_refused(set, bit(signal) & !IN_ORDER) => REFUSED,
        () if queue_beyond(signal, information, nr::TGSIGQUEUEINFO) == Err(Errno::EAGAIN) => NO_ROOM,
        () => TAKEN,
    };
    answer_as(answer);
    // One that this member only reads by a descriptor stays blocked, and the wait goes on.
    let is_awaited = mask & !blocked() & bit(signal) != 0;
    let ends_wait = WAITS.load(Ordering::Relaxed) == TAKES && is_awaited;
    if answer == TAKEN {
        GIVEN.fetch_or(bit(signal), Ordering::Relaxed);
    }
    // Otherwise it may be ignored, and the wait goes on.
    delivery::end_claim(set, (answer == TAKEN && ends_wait).then_some(taken_with(!mask)));
}

/// Returns whether this member has begun a handler that blocks a signal for which it is claimed.
fn is_refused(set: &AtomicU64, signal: u64) -> bool {
    let blocked = BLOCKED_BY_STUB.load(Ordering::Relaxed) & !READ.load(Ordering::Relaxed);
    signal != 0 && (!delivery::accepts(set, signal) || blocked & signal != 0)
}

/// Has a member queue a signal. The lock is held. Returns the answer.
fn carry(member: usize, signal: u64, information: [u64; WORDS]) -> u32 {
    let mut marked = Information::of(information).marked(member != 0);
    // It may be read by a descriptor.
    marked.name_sender();
    // SAFETY: the lock is held, and no member is asked.
    unsafe { control().courier.carried.get().write(marked.words()) };
    super::request(Members::NONE.with(member), Request::Queue { signal });
    // The member wrote it before its answer to the request.
    control().courier.answer.load(Ordering::Relaxed)
}

/// Makes a signal that a thread sends to its process one to itself, if it has that open: it comes before the
/// call returns.
#[inline(never)]
pub fn keep_sent(frame: &mut Frame) {
    let signal = frame.call[2];
    if !keeps_set() || me() == 0 || !(1..=64).contains(&signal) || bit(signal) & GIVABLE == 0 {
        return;
    }
    let is_taken = (MASK.load(Ordering::Relaxed) | open_of(0).load(Ordering::Relaxed)) & bit(signal) != 0;
    if is_taken || stops_in(bit(signal)) != 0 {
        return;
    }
    let user = harmless!(nr::GETUID).unwrap_or(0);
    let words = [signal, 0, u64::from(leader()) | user << 32, 0, 0, MARK];
    TOLD.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    let own = u64::from(own_thread());
    frame.call = [nr::TGSIGQUEUEINFO, own, own, signal, TOLD.as_ptr() as u64, 0, 0];
}

/// Handles `rt_sigpending` of a member that is not the leader: those of the process are pending, too.
pub extern "C" fn pending(frame: &mut Frame) -> Then {
    let (mut own, answer) = (0_u64, &helpers::own_job().answer[0]);
    answer.store(0, Ordering::Relaxed);
    let _ = harmless!(nr::SIGPENDING, &raw mut own as u64, 8);
    let call = [nr::SIGPENDING, answer.as_ptr() as u64, 8, 0, 0, 0, 0];
    let _ = helpers::ask(What::Call(call));
    let held = control().courier.held.load(Ordering::Relaxed);
    let all = (own | answer.load(Ordering::Relaxed) | held) & frame.mask;
    frame.rax = user::write_words(frame.call[1], &[all]).map_or_else(Errno::to_result, |()| 0);
    Then::Return
}

// ---- The courier.

const STACK: usize = 16 << 10;

#[repr(align(16))]
struct Stack(UnsafeCell<[u8; STACK]>);

// SAFETY: only the courier uses it.
unsafe impl Sync for Stack {}

static COURIERS: Stack = Stack(UnsafeCell::new([0; STACK]));

/// Returns whether this thread is the courier, by its stack.
pub fn is_courier() -> bool {
    let here = 0_u8;
    let start = COURIERS.0.get() as u64;
    (start..start + STACK as u64).contains(&(&raw const here as u64))
}

/// Makes the courier, in the leader, before the first other member. Signals are blocked. Without it signals
/// to the process are the leader's.
pub fn begin() {
    const SFD_CLOEXEC: u64 = 0x8_0000;
    let none = 0_u64;
    let file = harmless!(nr::SIGNALFD4, u64::MAX, &raw const none as u64, 8, SFD_CLOEXEC);
    let Ok(file) = file.and_then(super::keep_away) else { return };
    FILE.store(file, Ordering::Relaxed);
    let end = COURIERS.0.get() as u64 + STACK as u64;
    // SAFETY: the stack is the courier's, and it stays in the runtime.
    let made = unsafe { entry::spawn_helper(thread::HELPER_FLAGS, end, work) };
    if Errno::from_result(made).is_none() {
        control().courier.thread.store(made as u32, Ordering::Relaxed);
        HAS_COURIER.store(1, Ordering::Relaxed);
    }
}

/// Gives signals.
extern "C" fn work() -> ! {
    sys::block_all();
    let courier = control().courier.words();
    let mut look = 0_u32;
    loop {
        let wake = || super::wake(courier.rests);
        delivery::rest(courier, look, wanted, wake, rest, |value| wait(courier.rests, value, DELAY));
        // The signal of the call, if that was one.
        let _ = take(SIGSTKFLT);
        give_pending();
        look = delivery::end_look(courier.rests, look);
    }
}

/// Returns the signals that some member takes and the leader's thread does not.
fn wanted() -> u64 {
    if thread::is_ending() {
        return 0;
    }
    let leaders = delivery::seen(open_of(0));
    let of_others = members().fold(0, |all, member| all | delivery::seen(open_of(member)));
    let wanted = of_others & !leaders & GIVABLE;
    wanted & !stops_in(wanted)
}

/// Returns the signals of a set that stop the process. One member alone would stop, and answer no request.
fn stops_in(set: u64) -> u64 {
    let stops = |signal: &u64| set & bit(*signal) != 0 && sigaction::is_default(*signal);
    STOPS.into_iter().filter(stops).fold(0, |all, signal| all | bit(signal))
}

/// Returns the members that may get a signal.
fn members() -> impl Iterator<Item = usize> {
    let most = control().most.load(Ordering::SeqCst) as usize;
    let is_thread = |member: &usize| waiting::has_number(&control().members[*member]);
    (1..MOST_MEMBERS.min(most + 1)).filter(is_thread)
}

/// Sleeps until one of these signals is pending in the process, or until a call. If signals are held, it does
/// not sleep long.
fn rest(signals: u64) {
    const POLLIN: u64 = 1;
    let (held, time) = (control().courier.held.load(Ordering::Relaxed), [0, MILLISECOND]);
    let time_at = if held == 0 { 0 } else { time.as_ptr() as u64 };
    // More of a number wait behind one that is held.
    let set = signals & !held | bit(SIGSTKFLT);
    let set_at = &raw const set as u64;
    if signals & !held == 0 {
        let _ = harmless!(nr::SIGTIMEDWAIT, set_at, 0, time_at, 8);
        return;
    }
    let _ = harmless!(nr::SIGNALFD4, file(), set_at, 8, 0);
    let polled = file() | POLLIN << 32;
    let _ = harmless!(nr::PPOLL, &raw const polled as u64, 1, time_at, 0, 8);
}

/// Gives one of each signal that is pending in the process and that a member takes, and of those that are
/// held.
fn give_pending() {
    let (mut pending, wanted) = (0_u64, wanted());
    if wanted != 0 {
        let _ = harmless!(nr::SIGPENDING, &raw mut pending as u64, 8);
    }
    let given = pending & wanted | control().courier.held.load(Ordering::Relaxed);
    for signal in (1..=64).filter(|signal| given & bit(*signal) != 0) {
        super::with_record(|_| {
            let held = take_held(signal);
            if let Some(information) = give(signal, held) {
                hold(signal, information);
            }
        });
    }
}

/// Gives a signal to a member that takes it, or back to the process if it is taken from there. The lock is
/// held, so no member leaves. Returns the signal if there is no room for it.
fn give(signal: u64, mut taken: Option<[u64; WORDS]>) -> Option<[u64; WORDS]> {
    let is_claimed = |member: &usize| delivery::claim(open_of(*member), bit(signal));
    // The one that reads by a descriptor comes last (8).
    let reader = control().signal_files.reader.load(Ordering::Relaxed) as usize;
    let in_turn =
        members().filter(|member| *member != reader).chain(members().filter(|member| *member == reader));
    // Each is asked once: one that begins a handler refuses until its set says so.
    // It may be one that stops the process by now: then the leader alone takes it.
    let is_over = || thread::is_ending() || stops_in(bit(signal)) != 0;
    for member in in_turn.filter(|_| !is_over()).filter(is_claimed) {
        let Some(information) = taken.or_else(|| take(signal).ok()) else {
            // The leader's thread took it.
            delivery::end_claim(open_of(member), None);
            return None;
        };
        match carry(member, signal, information) {
            TAKEN => return None,
            REFUSED => taken = Some(information),
            _ => return Some(information),
        }
    }
    // A thread that waits for it finds it in its process.
    taken.filter(|information| {
        let marked = Information::of(*information).marked(false).words();
        queue_beyond(signal, &marked, nr::SIGQUEUEINFO) == Err(Errno::EAGAIN)
    })
}
