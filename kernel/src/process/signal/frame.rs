//! The stack frame of a handler: Linux's `rt_sigframe`, byte for byte, because programs read and change it.
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
use vm::{Access, PAGE_SIZE, VirtAddr};

use super::{Origin, UNSTOPPABLE, altstack};
use crate::arch::{FpuState, TrapFrame};
use crate::mm::user::{self, USER_END};
use crate::process::fault;
use crate::sched::Task;

/// The bytes below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;
const INFO: u64 = 8 + size_of::<Ucontext>() as u64;
const FRAME: u64 = INFO + size_of::<Siginfo>() as u64;
const FPU_ALIGN: u64 = 64;

/// Returns AT_MINSIGSTKSZ: a frame at its worst alignment. The handler's own needs come on top.
pub fn min_stack() -> u64 {
    (FRAME + FpuState::user_bytes() as u64 + FPU_ALIGN + 16).next_multiple_of(16)
}

/// The reason why a frame cannot be made or read: the address may not be accessed so, or is beyond the stack.
#[derive(Clone, Copy, Debug)]
pub struct FrameError {
    pub address: u64,
    pub access: Access,
}

impl FrameError {
    /// Finds the page that made a copy from or to `bytes` bytes of user memory at `at` fail.
    fn find(at: u64, bytes: u64, access: Access) -> Self {
        let last = at.saturating_add(bytes - 1);
        let mut pages = (at..=last).step_by(PAGE_SIZE as usize).chain([last]);
        let wild = pages.find(|&at| at >= USER_END || !fault::from_kernel(VirtAddr::new(at), access));
        Self { address: wild.unwrap_or(at), access }
    }
}

/// Flags of `ucontext_t`: there is extended floating point state, and the stack segment is valid and is
/// restored.
const UC_FLAGS: u64 = 1 | 2 | 4;
/// The trap, direction and resume flags, which are off in a handler.
const HANDLER_CLEARS: u64 = 1 << 8 | 1 << 10 | 1 << 16;
const SYSCALL_TRAP: u64 = 0;

/// Makes `frame` enter the handler of `action`. Returning from it restores the old `frame` and blocks `mask`.
///
/// # Errors
/// If there is no room on the stack, or no restorer.
pub fn enter(
    task: &Task,
    frame: &mut TrapFrame,
    signal: u32,
    origin: Origin,
    action: &Sigaction,
    mask: u64,
) -> Result<(), FrameError> {
    if action.flags & SA_RESTORER == 0 {
        return Err(FrameError { address: action.restorer, access: Access::Exec });
    }
    let stack = task.thread.signals.stack();
    let layout = FrameLayout::choose(frame.rsp, &stack, action)?;
    let FrameLayout { sp, fpu, top } = layout;
    let registers = registers(frame, origin, mask, fpu);
    let context = Ucontext { flags: UC_FLAGS, link: 0, stack, registers, mask };
    write(&layout, action.restorer, &context, &info(signal, origin))
        .map_err(|_| FrameError::find(sp, top - sp, Access::Write))?;

    if stack.flags & SS_AUTODISARM != 0 {
        task.thread.signals.set_stack(altstack::NONE);
    }
    frame.rdi = signal.into();
    (frame.rsi, frame.rdx, frame.rax) = (sp + INFO, sp + 8, 0);
    (frame.rip, frame.rsp) = (action.handler, sp);
    frame.rflags &= !HANDLER_CLEARS;
    FpuState::restore_fresh();
    Ok(())
}

/// The addresses of the parts of a frame: the handler's stack pointer, the floating point state, and the end.
struct FrameLayout {
    sp: u64,
    fpu: u64,
    top: u64,
}

impl FrameLayout {
    /// Returns a layout below the red zone of the program, whose stack pointer is `sp`, or on the alternate
    /// stack if `action` wants that.
    fn choose(sp: u64, stack: &SignalStack, action: &Sigaction) -> Result<Self, FrameError> {
        let already = altstack::in_use(stack, sp);
        let switch = action.flags & SA_ONSTACK != 0 && stack.size != 0 && !already;
        let top = if switch { stack.base.wrapping_add(stack.size) } else { sp.wrapping_sub(RED_ZONE) };
        let error = |address| FrameError { address, access: Access::Write };
        let layout = Self::below(top).ok_or(error(top))?;
        let fits = !(already || switch) || altstack::covers(stack, layout.sp);
        if fits { Ok(layout) } else { Err(error(layout.sp)) }
    }

    fn below(top: u64) -> Option<Self> {
        let fpu = top.checked_sub(FpuState::user_bytes() as u64)? & !(FPU_ALIGN - 1);
        let sp = (fpu.checked_sub(FRAME)? & !15).checked_sub(8)?;
        Some(Self { sp, fpu, top })
    }
}

fn write(layout: &FrameLayout, restorer: u64, context: &Ucontext, info: &Siginfo) -> Result<(), Errno> {
    save_fpu(layout.fpu)?;
    user::write(layout.sp, &restorer)?;
    user::write(layout.sp + 8, context)?;
    user::write(layout.sp + INFO, info)
}

#[inline(never)] // a large buffer for a short time
fn save_fpu(at: u64) -> Result<(), Errno> {
    let mut fpu = FpuState::new();
    fpu.save();
    let [state, mark] = fpu.for_user();
    user::copy_out(at, state)?;
    user::copy_out(at + state.len() as u64, mark)
}

/// Returns the `siginfo_t` of `signal`.
pub fn info(signal: u32, origin: Origin) -> Siginfo {
    let mut fields = [0; 14];
    for (field, &of_origin) in fields.iter_mut().zip(&origin.fields) {
        *field = of_origin;
    }
    Siginfo { signo: signal as i32, errno: origin.errno, code: origin.code, padding: 0, fields }
}

fn registers(frame: &TrapFrame, origin: Origin, mask: u64, fpstate: u64) -> Sigcontext {
    let f = frame;
    let is_fault = f.is_exception();
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
        cr2: origin.first(),
        fpstate,
        reserved: [0; 8],
    }
}

/// Handles `rt_sigreturn`: restores `frame` from the frame on the user's stack.
///
/// # Errors
/// If that frame cannot be read.
pub fn restore(task: &Task, frame: &mut TrapFrame) -> Result<(), FrameError> {
    let unread = |at: u64, bytes: usize| FrameError::find(at, bytes as u64, Access::Read);
    // The handler's `ret` popped the restorer's address.
    let context: Ucontext = user::read(frame.rsp).map_err(|_| unread(frame.rsp, size_of::<Ucontext>()))?;
    let saved = &context.registers;
    match saved.fpstate {
        0 => FpuState::restore_fresh(),
        at => FpuState::restore_from_user(|bytes| user::copy_in(bytes, at))
            .map_err(|_| unread(at, FpuState::user_bytes()))?,
    }
    [frame.r8, frame.r9, frame.r10, frame.r11, frame.r12, frame.r13, frame.r14, frame.r15] = saved.r8_to_r15;
    (frame.rdi, frame.rsi, frame.rbp, frame.rbx) = (saved.rdi, saved.rsi, saved.rbp, saved.rbx);
    (frame.rdx, frame.rax, frame.rcx) = (saved.rdx, saved.rax, saved.rcx);
    (frame.rsp, frame.rip, frame.rflags) = (saved.rsp, saved.rip, saved.rflags);
    frame.sanitize();
    // As on Linux: the restored rax is no result of a call, whatever a tracer finds there.
    frame.set_call(None);
    let signals = &task.thread.signals;
    signals.set_mask(task, context.mask & !UNSTOPPABLE);
    // Fails, and changes nothing, if the stack is in use by a handler within the handler, or is invalid.
    if let Ok(stack) = altstack::replace(&signals.stack(), &context.stack, frame.rsp) {
        signals.set_stack(stack);
    }
    Ok(())
}
