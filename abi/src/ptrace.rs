//! Tracing of threads by another process: the requests of `ptrace`, their options and structures.

use crate::{constants, plain};

constants! { u64:
    PTRACE_TRACEME = 0, "The parent traces the caller.";
    PTRACE_PEEKTEXT = 1, "Read a word of memory.";
    PTRACE_PEEKDATA = 2, "Read a word of memory.";
    PTRACE_PEEKUSER = 3, "Read a register.";
    PTRACE_POKETEXT = 4, "Write a word of memory.";
    PTRACE_POKEDATA = 5, "Write a word of memory.";
    PTRACE_POKEUSER = 6, "Write a register.";
    PTRACE_CONT = 7, "Go on.";
    PTRACE_KILL = 8, "End the process.";
    PTRACE_SINGLESTEP = 9, "Go on for an instruction.";
    PTRACE_GETREGS = 12, "Read the registers.";
    PTRACE_SETREGS = 13, "Write the registers.";
    PTRACE_GETFPREGS = 14, "Read the floating point registers.";
    PTRACE_SETFPREGS = 15, "Write the floating point registers.";
    PTRACE_ATTACH = 16, "Trace a thread and stop it.";
    PTRACE_DETACH = 17, "Trace it no more.";
    PTRACE_SYSCALL = 24, "Go on to the next system call, or its end.";
    PTRACE_SETOPTIONS = 0x4200, "Set `PTRACE_O_*`.";
    PTRACE_GETEVENTMSG = 0x4201, "Read the message of an event.";
    PTRACE_GETSIGINFO = 0x4202, "Read the signal of a stop.";
    PTRACE_SETSIGINFO = 0x4203, "Write the signal of a stop.";
    PTRACE_GETREGSET = 0x4204, "Read a set of registers.";
    PTRACE_SETREGSET = 0x4205, "Write a set of registers.";
    PTRACE_SEIZE = 0x4206, "Trace a thread that goes on.";
    PTRACE_INTERRUPT = 0x4207, "Stop it.";
    PTRACE_LISTEN = 0x4208, "Leave it stopped, and hear of SIGCONT.";
    PTRACE_GETSIGMASK = 0x420a, "Read the blocked signals.";
    PTRACE_SETSIGMASK = 0x420b, "Write the blocked signals.";
    PTRACE_GET_SYSCALL_INFO = 0x420e, "Read the system call of a stop.";

    NT_PRSTATUS = 1, "The general registers.";
    NT_FPREGSET = 2, "The registers that FXSAVE saves.";
    NT_X86_XSTATE = 0x202, "The registers that XSAVE saves.";
}

constants! { u32:
    PTRACE_O_TRACESYSGOOD = 1, "Mark stops at system calls with 0x80.";
    PTRACE_O_TRACEFORK = 1 << 1, "Stop at fork.";
    PTRACE_O_TRACEVFORK = 1 << 2, "Stop at vfork.";
    PTRACE_O_TRACECLONE = 1 << 3, "Stop at clone.";
    PTRACE_O_TRACEEXEC = 1 << 4, "Stop at execve.";
    PTRACE_O_TRACEVFORKDONE = 1 << 5, "Stop when vfork returns.";
    PTRACE_O_TRACEEXIT = 1 << 6, "Stop at exit.";
    PTRACE_O_TRACESECCOMP = 1 << 7, "Stop where a filter says so.";
    PTRACE_O_EXITKILL = 1 << 20, "The tracee ends with its tracer.";

    PTRACE_EVENT_FORK = 1, "A fork. The message is the child.";
    PTRACE_EVENT_VFORK = 2, "A vfork. The message is the child.";
    PTRACE_EVENT_CLONE = 3, "A clone. The message is the child.";
    PTRACE_EVENT_EXEC = 4, "Another program. The message is the former number.";
    PTRACE_EVENT_VFORK_DONE = 5, "A vfork returns. The message is the child.";
    PTRACE_EVENT_EXIT = 6, "An exit. The message is the status.";
    PTRACE_EVENT_STOP = 128, "A stop of a seized tracee.";
    PTRACE_EVENTMSG_SYSCALL_ENTRY = 1, "The message at the beginning of a call.";
    PTRACE_EVENTMSG_SYSCALL_EXIT = 2, "The message at its end.";

    PTRACE_SYSCALL_INFO_NONE = 0, "No call.";
    PTRACE_SYSCALL_INFO_ENTRY = 1, "Its beginning.";
    PTRACE_SYSCALL_INFO_EXIT = 2, "Its end.";
    AUDIT_ARCH_X86_64 = 0xc000_003e, "This machine.";
}

plain! {
    /// `struct user_regs_struct`.
    #[derive(Default)]
    pub struct UserRegisters {
        /// The register of this name, like all others.
        pub r15: u64,
        /// As above.
        pub r14: u64,
        /// As above.
        pub r13: u64,
        /// As above.
        pub r12: u64,
        /// As above.
        pub rbp: u64,
        /// As above.
        pub rbx: u64,
        /// As above.
        pub r11: u64,
        /// As above.
        pub r10: u64,
        /// As above.
        pub r9: u64,
        /// As above.
        pub r8: u64,
        /// As above.
        pub rax: u64,
        /// As above.
        pub rcx: u64,
        /// As above.
        pub rdx: u64,
        /// As above.
        pub rsi: u64,
        /// As above.
        pub rdi: u64,
        /// The number of the system call, or -1.
        pub orig_rax: u64,
        /// As above.
        pub rip: u64,
        /// As above.
        pub cs: u64,
        /// As above.
        pub rflags: u64,
        /// As above.
        pub rsp: u64,
        /// As above.
        pub ss: u64,
        /// As above.
        pub fs_base: u64,
        /// As above.
        pub gs_base: u64,
        /// As above.
        pub ds: u64,
        /// As above.
        pub es: u64,
        /// As above.
        pub fs: u64,
        /// As above.
        pub gs: u64,
    }

    /// `struct ptrace_syscall_info`.
    #[derive(Default)]
    pub struct SyscallInfo {
        /// `PTRACE_SYSCALL_INFO_*`.
        pub op: u32,
        /// `AUDIT_ARCH_*`.
        pub arch: u32,
        /// The program counter.
        pub ip: u64,
        /// The stack pointer.
        pub sp: u64,
        /// The number and the arguments, or the result and whether it is an error.
        pub words: [u64; 7],
    }
}
