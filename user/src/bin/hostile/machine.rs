//! The machine in a state in which a hostile program may make a system call: odd flags, an invalid stack
//! pointer. The call must work, and preserve every register but those that the ABI lets it change.

use core::arch::asm;

/// Number of checks that [`surprises`] makes.
pub const CHECKS: usize = FLAGS.len() + STACKS.len() + 1;

const FLAGS: [(&str, u64); 3] =
    [("direction flag", 1 << 10), ("alignment check flag", 1 << 18), ("nested task flag", 1 << 14)];
const STACKS: [(&str, u64); 4] =
    [("null", 0), ("kernel", 0xffff_8000_0000_1000), ("non-canonical", 1 << 60), ("odd", 0x1234_5677)];

/// Returns the names of the failed checks.
pub fn surprises() -> impl Iterator<Item = String> {
    let me = u64::from(std::process::id());
    let flags = FLAGS.into_iter().filter(move |(_, flag)| with_flag(*flag) != me);
    let stacks = STACKS.into_iter().filter(move |(_, stack)| with_stack(*stack) != me);
    let registers = (!registers_survive()).then(|| "registers changed by getpid".to_string());
    flags
        .map(|(name, _)| format!("getpid with the {name} set"))
        .chain(stacks.map(|(name, _)| format!("getpid with a {name} stack pointer")))
        .chain(registers)
}

/// Calls `getpid` with a flag set that the kernel must not run with.
fn with_flag(flag: u64) -> u64 {
    let result;
    // SAFETY: the flags are as they were when the block ends, and no memory is touched but the stack.
    unsafe {
        asm!(
            "pushfq",
            "pushfq",
            "or qword ptr [rsp], {flag}",
            "popfq",
            "syscall",
            "popfq",
            flag = in(reg) flag,
            inlateout("rax") libc::SYS_getpid as u64 => result,
            out("rcx") _,
            out("r11") _,
        );
    }
    result
}

/// Calls `getpid` with a stack pointer that the kernel must not use.
fn with_stack(stack: u64) -> u64 {
    let result;
    // SAFETY: the stack pointer is as it was when the block ends, and no signal handler of this program runs
    // meanwhile.
    unsafe {
        asm!(
            "mov {keep}, rsp",
            "mov rsp, {stack}",
            "syscall",
            "mov rsp, {keep}",
            stack = in(reg) stack,
            keep = out(reg) _,
            inlateout("rax") libc::SYS_getpid as u64 => result,
            out("rcx") _,
            out("r11") _,
        );
    }
    result
}

/// Returns whether the registers that a call must keep have kept their values.
fn registers_survive() -> bool {
    let mut kept = [0u64; 8];
    // SAFETY: `getpid` touches no memory.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") libc::SYS_getpid as u64 => _,
            inlateout("rdi") 1u64 => kept[0],
            inlateout("rsi") 2u64 => kept[1],
            inlateout("rdx") 3u64 => kept[2],
            inlateout("r8") 4u64 => kept[3],
            inlateout("r9") 5u64 => kept[4],
            inlateout("r10") 6u64 => kept[5],
            inlateout("r12") 7u64 => kept[6],
            inlateout("r15") 8u64 => kept[7],
            out("rcx") _,
            out("r11") _,
        );
    }
    kept == [1, 2, 3, 4, 5, 6, 7, 8]
}
