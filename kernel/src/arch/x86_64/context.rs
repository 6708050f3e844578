//! Kernel stacks and switching between them.

use core::arch::naked_asm;

use super::frame::TrapFrame;
use super::percpu;
pub use super::stack::KernelStack;

/// A task that is not running: the position in its kernel stack.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    rsp: u64,
    /// The address from which traps from user mode push, or 0 for a context that never runs in user mode.
    stack_top: u64,
}

impl Context {
    /// Returns the context of a flow that runs on `stack` (`None`: a core's boot and idle flow). It is filled
    /// when it is switched away from.
    pub fn on_stack(stack: Option<&KernelStack>) -> Self {
        Self { rsp: 0, stack_top: stack.map_or(0, KernelStack::top) }
    }
}

/// The values that `switch` pops: callee-saved registers and the address to return to.
#[repr(C)]
struct Switched {
    saved: [u64; 6],
    return_to: u64,
}

/// Creates a context whose first [`switch`] calls `Handlers::first_return`, then goes to user mode with
/// `frame`.
pub fn new_user_thread(stack: &KernelStack, frame: TrapFrame) -> Context {
    let top = stack.top();
    let frame_at = top - size_of::<TrapFrame>() as u64;
    let rsp = frame_at - size_of::<Switched>() as u64;
    let switched = Switched { saved: [0; 6], return_to: super::entry::thread_start as *const () as u64 };
    // SAFETY: the caller's stack is not in use, and both values fit below its top.
    unsafe {
        (frame_at as *mut TrapFrame).write(frame);
        (rsp as *mut Switched).write(switched);
    }
    Context { rsp, stack_top: top }
}

/// Saves the running context in `from` and resumes `to`. Returns when `from` is switched back to, perhaps on
/// another core. The symbol lets external tools count switches.
///
/// # Safety
/// Interrupts are off. `to` was made by [`new_user_thread`] or by an earlier switch away, its stack is alive
/// and no other core switches to it. `from` stays valid until it is switched to.
#[unsafe(export_name = "switch_context")]
#[unsafe(naked)]
pub unsafe extern "sysv64" fn switch(from: *mut Context, to: *const Context) {
    naked_asm!(
        "push rbp; push rbx; push r12; push r13; push r14; push r15",
        "mov [rdi], rsp",
        "mov rsp, [rsi]",
        "mov rax, [rsi + 8]",
        "mov gs:[{kernel_rsp}], rax",
        "mov gs:[{rsp0}], rax",
        "pop r15; pop r14; pop r13; pop r12; pop rbx; pop rbp",
        "ret",
        kernel_rsp = const percpu::KERNEL_RSP,
        rsp0 = const percpu::TSS_RSP0,
    )
}
