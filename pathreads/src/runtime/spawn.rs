//! Threads and child processes.
//!
//! A child begins in the runtime: it has its calls dispatched, and then goes on with the program by a
//! frame. Whose memory the frame lies in depends on what is shared:
//!
//! | memory | stack | the child's frame |
//! |---|---|---|
//! | copied | the parent's | the parent's own frame, copied with the memory |
//! | shared or copied | its own | a copy on the child's stack |
//! | shared | the parent's (`vfork`) | a copy on a page for the two: the child overwrites the stack below its own frame, where the parent's lies |
//!
//! All signals are blocked from before the call until each side is about to go on with the program.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use abi::Errno;
use pathreads::slot::RESERVED;

use crate::clone::{
    ARGS, ARGS_CHILD_TID, ARGS_PARENT_TID, ARGS_PIDFD, ARGS_SET_TID, ARGS_SIGNAL, ARGS_STACK,
    ARGS_STACK_SIZE, ARGS_TLS, CLONE_CLEAR_SIGHAND, CLONE_PIDFD, CLONE_VFORK, CLONE_VM, OF_CLONE, SIGNAL,
};
use crate::dispatch::Then;
use crate::entry::{self, FRAME, Frame};
use crate::sys::{self, nr};
use crate::{isolate, patch, pool, sigaction, stack, user};

const SIGCHLD: u64 = 17;

/// The word of a frame that says whether its process has its memory from another one.
const LOAN: usize = 6;

/// The memory for the frame of a `vfork`, and for the runtime's stack until both go on.
const PAGES: u64 = 4 * pathreads::PAGE;

const MOST_SIGNALS: u64 = 64;
/// The size of its first version.
const ARGS_SIZE_0: u64 = 64;

/// Whether dispatching is possible. A filter may forbid it, and Linux before 5.11 does not have it. Without
/// it a call that was not rewritten passes by, so the pool is off.
static DISPATCHES: AtomicBool = AtomicBool::new(true);

/// The option of `prctl` for dispatching, and switching it on.
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const ON: u64 = 1;

/// Has the kernel dispatch this thread's calls, unless they come from the slots or from the runtime.
pub fn dispatch_calls() {
    if !DISPATCHES.load(Ordering::Relaxed) {
        return;
    }
    let first = pathreads::SLOTS_BASE;
    let length = entry::address(&entry::runtime_text_end) - first;
    if sys::harmless!(nr::PRCTL, PR_SET_SYSCALL_USER_DISPATCH, ON, first, length, 0).is_err() {
        DISPATCHES.store(false, Ordering::Relaxed);
        pool::switch_off();
    }
}

/// Whether the program's start is on: 1 if all calls are dispatched but the dynamic linker's own. The kernel
/// reads it at each other call.
pub static IN_START: AtomicU8 = AtomicU8::new(0);

/// Has the kernel dispatch all calls but those from a range, until the first of them. So the dynamic linker
/// loads libraries without the runtime. The runtime must not make a call before that.
pub fn leave_start_to(first: u64, length: u64) {
    let selector = IN_START.as_ptr() as u64;
    if sys::harmless!(nr::PRCTL, PR_SET_SYSCALL_USER_DISPATCH, ON, first, length, selector).is_ok() {
        IN_START.store(1, Ordering::Relaxed);
    }
}

/// Ends the program's start, at the first call that is dispatched.
pub extern "C" fn end_start() {
    IN_START.store(0, Ordering::Relaxed);
    dispatch_calls();
}

/// Has the kernel dispatch no more calls of this thread.
pub fn stop_dispatching() {
    const OFF: u64 = 0;
    let _ = sys::harmless!(nr::PRCTL, PR_SET_SYSCALL_USER_DISPATCH, OFF, 0, 0, 0);
}

/// Returns whether the kernel dispatches calls.
pub fn dispatches() -> bool {
    DISPATCHES.load(Ordering::Relaxed)
}

/// A call that makes a child, in one form for all of them.
struct Clone {
    flags: u64,
    /// The end of the child's stack. 0 means the parent's.
    stack: u64,
    /// The arguments of `clone3`, and how many of their bytes the program gave.
    args: Option<([u64; ARGS], u64)>,
}

impl Clone {
    fn of(frame: &Frame) -> Result<Self, Errno> {
        let [flags, stack, ..] = frame.arguments();
        match frame.call[0] {
            nr::FORK => Ok(Clone { flags: SIGCHLD, stack: 0, args: None }),
            nr::VFORK => Ok(Clone { flags: CLONE_VM | CLONE_VFORK | SIGCHLD, stack: 0, args: None }),
            nr::CLONE3 => Self::of_args(flags, stack),
            _ => Ok(Clone { flags, stack, args: None }),
        }
    }

    fn of_args(address: u64, size: u64) -> Result<Self, Errno> {
        // A longer structure is for a newer kernel.
        if size < ARGS_SIZE_0 || size > size_of::<[u64; ARGS]>() as u64 || !size.is_multiple_of(8) {
            return Err(if size < ARGS_SIZE_0 { Errno::EINVAL } else { Errno::E2BIG });
        }
        let mut args = [0; ARGS];
        user::words_into(address, &mut args[..size as usize / 8])?;
        let (stack, length) = (args[ARGS_STACK], args[ARGS_STACK_SIZE]);
        let end = if stack == 0 { 0 } else { stack.wrapping_add(length) };
        Ok(Clone { flags: args[0], stack: end, args: Some((args, size)) })
    }

    /// Returns what is asked for, for a child in an address space of its own.
    fn child(&self, frame: &Frame, stack: u64) -> Result<isolate::fork::Child, Errno> {
        if self.flags & !KNOWN_FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        if let Some((args, _)) = &self.args
            && (self.flags & SIGNAL != 0 || args[ARGS_SIGNAL] > MOST_SIGNALS || args[ARGS_SET_TID] != 0)
        {
            return Err(Errno::EINVAL);
        }
        Ok(match &self.args {
            Some((args, _)) => isolate::fork::Child {
                flags: self.flags,
                signal: args[ARGS_SIGNAL],
                stack,
                descriptor_at: args[ARGS_PIDFD],
                childs_word: args[ARGS_CHILD_TID],
                parents_word: args[ARGS_PARENT_TID],
                local: args[ARGS_TLS],
            },
            None => isolate::fork::Child {
                flags: self.flags & !SIGNAL,
                signal: self.flags & SIGNAL,
                stack,
                descriptor_at: frame.rdx,
                childs_word: frame.r10,
                parents_word: frame.rdx,
                local: frame.r8,
            },
        })
    }

    fn shares_stack(&self) -> bool {
        self.flags & CLONE_VM != 0 && self.stack == 0
    }
}

/// Handles the calls that make a child.
pub extern "C" fn spawn(frame: &mut Frame) -> Then {
    let mut clone = match Clone::of(frame) {
        Ok(clone) => clone,
        Err(error) => {
            frame.rax = error.to_result();
            return Then::Return;
        }
    };
    if isolate::is_on() && clone.shares_stack() && isolate::is_signal_stack(frame.rsp) {
        // The parent of a `vfork` goes on from another stack, and would lose its handler's by a request.
        clone.flags &= !(CLONE_VM | CLONE_VFORK);
    }
    if clone.flags & (CLONE_VM | CLONE_VFORK) == CLONE_VM {
        patch::begin_threads();
    }
    if isolate::fork::is_sharing() && is_vfork(clone.flags) {
        // It has no child of its own to sleep for: that is its maker's.
        clone.flags &= !(CLONE_VM | CLONE_VFORK);
    }
    if isolate::is_on() && isolate::waiting::makes_own_children() {
        isolate::waiting::note_own_state();
    }
    frame.scratch[0] = clone.flags;
    frame.scratch[5] = 0;
    let is_over = clone.flags & CLONE_VFORK != 0;
    // A child that shares all memory would handle its calls on the stack that its parent stands on.
    let has_own_space =
        isolate::is_on() && is_vfork(clone.flags) && (stack::is_apart() || isolate::thread::has_others());
    frame.rax = match () {
        () if has_own_space => isolated_vfork(frame, &clone),
        () if clone.shares_stack() => share(frame, &clone),
        () => separate(frame, clone),
    };
    if is_over {
        stack::forget_number();
        stack::give_back(frame.rax);
    }
    Then::Return
}

/// Makes a child with a stack of its own, or with a copy of all memory.
fn separate(frame: &mut Frame, mut clone: Clone) -> u64 {
    let stack = if clone.stack == 0 { frame.rsp } else { clone.stack };
    let childs = match clone.stack {
        0 => &raw mut *frame,
        _ => match place_frame(frame, &mut clone) {
            Ok(childs) => childs,
            Err(error) => return error.to_result(),
        },
    };
    if isolate::is_on()
        && let Some(result) = isolated(frame, childs, stack, &clone)
    {
        return result;
    }
    let call = call_of(frame, &mut clone);
    // A copy of the memory must not have the lock that another thread holds.
    let copies = clone.flags & CLONE_VM == 0;
    if copies {
        patch::LOCK.lock();
    }
    // SAFETY: the frame is the child's alone, or will be its copy. All signals are blocked.
    let result = unsafe { entry::spawn_child(childs, &raw const call) };
    if copies {
        patch::LOCK.unlock();
    }
    result
}

/// The flags that `clone` has, and one that only `clone3` has.
const KNOWN_FLAGS: u64 = OF_CLONE | CLONE_CLEAR_SIGHAND;

/// Returns whether a child shares memory while its parent waits.
fn is_vfork(flags: u64) -> bool {
    flags & (CLONE_VM | CLONE_VFORK) == CLONE_VM | CLONE_VFORK
}

/// Makes a child in an address space of its own, unless it shares this one while its parent waits.
fn isolated(frame: &mut Frame, childs: *mut Frame, stack: u64, clone: &Clone) -> Option<u64> {
    if is_vfork(clone.flags) {
        return None;
    }
    let child = clone.child(frame, stack);
    if clone.flags & CLONE_VM == 0 {
        return Some(match child {
            Ok(child) => {
                patch::LOCK.lock();
                let result = isolate::fork::make(frame, &child);
                patch::LOCK.unlock();
                result
            }
            Err(error) => error.to_result(),
        });
    }
    let Ok(isolate::fork::Child { parents_word, childs_word, local, .. }) = child else {
        return Some(Errno::EINVAL.to_result());
    };
    if clone.flags & CLONE_PIDFD != 0 {
        return Some(Errno::EINVAL.to_result());
    }
    let flags = clone.flags;
    let thread = isolate::thread::Thread { flags, stack: childs as u64, parents_word, childs_word, local };
    Some(isolate::thread::make(&thread, childs))
}

/// Makes a child beside other threads, which shares memory while its parent waits.
fn isolated_vfork(frame: &mut Frame, clone: &Clone) -> u64 {
    let stack = if clone.stack == 0 { frame.rsp } else { clone.stack };
    match clone.child(frame, stack) {
        Ok(child) => isolate::fork::share(frame, &child),
        Err(error) => error.to_result(),
    }
}

/// Begins a child in an address space of its own.
fn begin_isolated(frame: &mut Frame, flags: u64) {
    if flags & CLONE_VM == 0 {
        isolate::fork::begin(frame);
    } else {
        isolate::thread::begin();
        isolate::signals::begin_thread(frame.mask);
    }
}

/// Puts a copy of the frame on the child's stack, and makes the call give the child the rest of the stack.
fn place_frame(frame: &Frame, clone: &mut Clone) -> Result<*mut Frame, Errno> {
    let place = (clone.stack - RESERVED - FRAME) & !15;
    let mut copy = frame.clone();
    copy.rsp = clone.stack;
    // SAFETY: the bytes of a frame, which has no padding: it is nothing but words.
    let words = unsafe { core::slice::from_raw_parts((&raw const copy).cast(), FRAME as usize / 8) };
    user::write_words(place, words)?;
    if let Some((args, _)) = &mut clone.args {
        args[ARGS_STACK_SIZE] = place.checked_sub(args[ARGS_STACK]).ok_or(Errno::EINVAL)?;
    }
    clone.stack = place;
    Ok(place as *mut Frame)
}

/// Returns the call to make. It may point into `clone`.
fn call_of(frame: &Frame, clone: &mut Clone) -> [u64; 7] {
    let mut call = frame.call;
    match &clone.args {
        Some((args, size)) => call[1..3].copy_from_slice(&[args.as_ptr() as u64, *size]),
        None if call[0] == nr::CLONE => call[2] = clone.stack,
        None => {}
    }
    call
}

/// Makes a child that shares memory and stack. Returns only if that fails.
fn share(frame: &mut Frame, clone: &Clone) -> u64 {
    let page = match sys::map_zeroes(PAGES) {
        Ok(page) => page,
        Err(error) => return error.to_result(),
    };
    let copy = (page + PAGES - FRAME) as *mut Frame;
    frame.scratch[1] = page;
    frame.scratch[2] = sys::harmless!(nr::GETTID).unwrap_or(0);
    let mut call = frame.call;
    if clone.args.is_some() {
        // The program's structure serves as it is, since nothing is changed in it.
        call[2] = frame.rsi;
    }
    frame.scratch[LOAN] = u64::from(isolate::postponed::lend());
    // SAFETY: the page is new, and large enough.
    unsafe { copy.write(frame.clone()) };
    // SAFETY: the page is for this call alone, and all signals are blocked.
    unsafe { entry::spawn_sharing(copy, &raw const call) }
}

/// Goes on in the child, on the stack at its frame.
pub extern "C" fn in_child(frame: &mut Frame) {
    let flags = frame.scratch[0];
    stack::forget_number();
    let is_sharing = frame.scratch[5] == isolate::fork::IS_SHARING_MARK;
    if is_sharing {
        isolate::fork::begin_sharing();
    } else if isolate::is_on() && !is_vfork(flags) {
        begin_isolated(frame, flags);
    }
    if flags & CLONE_VM == 0 {
        patch::begin_process();
        pool::reservations::begin_process();
    }
    if flags & CLONE_VM == 0 || is_sharing {
        stack::give_back_all();
        // The copy of a lock that was held over the call, or by another thread of the leader.
        patch::LOCK.unlock();
    }
    if flags & CLONE_CLEAR_SIGHAND != 0 {
        sigaction::install();
    }
    dispatch_calls();
    frame.rax = 0;
}

/// Goes on in the parent after a call that shared the stack. With `CLONE_VFORK` the child does not use
/// the memory any more.
pub extern "C" fn in_parent(frame: &mut Frame, result: u64) -> ! {
    frame.rax = result;
    // The child has the same memory, and may have set its own.
    isolate::signals::note(frame.mask);
    let place = ((frame.rsp - RESERVED - FRAME) & !15) as *mut Frame;
    let is_over = frame.scratch[0] & CLONE_VFORK != 0 || Errno::from_result(result).is_some();
    if is_over {
        isolate::postponed::end_loan(frame.scratch[LOAN] != 0);
        // The child may have ended in one.
        isolate::signals::forget_stub();
    }
    let length = if is_over { PAGES } else { 0 };
    stack::forget_number();
    // The child's, if it executed a program, and the one that this thread left.
    stack::give_back(result);
    stack::give_back(frame.scratch[2]);
    // SAFETY: the memory below the program's stack and red zone is free, as it was at the call. Signals
    // are blocked until the frame's mask is set, by the last that is done before the program goes on.
    unsafe {
        place.write(frame.clone());
        entry::leave_page(place, frame.scratch[1], length)
    }
}

/// Makes SIGSYS the runtime's and begins to dispatch calls, at the start of a program.
pub fn begin() {
    sigaction::install();
    sys::unblock(isolate::never_blocked());
    dispatch_calls();
}
