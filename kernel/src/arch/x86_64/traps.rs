//! What the kernel does when the CPU comes in.

use super::frame::TrapFrame;
use super::interrupts;

/// A syscall. Returns whether `sysret` may be used to leave.
pub(super) extern "sysv64" fn handle_syscall(frame: &mut TrapFrame) -> bool {
    interrupts::enable();
    crate::syscall::dispatch(frame);
    interrupts::disable();
    crate::sched::on_return_to_user(frame);
    frame.rcx == frame.rip && frame.r11 == frame.rflags && frame.rip < 1 << 47
}

/// A new thread's way out.
pub(super) extern "sysv64" fn first_return(frame: &mut TrapFrame) {
    crate::sched::finish_switch();
    crate::sched::on_return_to_user(frame);
}

/// An exception or interrupt in user mode.
pub(super) extern "sysv64" fn from_user(_frame: &mut TrapFrame) {}

/// An exception or interrupt in the kernel.
pub(super) extern "sysv64" fn from_kernel(_frame: &mut TrapFrame) {}
