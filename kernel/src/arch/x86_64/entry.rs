//! Entry and exit: `syscall`, exceptions, interrupts. Straight-line assembly around one frame.

use core::arch::naked_asm;

use super::percpu::{KERNEL_RSP, USER_RSP};

/// Pushes a `TrapFrame`'s general registers, from its end to its start.
macro_rules! push_registers {
    () => {
        "push rdi; push rsi; push rdx; push rcx; push rax; push r8; push r9; push r10; push r11; \
         push rbx; push rbp; push r12; push r13; push r14; push r15"
    };
}

/// Pops them again.
macro_rules! pop_registers {
    () => {
        "pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx; pop r11; pop r10; pop r9; pop r8; \
         pop rax; pop rcx; pop rdx; pop rsi; pop rdi"
    };
}

/// The whole of an entry by `syscall`, which enters with interrupts off. The user's address is in rcx, its
/// flags in r11.
macro_rules! enter_by_syscall {
    ($handle:path) => {
        naked_asm!(
            "swapgs",
            "mov gs:[{user_rsp}], rsp",
            "mov rsp, gs:[{kernel_rsp}]",
            "push {user_ss}",
            "push qword ptr gs:[{user_rsp}]",
            "push r11",
            "push {user_cs}",
            "push rcx",
            "push rax",
            "push {syscall}",
            push_registers!(),
            "mov rdi, rsp",
            "xor ebp, ebp",
            "call {handle}",
            // Al: may the return use sysret?
            "test al, al",
            "jz {leave}",
            "pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx",
            "add rsp, 8; pop r10; pop r9; pop r8; pop rax; add rsp, 8; pop rdx; pop rsi; pop rdi",
            "mov rcx, [rsp + 16]",
            "mov r11, [rsp + 32]",
            "mov rsp, [rsp + 40]",
            "swapgs",
            "sysretq",
            user_rsp = const USER_RSP,
            kernel_rsp = const KERNEL_RSP,
            user_ss = const super::frame::USER_SS,
            user_cs = const super::frame::USER_CS,
            syscall = const super::frame::SYSCALL,
            handle = sym $handle,
            leave = sym leave_to_user,
        )
    };
}

/// Handles `syscall`. The symbol lets external tools count entries, like those of the stubs in `idt.rs`.
///
/// # Safety
/// Only the CPU enters here.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "sysv64" fn syscall_entry() {
    enter_by_syscall!(super::traps::handle_syscall)
}

/// Does the same for calls that may be reported or traced.
///
/// # Safety
/// Only the CPU enters here.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn traced_syscall_entry() {
    enter_by_syscall!(super::traps::handle_traced_syscall)
}

/// Restores every register from the frame at rsp and returns to user mode. Interrupts are off.
#[unsafe(naked)]
unsafe extern "sysv64" fn leave_to_user() {
    naked_asm!(pop_registers!(), "add rsp, 16", "swapgs", "iretq",)
}

/// Starts a new thread after its first switch. Its frame is at rsp.
///
/// # Safety
/// Only `switch` jumps here.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn thread_start() {
    naked_asm!(
        "xor ebp, ebp",
        "mov rdi, rsp",
        "call {first}",
        "jmp {leave}",
        first = sym super::traps::first_return,
        leave = sym leave_to_user,
    )
}

/// Handles every exception and interrupt after its stub, which pushed an error code and the vector.
///
/// # Safety
/// Only the stubs jump here.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn trap_entry() {
    naked_asm!(
        "cld",
        push_registers!(),
        "mov rdi, rsp",
        "xor ebp, ebp",
        "test byte ptr [rsp + {cs}], 3",
        "jz 2f",
        "swapgs",
        "call {from_user}",
        "jmp {leave}",
        "2:",
        "call {from_kernel}",
        pop_registers!(),
        "add rsp, 16",
        "iretq",
        cs = const core::mem::offset_of!(super::frame::TrapFrame, cs),
        from_user = sym super::traps::from_user,
        from_kernel = sym super::traps::from_kernel,
        leave = sym leave_to_user,
    )
}
