//! The kernel's handlers for traps, which pass them to the rooms above at once.
//!
//! Interrupts are off on entry. Exceptions of programs and syscalls run with interrupts on, so that
//! shootdowns are served. `Handlers::return_to_user` runs last, with interrupts off.

use vm::{Access, VirtAddr};

use super::above::Handlers;
use super::entry_count;
use super::frame::TrapFrame;
use super::idt::{self, PAGE_FAULT};
use super::{apic, cpu, interrupts, ipi, shootdown, user_copy};
use crate::above::Above;

const INTERRUPTS_ON: u64 = 1 << 9;
const WRITE_FAULT: u64 = 1 << 1;
const FETCH_FAULT: u64 = 1 << 4;
/// Trap and resume flag. With `sysret` a program that steps through itself would be stopped before its next
/// instruction, at the same address for ever, while `iretq` lets that instruction run first.
const STEPPING: u64 = 1 << 8 | 1 << 16;

/// Handles a syscall. Returns whether `sysret` may be used to leave.
pub(super) extern "sysv64" fn handle_syscall(frame: &mut TrapFrame) -> bool {
    handle_call(frame, Above::syscall)
}

/// Does the same for calls that may be reported or traced.
pub(super) extern "sysv64" fn handle_traced_syscall(frame: &mut TrapFrame) -> bool {
    handle_call(frame, Above::traced_syscall)
}

#[inline(always)]
fn handle_call(frame: &mut TrapFrame, call: impl FnOnce(&mut TrapFrame)) -> bool {
    interrupts::enable();
    call(frame);
    interrupts::disable();
    Above::return_to_user(frame);
    frame.bound_ip();
    frame.rcx == frame.rip && frame.r11 == frame.rflags && frame.rflags & STEPPING == 0
}

/// Prepares a new thread's first return to user mode.
pub(super) extern "sysv64" fn first_return(frame: &mut TrapFrame) {
    Above::first_return();
    Above::return_to_user(frame);
    frame.bound_ip();
}

/// Handles an exception or interrupt in user mode.
pub(super) extern "sysv64" fn from_user(frame: &mut TrapFrame) {
    user_copy::forbid_user_access();
    match frame.vector as u8 {
        PAGE_FAULT => user_page_fault(frame),
        // On a stack of its own: the core may not leave it for another task.
        idt::NMI | idt::DOUBLE_FAULT | idt::MACHINE_CHECK => return fatal(frame),
        vector if vector < idt::FIRST_INTERRUPT => user_exception(frame, vector),
        vector => interrupt(vector),
    }
    Above::return_to_user(frame);
    frame.bound_ip();
}

fn user_page_fault(frame: &mut TrapFrame) {
    let address = VirtAddr::new(cpu::cr2());
    interrupts::enable();
    Above::page_fault(frame, address, access(frame.error));
    interrupts::disable();
}

fn user_exception(frame: &mut TrapFrame, vector: u8) {
    interrupts::enable();
    Above::exception(frame, vector);
    interrupts::disable();
}

/// Handles an exception or interrupt in the kernel. Returns to where it hit.
pub(super) extern "sysv64" fn from_kernel(frame: &mut TrapFrame) {
    user_copy::forbid_user_access();
    match frame.vector as u8 {
        PAGE_FAULT if user_copy::covers(frame.rip) => user_copy_fault(frame),
        vector if vector < idt::FIRST_INTERRUPT => fatal(frame),
        vector => interrupt(vector),
    }
}

/// Resolves a fault in the middle of a copy, or makes the copy fail.
fn user_copy_fault(frame: &mut TrapFrame) {
    let address = VirtAddr::new(cpu::cr2());
    entry_count::move_own_to_word(&percore::pin());
    let were_on = frame.rflags & INTERRUPTS_ON != 0;
    if were_on {
        interrupts::enable();
    }
    let retry = Above::copy_fault(address, access(frame.error));
    interrupts::disable();
    if !retry {
        frame.rip = user_copy::failed();
    }
}

fn access(error: u64) -> Access {
    match error {
        error if error & FETCH_FAULT != 0 => Access::Exec,
        error if error & WRITE_FAULT != 0 => Access::Write,
        _ => Access::Read,
    }
}

fn interrupt(vector: u8) {
    match vector {
        idt::SPURIOUS => return,
        idt::SHOOTDOWN => shootdown::serve(),
        idt::TIMER => Above::timer(),
        idt::RESCHEDULE => Above::reschedule(),
        idt::CONTROL_INPUT => Above::control_input(),
        idt::NETWORK => Above::network(),
        _ => {}
    }
    apic::end_of_interrupt();
}

/// Stops a kernel that cannot go on, or was told to stop by another core that cannot.
fn fatal(frame: &TrapFrame) {
    if frame.vector as u8 == idt::NMI {
        return ipi::stop_if_told();
    }
    panic!(
        "exception {} in the kernel, error {:#x}, cr2 {:#x}, {:x?}",
        frame.vector,
        frame.error,
        cpu::cr2(),
        frame
    );
}
