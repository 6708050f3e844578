//! Members that wait for a thread. A member whose thread ends does not exit at once, because it has page
//! tables, which a new process has not.
//!
//! | `stage` | the member | becomes |
//! |---|---|---|
//! | [`THREAD`] | is a thread of the program | waiting, by itself, under the lock |
//! | [`WAITING`] | waits, and has given up its blocks, but no mappings | claimed, by one that makes a thread, or leaving, both under the lock |
//! | [`CLAIMED`] | waits for the thread that another member prepares | ready, by that member |
//! | [`READY`] | finds its next thread | thread, by itself |
//! | [`LEAVING`] | gives up its mappings under the lock, leaves the table, and exits | |
//!
//! 1. *A waiting member answers requests*, because it has mappings. It leaves after the first one, or after
//!    [`LONGEST_WAIT`], so those that unmap memory do not ask it again and again.
//! 2. *It is no thread of the program.* Signals are sent to another member under the lock, and only to one
//!    that is a thread or ready ([`has_number`]). Those that the ended thread has left are dropped under the
//!    same lock as the member begins to wait. The last thread executes a program, or ends, when those that
//!    wait have left ([`dismiss`]).
//! 3. *A new thread finds the state that its maker would pass on.* Members that have changed what Linux keeps
//!    for a thread do not wait, and do not use one that does ([`note_call`]): its priority, name, CPUs,
//!    timers, children. When a thread changes that for another one, no member waits any more.
//!    Rounding modes are passed on.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

use pathreads::record::MOST_MEMBERS;
use pathreads::{RUNTIME_BASE, RUNTIME_END};

use super::{MILLISECOND, Member, NEVER_BLOCKED, control, locked, me, wait, wake};
use crate::entry::{self, Frame};
use crate::sys::{self, harmless, nr};
use crate::user;

pub const THREAD: u32 = 0;
const WAITING: u32 = 1;
const CLAIMED: u32 = 2;
const READY: u32 = 3;
const LEAVING: u32 = 4;

/// The most members that wait.
const MOST: usize = 4;

/// How long a member waits, in nanoseconds.
const LONGEST_WAIT: u64 = 100 * MILLISECOND;

/// A thread that a member is to become.
#[derive(Clone, Copy)]
pub struct Next {
    /// Its frame, which is its stack.
    pub frame: *mut Frame,
    /// The base of its thread-local memory, or 0.
    pub local: u64,
    /// The word to clear at its end, or 0.
    pub cleared: u64,
    /// The word to write its number to, or 0.
    pub number_at: u64,
    /// The rounding modes, as `stmxcsr` and `fnstcw` have them.
    modes: [u32; 2],
}

/// Whether this member has state that its next thread must not find.
static HAS_STATE: AtomicBool = AtomicBool::new(false);

/// Whether this member has state that the threads which it makes inherit.
static PASSES_STATE: AtomicBool = AtomicBool::new(false);

/// Notes a call, which may change what Linux keeps for a thread. Not inlined, because Go makes calls with
/// little stack.
#[inline(never)]
pub fn note_call(number: u64, first: u64, second: u64) {
    const PR_SET_VMA: u64 = 0x5356_4d41;
    if matches!(number, nr::ALARM | nr::SETITIMER | nr::TIMER_CREATE | nr::PTRACE) {
        note_own_state();
    }
    note_named(number, first, second);
    let passes = matches!(
        number,
        nr::SETPRIORITY
            | nr::SCHED_SETPARAM
            | nr::SCHED_SETSCHEDULER
            | nr::SCHED_SETAFFINITY
            | nr::SCHED_SETATTR
            | nr::IOPRIO_SET
            | nr::PERSONALITY
            | nr::CAPSET
            | nr::SET_MEMPOLICY
            | nr::KEYCTL
            | nr::ADD_KEY
            | nr::REQUEST_KEY
            | nr::IOPL
            | nr::IOPERM
            | nr::PERF_EVENT_OPEN
            | nr::LANDLOCK_RESTRICT_SELF
            | nr::LSM_SET_SELF_ATTR
            | nr::SETUID..=nr::SETGID
            | nr::SETREUID..=nr::SETFSGID
    );
    if changes_rights(number, first) {
        MAKES_OWN.store(true, Ordering::Relaxed);
    }
    let changes_processor = number == nr::ARCH_PRCTL && !ARCH_HARMLESS.contains(&first);
    if passes || changes_processor || number == nr::PRCTL && first != PR_SET_VMA {
        note_passed_state();
    }
}

/// Whether this member has rights that a helper has not, or a helper has more: it makes its own children.
static MAKES_OWN: AtomicBool = AtomicBool::new(false);

/// Returns whether this member makes its own children, which it alone can wait for.
pub fn makes_own_children() -> bool {
    MAKES_OWN.load(Ordering::Relaxed)
}

/// Notes that helpers have this member's rights.
pub fn begin_helpers() {
    MAKES_OWN.store(false, Ordering::Relaxed);
}

/// Returns whether a call changes rights of one thread that its children inherit.
fn changes_rights(number: u64, first: u64) -> bool {
    const PR_SET_KEEPCAPS: u64 = 8;
    const PR_CAPBSET_DROP: u64 = 24;
    const PR_SET_SECUREBITS: u64 = 28;
    const PR_SET_NO_NEW_PRIVS: u64 = 38;
    const PR_CAP_AMBIENT: u64 = 47;
    match number {
        nr::PRCTL => matches!(
            first,
            PR_SET_KEEPCAPS | PR_CAPBSET_DROP | PR_SET_SECUREBITS | PR_SET_NO_NEW_PRIVS | PR_CAP_AMBIENT
        ),
        nr::CAPSET | nr::KEYCTL | nr::PERSONALITY | nr::LANDLOCK_RESTRICT_SELF | nr::LSM_SET_SELF_ATTR => {
            true
        }
        // Between these lie calls that read.
        nr::SETREUID..=nr::SETFSGID => {
            !matches!(number, nr::GETGROUPS | nr::GETRESUID | nr::GETRESGID | nr::GETPGID)
        }
        nr::SETUID..=nr::SETGID => true,
        _ => false,
    }
}

/// The functions of `arch_prctl` that read, and the one that sets the base of thread-local memory. That is
/// set for each thread. Those about shadow stacks are what a C library asks at its start.
const ARCH_HARMLESS: [u64; 8] = [ARCH_SET_FS, 0x1003, 0x1004, 0x1011, 0x1021, 0x1022, 0x3001, 0x5005];

const ARCH_SET_FS: u64 = 0x1002;

/// Notes a call that changes how another thread is scheduled, or several. From then on no member waits: it
/// would pass this on, and a thread that it becomes would not have what its maker has.
fn note_named(number: u64, first: u64, second: u64) {
    const ONE_PROCESS: u64 = 0;
    const ONE_FOR_INPUT: u64 = 1;
    let named = match number {
        nr::SCHED_SETPARAM | nr::SCHED_SETSCHEDULER | nr::SCHED_SETAFFINITY | nr::SCHED_SETATTR => first,
        nr::SETPRIORITY if first == ONE_PROCESS => second,
        nr::IOPRIO_SET if first == ONE_FOR_INPUT => second,
        nr::SETPRIORITY | nr::IOPRIO_SET => u64::MAX,
        _ => return,
    };
    note_state_of(named);
}

/// Notes that a thread changes what Linux keeps for the one with this number, or for itself if that is 0.
pub fn note_state_of(thread: u64) {
    let is_own = thread as u32 == control().members[me()].thread.load(Ordering::Relaxed);
    if thread != 0 && !is_own {
        // Before the change. The flag is read under the lock.
        super::prepare_stack();
        locked(|_| control().is_reuse_over.store(true, Ordering::Relaxed));
    }
}

/// Notes that this member has state that the threads which it makes inherit.
pub fn note_passed_state() {
    note_own_state();
    PASSES_STATE.store(true, Ordering::Relaxed);
}

/// Begins the state of a member that was just made: it has what its maker has passed on.
pub fn begin_new() {
    HAS_STATE.store(PASSES_STATE.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Notes that this member has state of its own, such as children.
pub fn note_own_state() {
    HAS_STATE.store(true, Ordering::Relaxed);
}

/// Returns whether a member is a thread of the program, or is about to be.
pub(super) fn is_thread(member: &Member) -> bool {
    matches!(member.stage.load(Ordering::Relaxed), THREAD | CLAIMED | READY)
}

/// Returns whether a member is the thread that its number names. While it is claimed, the number is still the
/// ended thread's.
pub(super) fn has_number(member: &Member) -> bool {
    matches!(member.stage.load(Ordering::Relaxed), THREAD | READY)
}

/// Has this member wait, if it may. The lock is held, and its thread has ended. It must stand on a stack of
/// the runtime, because others may unmap the thread's.
pub fn begin() -> bool {
    let here = 0_u8;
    let is_runtimes = (RUNTIME_BASE..RUNTIME_END).contains(&(&raw const here as u64));
    let is_waiting = |member: &&Member| member.stage.load(Ordering::Relaxed) == WAITING;
    let may = is_runtimes
        && !HAS_STATE.load(Ordering::Relaxed)
        && control().ending.load(Ordering::Relaxed) == 0
        && !control().is_reuse_over.load(Ordering::Relaxed)
        && control().members.iter().filter(is_waiting).count() < MOST;
    if may {
        control().members[me()].stage.store(WAITING, Ordering::Relaxed);
        // Another member may claim this one as soon as the lock is released, and send signals to its next
        // thread.
        drop_signals();
        super::faults::forget();
    }
    may
}

/// Claims a member that waits. The lock is held.
pub fn claim() -> Option<usize> {
    if PASSES_STATE.load(Ordering::Relaxed) || control().is_reuse_over.load(Ordering::Relaxed) {
        return None;
    }
    (1..MOST_MEMBERS).find(|member| change(*member, WAITING, CLAIMED))
}

fn change(member: usize, from: u32, to: u32) -> bool {
    let stage = &control().members[member].stage;
    stage.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Has a claimed member become a thread. Returns its number.
pub fn hand_over(member: usize, next: Next, parents_word: u64) -> u64 {
    let Member { stage, thread, next: place, .. } = &control().members[member];
    let number = thread.load(Ordering::Relaxed);
    if parents_word != 0 {
        let _ = user::write(parents_word, &number.to_le_bytes());
    }
    // SAFETY: the member is claimed by this one, and reads it when it is ready.
    unsafe { place.get().write(next) };
    // Release pairs with the acquire in `wait_for_next`.
    stage.store(READY, Ordering::Release);
    wake(stage);
    u64::from(number)
}

impl Next {
    /// Makes one with this member's rounding modes.
    pub fn new(frame: *mut Frame, local: u64, cleared: u64, number_at: u64) -> Self {
        Next { frame, local, cleared, number_at, modes: modes() }
    }

    /// Gives this thread the rounding modes and the base of thread-local memory.
    pub fn set_state(&self) {
        set_modes(self.modes);
        if self.local != 0 {
            let _ = harmless!(nr::ARCH_PRCTL, ARCH_SET_FS, self.local);
        }
    }
}

fn modes() -> [u32; 2] {
    let (mut vector, mut stack) = (0_u32, 0_u16);
    // SAFETY: each writes to its place.
    unsafe {
        asm!("stmxcsr [{}]", in(reg) &raw mut vector, options(nostack, preserves_flags));
        asm!("fnstcw [{}]", in(reg) &raw mut stack, options(nostack, preserves_flags));
    }
    [vector, u32::from(stack)]
}

fn set_modes([vector, stack]: [u32; 2]) {
    let stack = stack as u16;
    // SAFETY: the values are those that another member had. The registers are a thread's that has ended.
    unsafe {
        asm!("fninit", options(nostack, preserves_flags));
        asm!("fldcw [{}]", in(reg) &raw const stack, options(nostack, preserves_flags));
        asm!("ldmxcsr [{}]", in(reg) &raw const vector, options(nostack, preserves_flags));
    }
}

/// Waits, and becomes a thread or exits. Signals are blocked, and the stack is the runtime's.
pub fn wait_for_next() -> ! {
    let Member { stage, next, .. } = &control().members[me()];
    loop {
        // Acquire pairs with the release in `hand_over`.
        match stage.load(Ordering::Acquire) {
            WAITING => {
                wait(stage, WAITING, LONGEST_WAIT);
                locked(|_| change(me(), WAITING, LEAVING));
            }
            CLAIMED => wait(stage, CLAIMED, LONGEST_WAIT),
            // SAFETY: the one that claimed this member wrote it before.
            READY => become_thread(unsafe { *next.get() }),
            _ => leave(),
        }
    }
}

fn become_thread(next: Next) -> ! {
    next.set_state();
    control().members[me()].stage.store(THREAD, Ordering::Relaxed);
    super::thread::begin_again(next.cleared);
    // SAFETY: the frame is this thread's.
    super::signals::begin_thread(unsafe { (*next.frame).mask });
    if next.number_at != 0 {
        let _ = user::write(next.number_at, &super::own_thread().to_le_bytes());
    }
    // SAFETY: the frame is this thread's, and nothing of the runtime's stack is used any more.
    unsafe { entry::resume_child(next.frame) }
}

/// Drops the signals that were sent to the thread that has ended. It leaves those by which members work: the
/// kernel would take the signal of a request, too, although it is not blocked.
fn drop_signals() {
    let (dropped, none) = (!NEVER_BLOCKED, [0_u64; 2]);
    let arguments = [&raw const dropped as u64, 0, none.as_ptr() as u64, 8];
    // SAFETY: the kernel reads these words only.
    while unsafe { sys::call(nr::SIGTIMEDWAIT, arguments) }.is_ok() {}
}

fn leave() -> ! {
    locked(super::thread::leave);
    loop {
        let _ = harmless!(nr::EXIT, 0);
    }
}

/// Has all members leave that wait, and returns when they have. Returns whether there were any.
pub fn dismiss() -> bool {
    let is_any = control().members.iter().any(|member| member.stage.load(Ordering::Relaxed) == WAITING);
    if is_any {
        dismiss_all();
    }
    is_any
}

#[inline(never)]
fn dismiss_all() {
    locked(|_| {
        for member in (1..MOST_MEMBERS).filter(|member| change(*member, WAITING, LEAVING)) {
            wake(&control().members[member].stage);
        }
    });
    for Member { stage, thread, .. } in &control().members[1..] {
        while stage.load(Ordering::Relaxed) == LEAVING && thread.load(Ordering::Relaxed) != 0 {
            wait(stage, LEAVING, MILLISECOND);
        }
    }
}
