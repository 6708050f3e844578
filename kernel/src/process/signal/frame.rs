//! The frame that a handler runs on: Linux's `rt_sigframe`, byte for byte, since programs read and change it.
//!
//! ```text
//!   higher   [ red zone of the interrupted function, or the top of the alternate stack ]
//!            [ floating point state, 64-byte aligned: FXSAVE or XSAVE area, magic word  ]
//!            [ siginfo_t ]
//!            [ ucontext_t: registers, mask, alternate stack ]
//!   rsp ->   [ address of the restorer, which calls rt_sigreturn ]   (rsp + 8 is 16-byte aligned)
//! ```

use abi::Errno;
use abi::signal::*;

use super::{Origin, UNSTOPPABLE};
use crate::arch::{FpuState, TrapFrame};
use crate::mm::user;
use crate::sched::Task;

/// Bytes below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;
const INFO: u64 = 8 + size_of::<Ucontext>() as u64;
const FRAME: u64 = INFO + size_of::<Siginfo>() as u64;
const FPU_ALIGN: u64 = 64;

/// The least that AT_MINSIGSTKSZ may say: a frame at its worst alignment, and a little for the handler.
pub const MIN_STACK: u64 = FRAME + FpuState::USER_BYTES as u64 + FPU_ALIGN + 16 + 512;

/// There is extended floating point state; the stack segment is valid, and is restored.
const UC_FLAGS: u64 = 1 | 2 | 4;
/// Trap, direction and resume flags: off in a handler.
const HANDLER_CLEARS: u64 = 1 << 8 | 1 << 10 | 1 << 16;
const SYSCALL_TRAP: u64 = 0;

/// Makes `frame` enter the handler of `action`; returning from it restores what `frame` was, and blocks
/// `mask`.
///
/// # Errors
/// EFAULT: there is no stack for it, or no way back.
pub fn enter(
    task: &Task,
    frame: &mut TrapFrame,
    signal: u32,
    origin: Origin,
    action: &Sigaction,
    mask: u64,
) -> Result<(), Errno> {
    if action.flags & SA_RESTORER == 0 {
        return Err(Errno::EFAULT);
    }
    let stack = task.thread.signals.stack();
    let top = top_of_frame(frame.rsp, &stack, action);
    let fpu_at = top.checked_sub(FpuState::USER_BYTES as u64).ok_or(Errno::EFAULT)? & !(FPU_ALIGN - 1);
    let sp = (fpu_at.checked_sub(FRAME).ok_or(Errno::EFAULT)? & !15).wrapping_sub(8);

    save_fpu(fpu_at)?;
    let context = Ucontext {
        flags: UC_FLAGS,
        link: 0,
        stack: told(&stack, frame.rsp),
        registers: registers(frame, origin, mask, fpu_at),
        mask,
    };
    user::write(sp, &action.restorer)?;
    user::write(sp + 8, &context)?;
    user::write(sp + INFO, &info(signal, origin))?;

    frame.rdi = signal.into();
    (frame.rsi, frame.rdx, frame.rax) = (sp + INFO, sp + 8, 0);
    (frame.rip, frame.rsp) = (action.handler, sp);
    frame.rflags &= !HANDLER_CLEARS;
    FpuState::restore_fresh();
    Ok(())
}

#[inline(never)] // a large buffer for a short time
fn save_fpu(at: u64) -> Result<(), Errno> {
    let mut fpu = FpuState::new();
    fpu.save();
    let [state, mark] = fpu.for_user();
    user::copy_out(at, state)?;
    user::copy_out(at + state.len() as u64, mark)
}

/// Whether `sp` is on the alternate stack.
pub fn on_stack(stack: &SignalStack, sp: u64) -> bool {
    stack.flags & SS_DISABLE == 0 && sp.wrapping_sub(stack.base) < stack.size
}

/// The alternate stack as a program is told of it.
pub fn told(stack: &SignalStack, sp: u64) -> SignalStack {
    let flags = if on_stack(stack, sp) { SS_ONSTACK } else { stack.flags };
    SignalStack { flags, ..*stack }
}

fn top_of_frame(sp: u64, stack: &SignalStack, action: &Sigaction) -> u64 {
    let switch = action.flags & SA_ONSTACK != 0 && stack.flags & SS_DISABLE == 0 && !on_stack(stack, sp);
    if switch { stack.base.wrapping_add(stack.size) } else { sp.wrapping_sub(RED_ZONE) }
}

fn info(signal: u32, origin: Origin) -> Siginfo {
    let mut fields = [0; 14];
    // `si_addr`, or `si_pid` with a zero `si_uid`.
    fields[0] = origin.value;
    Siginfo { signo: signal as i32, errno: 0, code: origin.code, padding: 0, fields }
}

fn registers(frame: &TrapFrame, origin: Origin, mask: u64, fpstate: u64) -> Sigcontext {
    let f = frame;
    let is_fault = !f.is_syscall();
    Sigcontext {
        r8_to_r15: [f.r8, f.r9, f.r10, f.r11, f.r12, f.r13, f.r14, f.r15],
        rdi: f.rdi,
        rsi: f.rsi,
        rbp: f.rbp,
        rbx: f.rbx,
        rdx: f.rdx,
        rax: f.rax,
        rcx: f.rcx,
        rsp: f.rsp,
        rip: f.rip,
        rflags: f.rflags,
        segments: [f.cs as u16, 0, 0, f.ss as u16],
        error_code: if is_fault { f.error } else { SYSCALL_TRAP },
        trap_number: if is_fault { f.vector } else { SYSCALL_TRAP },
        old_mask: mask,
        cr2: origin.value,
        fpstate,
        reserved: [0; 8],
    }
}

/// `rt_sigreturn`: makes `frame` what the frame on the user's stack says.
///
/// # Errors
/// EFAULT if there is none.
pub fn restore(task: &Task, frame: &mut TrapFrame) -> Result<(), Errno> {
    // The handler's `ret` took the restorer's address off.
    let context: Ucontext = user::read(frame.rsp)?;
    let saved = &context.registers;
    match saved.fpstate {
        0 => FpuState::restore_fresh(),
        at => FpuState::restore_from_user(|bytes| user::copy_in(bytes, at))?,
    }
    [frame.r8, frame.r9, frame.r10, frame.r11, frame.r12, frame.r13, frame.r14, frame.r15] = saved.r8_to_r15;
    (frame.rdi, frame.rsi, frame.rbp, frame.rbx) = (saved.rdi, saved.rsi, saved.rbp, saved.rbx);
    (frame.rdx, frame.rax, frame.rcx) = (saved.rdx, saved.rax, saved.rcx);
    (frame.rsp, frame.rip, frame.rflags) = (saved.rsp, saved.rip, saved.rflags);
    frame.sanitize();
    let signals = &task.thread.signals;
    signals.set_mask(task, context.mask & !UNSTOPPABLE);
    let stack = context.stack;
    signals.set_stack(SignalStack { flags: stack.flags & SS_DISABLE, ..stack });
    Ok(())
}
