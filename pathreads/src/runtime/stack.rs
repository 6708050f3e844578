//! Stacks of the runtime, for calls that need more than a few hundred bytes.
//!
//! Go's goroutines make system calls with less than a KiB of stack left. So the calls that look at files,
//! make children or execute programs run on a stack of the runtime, with signals blocked. A handler on the
//! program's alternate stack, which may be in use, would overwrite it otherwise: the kernel looks at the
//! stack pointer to see whether it is.
//!
//! A child of `vfork` that executes a program never gives its stack back, although its parent has the same
//! memory. The parent does, by the child's number.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

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

/// The threads that own the stacks. 0 is free.
static OWNER: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];

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
    let thread = harmless!(nr::GETTID).unwrap_or(u64::MAX);
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

/// Gives back the stacks of a thread that does not use them any more.
pub fn give_back(thread: u64) {
    for owner in &OWNER {
        let _ = owner.compare_exchange(thread, 0, Ordering::Release, Ordering::Relaxed);
    }
}

/// Gives back all stacks, in a child that has no other threads.
pub fn give_back_all() {
    OWNER.iter().for_each(|owner| owner.store(0, Ordering::Relaxed));
}
