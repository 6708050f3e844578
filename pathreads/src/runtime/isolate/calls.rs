//! System calls under `--isolate`: which are done here, and what memory the kernel needs for the others.
//!
//! | call | what is done |
//! |---|---|
//! | `mmap` and others about memory | `memory` |
//! | `futex` | made one of memory that processes share |
//! | `getpid`, `tgkill` and others with numbers | the program is one process |
//! | `getppid` | the parent is that of the leader's process |
//! | `process_vm_readv` and `process_vm_writev` of the program itself | of the calling thread |
//! | `set_tid_address`, `exit`, `exit_group`, `execve` | `thread` |
//! | `wait4`, `waitid` | children are the leader's (`wait`) |
//! | `setpgid` of a child | made by the leader's process |
//! | `setpgid`, `setsid` and `getpgid` of the program, limits | all members have the same (`whole`) |
//! | `alarm`, and `setitimer` and `getitimer` of real time | made by the leader's process |
//! | `setitimer` and `getitimer` of processor time | of all members, by a thread of the leader (`cpu_timers`) |
//! | `clock_gettime` and others of the program's time on processors | of all members (`cpu_clocks`) |
//! | `timer_create` and others about timers | made by the leader's process, or that of the thread the timer is for (`timers`) |
//! | `rt_sigprocmask`, and calls that wait with a set of signals | the set is noted: signals to the process are given (`signals`) |
//! | `rt_sigpending` | signals to the process are the leader's process's |
//! | `signalfd`, and calls that read from it or wait for it | the member gets signals to the process (`signal_files`) |
//! | `kill` of the program by itself, also by a thread's number | a signal to the calling thread, if that has it open and the leader does not |
//! | `rt_sigqueueinfo` to a thread's number | to the leader's |
//! | `membarrier` | reaches all members (`barriers`) |
//! | `sigaltstack` | the kernel knows the runtime's stack while the program has none |
//! | `close`, `dup2`, `close_range` | the runtime's descriptors stay |
//! | `rseq` | refused, as on Linux before 4.18: a member would have its parent's |
//! | some more | refused by name |
//!
//! Calls whose memory is plain (`pathreads::pointers`) first have that mapped. All others have all regions
//! mapped.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use abi::Errno;
use pathreads::RUNTIME_BASE;
use pathreads::pointers::{self, Memory};
use pathreads::refused::{self, Refusal};

use super::{
    HAS_STACK, addresses, barriers, begin_stack, blocks, control, cpu_clocks, cpu_timers, helpers, lacks,
    locked, memory, own, refuse, signal_files, signals, stale, sync, thread, timers, touch, waiting, whole,
};
use crate::dispatch::Then;
use crate::entry::{self, Frame};
use crate::sys::{self, PROT_READ, Result, harmless, nr};
use crate::{stack, user};

/// Does a call, or prepares for it. Returns `None` if it goes on as without `--isolate`. Inlined, because Go
/// makes calls with little stack.
#[inline(always)]
pub fn handle(frame: &mut Frame) -> Option<Then> {
    let [number, a, b, c, ..] = frame.call;
    let result = match number {
        nr::MUNMAP if frame.rsp.wrapping_sub(a) <= b => thread::unmap_at_end(a, b),
        nr::MMAP | nr::MUNMAP | nr::MPROTECT => {
            return if own::serve(frame) {
                Some(Then::Return)
            } else {
                Some(stack::with(frame, memory::call))
            };
        }
        nr::MREMAP | nr::BRK | nr::MADVISE | nr::MSYNC | nr::MLOCK | nr::MUNLOCK | nr::MLOCK2 => {
            return Some(stack::with(frame, memory::call));
        }
        nr::MINCORE => {
            touch(c, b / pathreads::PAGE + 1);
            return Some(stack::with(frame, memory::call));
        }
        nr::MBIND => {
            sync();
            return Some(stack::with(frame, memory::call));
        }
        nr::FUTEX => {
            preparing(frame, prepare_futex);
            return Some(Then::Perform);
        }
        nr::READ | nr::WRITE | nr::PREAD | nr::PWRITE => {
            preparing(frame, |frame| {
                touch(frame.call[2], frame.call[3]);
                signal_files::prepare(&frame.call);
            });
            return Some(Then::Perform);
        }
        nr::SIGNALFD | nr::SIGNALFD4 => {
            preparing(frame, prepare);
            signal_files::make(frame)
        }
        nr::GETPID => Ok(thread::process()),
        nr::GETPPID if !helpers::is_alone() => return Some(stack::with(frame, thread::ask_for_parent)),
        nr::GETPPID => Ok(thread::parent()),
        nr::PROCESS_VM_READV | nr::PROCESS_VM_WRITEV if super::member_of(a).is_some() => {
            // This member has all mapped that it names, and the named one may lack some.
            frame.call[1] = u64::from(super::own_thread());
            preparing(frame, prepare);
            return Some(Then::Perform);
        }
        nr::TGKILL | nr::TGSIGQUEUEINFO
            if a == u64::from(super::leader()) && super::member_of(b).is_some() =>
        {
            sync();
            frame.call[1] = b;
            return Some(send(frame, b));
        }
        nr::KILL if a == u64::from(super::leader()) || super::is_thread(a) => {
            // Linux takes each thread's number for the process.
            frame.call[1] = u64::from(super::leader());
            signals::keep_sent(frame);
            return Some(Then::Perform);
        }
        nr::SIGQUEUEINFO if super::is_thread(a) => {
            frame.call[1] = u64::from(super::leader());
            preparing(frame, prepare);
            return Some(Then::Perform);
        }
        nr::TKILL | nr::KILL => return Some(send(frame, a)),
        nr::SIGPROCMASK => {
            begin_preparing(frame);
            prepare(frame);
            // The mark stays, as below: a handler that comes before the call is made notes the old mask.
            signals::note_call(frame);
            return None;
        }
        nr::SIGTIMEDWAIT | nr::SIGSUSPEND | nr::PPOLL | nr::PSELECT6 | nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => {
            begin_preparing(frame);
            prepare(frame);
            // The mark stays until the call is made: what is noted here holds for no other.
            signals::begin_wait(frame);
            return None;
        }
        nr::SIGPENDING if b == 8 && !helpers::is_alone() => {
            touch(a, 8);
            return Some(stack::with(frame, signals::pending));
        }
        nr::ALARM | nr::SETITIMER | nr::GETITIMER if !helpers::is_alone() && is_real_timer(number, a) => {
            prepare_timer(frame);
            return Some(stack::with(frame, set_timer));
        }
        nr::SETITIMER | nr::GETITIMER if cpu_timers::is_handled(a) => {
            prepare_timer(frame);
            return Some(stack::with(frame, cpu_timers::handle));
        }
        nr::CLOCK_GETTIME | nr::CLOCK_GETRES | nr::GETRUSAGE | nr::TIMES
            if cpu_clocks::is_handled(number, a) =>
        {
            preparing(frame, prepare);
            return Some(stack::with(frame, cpu_clocks::handle));
        }
        nr::TIMER_CREATE
        | nr::TIMER_SETTIME
        | nr::TIMER_GETTIME
        | nr::TIMER_GETOVERRUN
        | nr::TIMER_DELETE
            if timers::is_handled(frame) =>
        {
            return Some(stack::with(frame, timers::handle));
        }
        nr::SET_TID_ADDRESS => Ok(thread::set_cleared(a)),
        nr::EXIT => return Some(stack::with(frame, thread::exit)),
        nr::EXIT_GROUP => return Some(stack::with(frame, thread::exit_all)),
        nr::EXECVE | nr::EXECVEAT => {
            sync();
            return if thread::may_execute() { None } else { Some(stack::with(frame, thread::execute)) };
        }
        nr::WAIT4 | nr::WAITID if !helpers::is_alone() => {
            return Some(stack::with(frame, super::wait::handle));
        }
        nr::WAIT4 | nr::WAITID if super::me() == 0 && !super::fork::is_sharing() => {
            super::wait::leave_members(frame);
            preparing(frame, prepare);
            return Some(Then::Perform);
        }
        nr::SIGALTSTACK => exchange_stack(a, b),
        nr::GETPGRP | nr::GETPGID | nr::GETSID if whole::is_programs(number, a) => whole::group(number),
        nr::SETPGID | nr::SETSID if whole::is_programs(number, a) => {
            return Some(stack::with(frame, whole::move_to_group));
        }
        nr::SETPGID if a != 0 && !helpers::is_alone() => {
            return Some(stack::with(frame, helpers::make_call));
        }
        nr::SCHED_YIELD | nr::GETTID | nr::FSYNC | nr::LSEEK => {
            return Some(Then::Perform);
        }
        nr::SETRLIMIT | nr::PRLIMIT64 => {
            sync();
            touch(frame.call[4], 16);
            return Some(stack::with(frame, whole::set_limit));
        }
        nr::CLOSE | nr::DUP2 | nr::DUP3 => return keep_descriptors(frame),
        nr::CLOSE_RANGE => return close_range(frame),
        nr::MEMBARRIER => barriers::membarrier(a, b),
        _ => match refused(number, a).map(Err).or_else(|| signal_files::copy_anywhere(&frame.call)) {
            Some(result) => result,
            None => {
                waiting::note_call(number, a, b);
                blocks::note_call(frame.call);
                preparing(frame, prepare);
                return None;
            }
        },
    };
    frame.rax = result.unwrap_or_else(Errno::to_result);
    Some(Then::Return)
}

/// Sends a signal. To another member it is sent under the lock, where that neither ends its thread nor
/// becomes the next one. Not inlined, because Go makes calls with little stack.
#[inline(never)]
fn send(frame: &mut Frame, thread: u64) -> Then {
    if matches!(super::member_of(thread), None | Some(0)) || thread == u64::from(super::own_thread()) {
        return Then::Perform;
    }
    super::prepare_stack();
    let [number, a, b, c, d, ..] = frame.call;
    let sent =
        locked(|_| if super::is_thread(thread) { harmless!(number, a, b, c, d) } else { Err(Errno::ESRCH) });
    frame.rax = sent.unwrap_or_else(Errno::to_result);
    Then::Return
}

/// The frame of a call that is being prepared, or 0. `deliver` in `entry` takes it before it shows a handler
/// the program, so no other handler that comes meanwhile uses it.
pub static PREPARED: AtomicU64 = AtomicU64::new(0);

/// Begins to prepare for a call, which a handler begins anew from now on.
#[inline(always)]
fn begin_preparing(frame: &Frame) {
    PREPARED.store(&raw const *frame as u64, Ordering::Relaxed);
    // A handler of this thread sees the mark from before until after.
    compiler_fence(Ordering::SeqCst);
}

/// Runs `f`, which prepares for a call and can be run again.
#[inline(always)]
fn preparing(frame: &mut Frame, f: impl FnOnce(&mut Frame)) {
    begin_preparing(frame);
    f(frame);
    compiler_fence(Ordering::SeqCst);
    PREPARED.store(0, Ordering::Relaxed);
}

/// Whether a request has come since this thread's last call was prepared. The assembly in `entry` looks at it
/// right before the call.
pub static IS_ASKED: AtomicU32 = AtomicU32::new(0);

/// Forgets the requests that came before a call.
#[inline(always)]
pub fn begin_call() {
    IS_ASKED.store(0, Ordering::Relaxed);
    // The handler of a request sets the mark while the memory is mapped, or later.
    compiler_fence(Ordering::SeqCst);
    stale::begin_call();
    lacks::forget();
}

/// Prepares for a call once more, as it is: a request has interrupted it, or came between.
pub extern "C" fn prepare_again(frame: &mut Frame) {
    signals::pass_unread_on();
    begin_call();
    lacks::looking(|| prepare_anew(frame));
}

fn prepare_anew(frame: &mut Frame) {
    let [number, a, b, c, ..] = frame.call;
    match number {
        nr::FUTEX => prepare_futex_again(frame),
        nr::READ | nr::WRITE | nr::PREAD | nr::PWRITE => touch(b, c),
        nr::MADVISE | nr::MSYNC | nr::MLOCK | nr::MLOCK2 => touch(a, b),
        nr::CLOSE | nr::DUP2 | nr::DUP3 | nr::CLOSE_RANGE => {}
        nr::SCHED_YIELD | nr::GETTID | nr::FSYNC | nr::LSEEK => {}
        // The call reads signals by a descriptor, or has lost them to a later one: if it took them again, two
        // that wait would interrupt each other for ever.
        _ => prepare_memory(frame),
    }
}

/// Returns whether a signal interrupts a call here in the runtime while that is being prepared. The program
/// makes the call again after the handler, which sees the program at its call: a thread that is cancelled
/// unwinds from there.
pub fn is_preparing(rip: u64) -> bool {
    (RUNTIME_BASE..entry::address(&entry::runtime_text_end)).contains(&rip)
}

/// Puts a mark back that `deliver` has taken, where the preparation goes on.
pub fn go_on_preparing(prepared: u64) {
    PREPARED.store(prepared, Ordering::Relaxed);
}

/// Prepares for a call for the first time.
#[inline(always)]
fn prepare(frame: &mut Frame) {
    prepare_memory(frame);
    signal_files::prepare(&frame.call);
}

/// Has the memory mapped that a call names. It is not inlined, because Go makes calls with little stack.
#[inline(never)]
fn prepare_memory(frame: &mut Frame) {
    let Some(named) = pointers::of(frame.call[0], frame.call[2]) else {
        return match frame.call[0] {
            nr::CLONE | nr::CLONE3 | nr::FORK | nr::VFORK => {
                sync();
                touch_words_of_clone(frame);
            }
            _ => super::sync_to_write(&frame.call),
        };
    };
    for memory in named {
        let (start, length) = memory.range(&frame.call);
        // `fcntl` and others also take numbers there.
        if start < LOWEST {
            continue;
        }
        touch(start, length);
        match memory {
            Memory::Vectors(..) => touch_vectors(start, length / pointers::VECTOR),
            Memory::Message(_) => _ = touch_message(start),
            Memory::Messages(..) => touch_messages(start, length / pointers::MESSAGE_OF_MANY),
            _ => {}
        }
    }
    if matches!(frame.call[0], nr::PROCESS_VM_READV | nr::PROCESS_VM_WRITEV) {
        touch_remote(frame);
    }
}

/// Has the memory mapped that the list of the other process names in `process_vm_readv`, if that is this one.
#[inline(never)]
fn touch_remote(frame: &Frame) {
    let [_, process, _, _, remote, count, _] = frame.call;
    if process == u64::from(super::own_thread()) {
        touch_vectors(remote, count.min(pointers::MOST_VECTORS));
    }
}

/// No memory of a program lies below this address.
pub const LOWEST: u64 = 1 << 16;

/// Has the words mapped where `clone` and `clone3` write numbers.
#[inline(never)]
fn touch_words_of_clone(frame: &Frame) {
    const WORDS_OF_ARGUMENTS: usize = 4;
    let [number, first, _, parents, childs, ..] = frame.call;
    let words = match number {
        nr::CLONE => [0, parents, childs],
        // `struct clone_args` begins with the flags, and these addresses.
        nr::CLONE3 => match user::words::<WORDS_OF_ARGUMENTS>(first) {
            Ok([_, descriptor, childs, parents]) => [descriptor, childs, parents],
            Err(_) => return,
        },
        _ => return,
    };
    words.into_iter().filter(|word| *word >= LOWEST).for_each(|word| touch(word, 4));
}

/// Has the memory mapped that an array of `iovec` names. A wrong address is left to the kernel.
#[inline(never)]
fn touch_vectors(start: u64, count: u64) {
    for at in (0..count).map(|index| start.wrapping_add(index * pointers::VECTOR)) {
        let Ok([base, length]) = user::words(at) else { return };
        touch(base, length);
    }
}

/// Does this for the messages of `recvmmsg`, of which there may be fewer.
#[inline(never)]
fn touch_messages(start: u64, count: u64) {
    let mut all = (0..count).map(|index| start.wrapping_add(index * pointers::MESSAGE_OF_MANY));
    while all.next().is_some_and(touch_message) {}
}

/// Does this for a `msghdr`. Returns whether that is there.
#[inline(never)]
fn touch_message(start: u64) -> bool {
    let Ok([name, name_length, vectors, count, control, control_length]) = user::words(start) else {
        return false;
    };
    touch(name, name_length & 0xffff_ffff);
    touch(vectors, count.min(pointers::MOST_VECTORS) * pointers::VECTOR);
    touch_vectors(vectors, count.min(pointers::MOST_VECTORS));
    touch(control, control_length);
    true
}

/// Returns the error of a call that cannot be right, and says why. It is not inlined, because Go makes calls
/// with little stack.
#[inline(never)]
fn refused(number: u64, first: u64) -> Option<Errno> {
    let (name, is_meant) = match refused::of(number)? {
        Refusal::Absent => return Some(Errno::ENOSYS),
        Refusal::Unknown => return Some(refuse_unknown(number)),
        Refusal::Named(name) => (name, true),
        Refusal::WithThreads(name) => (name, !super::fork::is_sharing() && thread::has_others()),
        Refusal::Sometimes(name) => (name, is_refused(number, first)),
    };
    is_meant.then(|| refuse(name.as_bytes()))
}

/// Returns the error of a call that this runtime does not know, and says its number.
fn refuse_unknown(number: u64) -> Errno {
    let mut digits = [0; 20];
    sys::say(&[b"pathreads: --isolate does not know system call ", sys::decimal(number, &mut digits), b"\n"]);
    Errno::ENOSYS
}

/// Returns whether a call is refused that works with other values of its first argument.
fn is_refused(number: u64, first: u64) -> bool {
    const PTRACE_TRACEME: u64 = 0;
    const PR_SET_SECCOMP: u64 = 22;
    match number {
        nr::PTRACE => first != PTRACE_TRACEME,
        nr::PRCTL => first == PR_SET_SECCOMP,
        _ => true,
    }
}

/// The words of memory for a futex's frame that are a copy of its time. Linux reads that once.
const TIME: usize = 4;

/// The word of memory for a futex's frame that says whether the call has slept before.
const SLEPT: usize = 6;

/// The offset of that word, which the assembly in `entry` reads.
pub const SLEPT_AT: usize = SLEPT * size_of::<u64>();

/// The word of memory for a futex's frame that has the value of the word for gone memory as the wait began.
const SEEN: usize = 0;

/// The number of words for futexes in memory that has gone.
const MOST_GONE: usize = 1024;

/// The words at which threads sleep whose own memory has gone, in the control area. A word counts the calls
/// that wake there, so one that comes before its thread sleeps there is not lost.
pub struct Gone([AtomicU32; MOST_GONE]);

fn gone(word: u64) -> &'static AtomicU32 {
    &control().gone.0[word as usize / size_of::<u32>() % MOST_GONE]
}

/// Has a call that wakes sleepers in memory which has gone wake them where they sleep then. Linux looks at
/// the address alone, for futexes of one process.
#[inline(never)]
fn wake_gone(frame: &mut Frame) {
    let word = frame.call[1];
    if user::read(word, &mut [0; 4]).is_err() && word.is_multiple_of(4) && word < addresses::END {
        let gone = gone(word);
        // Release: a thread that finds it counted does not sleep.
        gone.fetch_add(1, Ordering::Release);
        // All, because others may sleep at this word.
        (frame.call[1], frame.call[3]) = (gone.as_ptr() as u64, i32::MAX as u64);
    }
}

/// A futex at which no thread sleeps.
static UNUSED: AtomicU32 = AtomicU32::new(0);

/// Makes a futex one of shared memory again. On Linux a thread that sleeps does so when the memory has gone.
#[inline(never)]
fn prepare_futex_again(frame: &mut Frame) {
    if frame.again == 0 {
        // It may have slept elsewhere meanwhile.
        let [word, operation, value, time, other, set] = frame.arguments();
        let kept = &raw const frame.scratch[TIME] as u64;
        let time = if frame.call[4] == kept { kept } else { time };
        frame.call[1..].copy_from_slice(&[word, operation, value, time, other, set]);
    }
    let was_interrupted = frame.rax == Errno::EINTR.to_result() || frame.rax == entry::RESTARTED;
    let (has_slept, seen) = (frame.scratch[SLEPT] != 0 || was_interrupted, frame.scratch[SEEN]);
    prepare_futex(frame);
    frame.scratch[SEEN] = seen;
    let [_, word, operation, ..] = frame.call;
    if !waits(frame, operation) || !has_slept {
        return;
    }
    frame.scratch[SLEPT] = 1;
    let is_gone = lacks::is_noted() && !is_readable(word);
    // Also if there is memory again: it may have been woken before. Acquire pairs with the release in
    // `wake_gone`.
    let is_woken = u64::from(gone(word).load(Ordering::Acquire)) != seen;
    if is_woken || control().has_requeued.load(Ordering::Relaxed) {
        // It may have slept at another word, where the wake-up comes, or has come. Instead of a second wait,
        // a call that returns 0 at once: programs expect wake-ups without a cause.
        frame.call[1..4].copy_from_slice(&[UNUSED.as_ptr() as u64, FUTEX_WAKE, 0]);
    } else if is_gone {
        // When there is memory again, the thread is asked (`lacks`), and looks at that. If it is woken before
        // it sleeps here, the call fails, and `entry` says that it was woken.
        (frame.call[1], frame.call[3]) = (gone(word).as_ptr() as u64, seen);
    }
}

/// Returns the result of a call that has returned as a handler is shown it, or `None` if the call is made
/// again: its memory was not there for a moment. `entry` decides the same. A wait that has slept, and finds
/// another value when it is made again, was woken.
pub fn result_for_handler(frame: &Frame, result: u64) -> Option<u64> {
    if result == Errno::EFAULT.to_result() && IS_ASKED.load(Ordering::Relaxed) != 0 {
        return None;
    }
    let has_slept = super::is_on() && frame.call[0] == nr::FUTEX && frame.scratch[SLEPT] != 0;
    Some(if has_slept && result == Errno::EAGAIN.to_result() { 0 } else { result })
}

const FUTEX_WAKE: u64 = 1;
const FUTEX_WAKE_BITSET: u64 = 10;

/// Returns whether a futex's frame is a call of the program that waits.
fn waits(frame: &Frame, operation: u64) -> bool {
    const WAIT: u64 = 0;
    const WAIT_BITSET: u64 = 9;
    frame.again == 0 && matches!(operation & 0x7f, WAIT | WAIT_BITSET)
}

/// Returns whether the program may read at an address.
fn is_readable(address: u64) -> bool {
    super::prepare_stack();
    locked(|record| {
        record.at(address).is_some_and(|region| region.rights & PROT_READ != 0 && blocks::is_open(region))
    })
}

/// Makes a futex one of shared memory: members have no other.
fn prepare_futex(frame: &mut Frame) {
    frame.scratch[SLEPT] = 0;
    const PRIVATE: u64 = 128;
    const PRIORITIES: core::ops::RangeInclusive<u64> = 6..=8;
    const REQUEUE: core::ops::RangeInclusive<u64> = 3..=5;
    let [_, word, operation, _, time, other, _] = frame.call;
    let is_private = operation & PRIVATE != 0;
    let operation = operation & !PRIVATE;
    frame.call[2] = operation;
    if waits(frame, operation) {
        frame.scratch[SEEN] = u64::from(gone(word).load(Ordering::Acquire));
    }
    if PRIORITIES.contains(&(operation & 0x7f)) || operation & 0x7f > 10 {
        // The kernel keeps what a thread owns.
        waiting::note_own_state();
    }
    touch(word, 4);
    if is_private && matches!(operation, FUTEX_WAKE | FUTEX_WAKE_BITSET) {
        wake_gone(frame);
    }
    if REQUEUE.contains(&(operation & 0x7f)) || operation & 0x7f > 10 {
        // Relaxed: the thread that is moved sees it when a request has interrupted it, after that.
        control().has_requeued.store(true, Ordering::Relaxed);
        touch(other, 4);
    }
    if time > pathreads::PAGE {
        touch(time, 16);
    }
    let kept = &raw const frame.scratch[TIME] as u64;
    if waits(frame, operation)
        && ![0, kept].contains(&time)
        && let Ok(words) = user::words::<2>(time)
    {
        frame.scratch[TIME..TIME + 2].copy_from_slice(&words);
        frame.call[4] = kept;
    }
}

/// Handles `sigaltstack`. A handler that comes between finds the stack that the kernel uses. Not inlined,
/// because Go makes calls with little stack.
#[inline(never)]
fn exchange_stack(new: u64, old: u64) -> Result {
    sys::with_signals_blocked(|| exchange_blocked(new, old))
}

fn exchange_blocked(new: u64, old: u64) -> Result {
    const SS_DISABLE: u64 = 2;
    sync();
    touch(old, 24);
    let wanted = if new == 0 { None } else { Some(user::words::<3>(new)?) };
    let mut kernels = [0, SS_DISABLE, 0];
    if HAS_STACK.load(Ordering::Relaxed) != 0 {
        harmless!(nr::SIGALTSTACK, 0, kernels.as_mut_ptr() as u64)?;
    }
    match wanted {
        Some([_, flags, _]) if flags & SS_DISABLE != 0 => begin_stack(),
        Some(stack) => {
            super::prepare_stack();
            // No snapshot is made between: the kernel writes frames there from now on.
            locked(|record| {
                super::bring(record, stack[0], stack[0].saturating_add(stack[2]));
                harmless!(nr::SIGALTSTACK, stack.as_ptr() as u64, 0)?;
                super::note_stack(stack, true);
                Ok(())
            })?;
        }
        None => {}
    }
    if old != 0 {
        user::write_words(old, &kernels)?;
    }
    Ok(0)
}

/// Returns whether a call is about the timer whose SIGALRM is the process's. The others measure a process.
fn is_real_timer(number: u64, which: u64) -> bool {
    const ITIMER_REAL: u32 = 0;
    number == nr::ALARM || which as u32 == ITIMER_REAL
}

/// Has the memory mapped that such a call names.
fn prepare_timer(frame: &mut Frame) {
    if frame.call[0] != nr::ALARM {
        prepare(frame);
    }
}

/// Sets or reads the timer of the leader's process.
extern "C" fn set_timer(frame: &mut Frame) -> Then {
    frame.rax = exchange_timer(&frame.call).unwrap_or_else(Errno::to_result);
    Then::Return
}

fn exchange_timer(&[number, a, b, c, ..]: &[u64; 7]) -> Result {
    const WORDS: usize = 4;
    if number == nr::ALARM {
        return helpers::ask(helpers::What::Call([number, a, 0, 0, 0, 0, 0]));
    }
    let job = helpers::own_job();
    let (new_at, old_at) = if number == nr::SETITIMER { (b, c) } else { (0, b) };
    let new = if new_at == 0 { [0; WORDS] } else { user::words::<WORDS>(new_at)? };
    job.answer.iter().zip(new).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    let (new, old) = (job.answer_at(0), job.answer_at(WORDS));
    let call =
        if number == nr::SETITIMER { [number, a, new, old, 0, 0, 0] } else { [number, a, old, 0, 0, 0, 0] };
    helpers::ask(helpers::What::Call(call))?;
    if old_at != 0 || number == nr::GETITIMER {
        let words: [u64; WORDS] =
            core::array::from_fn(|word| job.answer[WORDS + word].load(Ordering::Relaxed));
        user::write_words(old_at, &words)?;
    }
    Ok(0)
}

/// Keeps the program from closing what the runtime needs.
fn keep_descriptors(frame: &mut Frame) -> Option<Then> {
    let [number, a, b, ..] = frame.call;
    let named = u64::from(if number == nr::CLOSE { a as u32 } else { b as u32 });
    if super::kept_in(named, named).is_none() {
        match number {
            nr::CLOSE => signal_files::close(named, named),
            _ => signal_files::copy(&frame.call),
        }
        return Some(Then::Perform);
    }
    frame.rax = Errno::EBADF.to_result();
    Some(Then::Return)
}

/// Closes a range of descriptors, part by part between the runtime's. Those are closed by `execve`, or end
/// with the process. It is not inlined, because Go makes calls with little stack.
#[inline(never)]
fn close_range(frame: &mut Frame) -> Option<Then> {
    const UNSHARE: u64 = 2;
    const CLOEXEC: u64 = 4;
    let [number, a, b, flags, ..] = frame.call;
    let (mut first, last) = (u64::from(a as u32), u64::from(b as u32));
    if flags & CLOEXEC != 0 {
        return Some(Then::Perform);
    }
    // With other flags the call fails.
    if flags & !UNSHARE == 0 {
        signal_files::close(first, last);
    }
    while let Some(kept) = super::kept_in(first, last) {
        let below = if first < kept { harmless!(number, first, kept - 1, flags) } else { Ok(0) };
        first = kept + 1;
        frame.call[1] = first;
        if below.is_err() || first > last {
            frame.rax = below.unwrap_or_else(Errno::to_result);
            return Some(Then::Return);
        }
    }
    Some(Then::Perform)
}
