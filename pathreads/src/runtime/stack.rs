//! Stacks of the runtime, for calls that need more than a few hundred bytes.
//!
//! Go's goroutines make system calls with less than a KiB of stack left. So the calls that look at files,
//! make children or execute programs run on a stack of the runtime, with signals blocked. A handler on the
//! program's alternate stack, which may be in use, would overwrite it otherwise: the kernel looks at the
//! stack pointer to see whether it is.
//!
//! Under `--isolate` every call comes to the runtime, and Go leaves no room for that. There each thread is a
//! process, so it can have one stack for all its calls ([`FOR_CALLS`]), which it enters before anything is
//! written. A handler that interrupts a call must not use the same memory. Go's handlers have a stack
//! of their own, and calls stay on that. Other programs' handlers may go on on any stack, and stacks of
//! threads are large. So only programs of Go have it.
//!
//! A child of `vfork` that executes a program never gives its stack back, although its parent has the same
//! memory. The parent does, by the child's number.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::dispatch::Then;
use crate::entry::{Frame, call_on};
use crate::isolate;
use crate::sys::{self, harmless, nr};

const SIZE: usize = 32 << 10;
const COUNT: usize = 16;

#[repr(align(16))]
struct Stack(UnsafeCell<[u8; SIZE]>);

// SAFETY: only the owner of a stack uses it.
unsafe impl Sync for Stack {}

static STACK: [Stack; COUNT] = [const { Stack(UnsafeCell::new([0; SIZE])) }; COUNT];

/// The threads that own the stacks, by [`own_number`]. 0 is free.
static OWNER: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];

/// The bytes of the stack for calls.
pub const FOR_CALLS_SIZE: usize = 64 << 10;

#[repr(align(16))]
pub struct StackForCalls(
    #[expect(dead_code, reason = "the assembly in `entry` alone uses it")] UnsafeCell<[u8; FOR_CALLS_SIZE]>,
);

// SAFETY: a process with a stack for calls has one thread that makes any.
unsafe impl Sync for StackForCalls {}

/// The stack on which calls are handled, if [`IS_FOR_CALLS`].
pub static FOR_CALLS: StackForCalls = StackForCalls(UnsafeCell::new([0; FOR_CALLS_SIZE]));

/// Whether calls are handled on a stack of their own.
pub static IS_FOR_CALLS: AtomicU8 = AtomicU8::new(0);

/// Has all calls handled on a stack of their own.
pub fn handle_calls_apart() {
    IS_FOR_CALLS.store(1, Ordering::Relaxed);
}

/// Returns whether calls are handled on a stack of their own.
pub fn is_apart() -> bool {
    IS_FOR_CALLS.load(Ordering::Relaxed) != 0
}

/// Calls `f` on a stack of the runtime with all signals blocked but faults, and notes in the frame which ones
/// were blocked before. If all stacks are taken, it calls `f` on the program's. Under `--isolate` it does so
/// too in a handler on the stack for signals, because a request may come: the kernel would put that signal's
/// frame over the handler's.
pub fn with(frame: &mut Frame, f: extern "C" fn(&mut Frame) -> Then) -> Then {
    frame.mask = sys::set_mask(sys::ALL_BUT_FAULTS);
    if isolate::is_on() && isolate::is_signal_stack(frame.rsp) {
        let then = f(frame);
        sys::set_mask(frame.mask);
        return then;
    }
    let thread = own_number();
    // Acquire pairs with the release in `give_back`.
    let is_taken =
        |owner: &AtomicU64| owner.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let then = match OWNER.iter().position(is_taken) {
        Some(index) => {
            let end = STACK[index].0.get() as u64 + SIZE as u64;
            // SAFETY: the stack is this thread's.
            let then = unsafe { call_on(end, f, frame) };
            OWNER[index].store(0, Ordering::Release);
            then
        }
        None => f(frame),
    };
    sys::set_mask(frame.mask);
    then
}

/// Whether [`with_all`] runs.
static ARE_ALL_IN_USE: AtomicBool = AtomicBool::new(false);

/// Calls `f` on the stack that all stacks are together, so that the frames of many signals have room, with no
/// signal blocked. No handler of the program runs meanwhile, so none of the stacks is in use, and the process
/// has one thread that makes calls.
pub fn with_all(frame: &mut Frame, f: extern "C" fn(&mut Frame) -> Then) -> Then {
    ARE_ALL_IN_USE.store(true, Ordering::Relaxed);
    let end = STACK.as_ptr_range().end as u64;
    // SAFETY: the stacks are this thread's.
    let then = unsafe { call_on(end, f, frame) };
    ARE_ALL_IN_USE.store(false, Ordering::Relaxed);
    then
}

/// This thread's number under `--isolate`, or 0 if it is not known. There a process has one thread that makes
/// calls. A child of `vfork` that has the same memory makes them while that sleeps, and has other stacks.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Returns the number by which this thread owns a stack.
fn own_number() -> u64 {
    let known = NUMBER.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let number = harmless!(nr::GETTID).unwrap_or(u64::MAX);
    if isolate::is_on() {
        NUMBER.store(number, Ordering::Relaxed);
    }
    number
}

/// Forgets this thread's number, because another one has used the same memory, or its copy. It may have been
/// killed on the stacks.
pub fn forget_number() {
    NUMBER.store(0, Ordering::Relaxed);
    ARE_ALL_IN_USE.store(false, Ordering::Relaxed);
}

/// Returns where the stack before ends, on a stack of the runtime.
pub fn left_at() -> Option<u64> {
    let here = 0_u8;
    left_by(&raw const here as u64)
}

/// Returns where the stack before ends, if an address is on a stack of the runtime that is in use.
pub fn left_by(pointer: u64) -> Option<u64> {
    let within = pointer.checked_sub(STACK[0].0.get() as u64)?;
    let is_last = ARE_ALL_IN_USE.load(Ordering::Relaxed);
    let stack =
        STACK.get(within as usize / SIZE).map(|stack| if is_last { &STACK[COUNT - 1] } else { stack });
    let end = stack?.0.get() as u64 + SIZE as u64;
    // SAFETY: `call_on` wrote it to the first word of this stack, which is in use.
    Some(unsafe { *((end - 8) as *const u64) })
}

/// Gives back the stacks of a thread that does not use them any more.
pub fn give_back(thread: u64) {
    for owner in &OWNER {
        let _ = owner.compare_exchange(thread, 0, Ordering::Release, Ordering::Relaxed);
    }
}

/// Gives back all stacks, in a child that has no other threads.
pub fn give_back_all() {
    ARE_ALL_IN_USE.store(false, Ordering::Relaxed);
    OWNER.iter().for_each(|owner| owner.store(0, Ordering::Relaxed));
}
