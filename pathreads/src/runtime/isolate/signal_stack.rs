//! The stack on which this member gets signals: the runtime's, or the program's if it has one.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::sys::{Result, harmless, nr};

/// The runtime's stack for signals. Handlers of the program that come in a call, or while memory is
/// faulted in, have their frames here, too. With SA_NODEFER these nest, and a frame has 12 KiB where the
/// processor has AMX. Only what is used has memory.
const STACK: usize = 2 << 20;

#[repr(align(16))]
struct Stack(UnsafeCell<[u8; STACK]>);

// SAFETY: only the kernel uses it, for this member.
unsafe impl Sync for Stack {}

static SIGNAL_STACK: Stack = Stack(UnsafeCell::new([0; STACK]));

/// Whether the program has a stack for signals.
pub static HAS_STACK: AtomicU8 = AtomicU8::new(0);

/// The bounds of the stack for signals, of the runtime or of the program.
pub static OF_SIGNALS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The runtime's stack, as `sigaltstack` takes it.
fn own_stack() -> [u64; 3] {
    [SIGNAL_STACK.0.get() as u64, 0, STACK as u64]
}

/// Has signals of the runtime delivered on a stack of its own.
#[inline(never)]
pub fn begin_stack() {
    let stack = own_stack();
    let _ = harmless!(nr::SIGALTSTACK, stack.as_ptr() as u64, 0);
    note_stack(stack, false);
}

/// Notes which stack the kernel delivers signals on.
pub fn note_stack([start, _, length]: [u64; 3], is_programs: bool) {
    HAS_STACK.store(u8::from(is_programs), Ordering::Relaxed);
    OF_SIGNALS[0].store(start, Ordering::Relaxed);
    OF_SIGNALS[1].store(start.saturating_add(length), Ordering::Relaxed);
}

/// Returns the program's stack for signals, as `sigaltstack` takes it.
pub fn programs_stack() -> Option<[u64; 3]> {
    const SS_ONSTACK: u64 = 1;
    let mut stack = [0_u64; 3];
    let is_programs = HAS_STACK.load(Ordering::Relaxed) != 0;
    let known = is_programs && harmless!(nr::SIGALTSTACK, 0, stack.as_mut_ptr() as u64).is_ok();
    stack[1] &= !SS_ONSTACK;
    known.then_some(stack)
}

/// Has signals delivered on the program's stack.
pub fn take_programs_stack(stack: [u64; 3]) {
    let _ = harmless!(nr::SIGALTSTACK, stack.as_ptr() as u64, 0);
    note_stack(stack, true);
}

/// Returns whether an address of a stack lies on the one for signals. The kernel asks the same.
pub fn is_signal_stack(pointer: u64) -> bool {
    let [start, end] = OF_SIGNALS.each_ref().map(|bound| bound.load(Ordering::Relaxed));
    start < pointer && pointer <= end
}

/// Runs `f`, which makes a member, with the runtime's stack for signals. The member inherits a copy of it,
/// but of the program's it would use the same memory as its maker. A handler on the program's gets an error.
pub fn with_own_stack(f: impl FnOnce() -> u64) -> Result {
    if HAS_STACK.load(Ordering::Relaxed) == 0 {
        return Ok(f());
    }
    let (own, mut programs) = (own_stack(), [0_u64; 3]);
    harmless!(nr::SIGALTSTACK, own.as_ptr() as u64, programs.as_mut_ptr() as u64)?;
    let result = f();
    let _ = harmless!(nr::SIGALTSTACK, programs.as_ptr() as u64, 0);
    Ok(result)
}

/// Returns whether a thread, whose stack's pointer is this, unmaps its stack for signals and goes on.
#[inline(always)]
pub fn is_unmapped(pointer: u64, at: u64, length: u64) -> bool {
    let [start, end] = OF_SIGNALS.each_ref().map(|bound| bound.load(Ordering::Relaxed));
    at < end && start < at.saturating_add(length) && !is_signal_stack(pointer)
}
