//! Signals.

use crate::{constants, plain};

constants! { u32:
    SIGHUP = 1, "Hangup.";
    SIGINT = 2, "Interrupt from the keyboard.";
    SIGQUIT = 3, "Quit from the keyboard.";
    SIGILL = 4, "Illegal instruction.";
    SIGTRAP = 5, "Breakpoint.";
    SIGABRT = 6, "abort().";
    SIGBUS = 7, "Bus error.";
    SIGFPE = 8, "Arithmetic exception.";
    SIGKILL = 9, "Kill.";
    SIGUSR1 = 10, "The program's own.";
    SIGSEGV = 11, "Invalid memory reference.";
    SIGUSR2 = 12, "The program's own.";
    SIGPIPE = 13, "Write to a pipe without readers.";
    SIGALRM = 14, "alarm().";
    SIGTERM = 15, "Termination.";
    SIGSTKFLT = 16, "Coprocessor stack fault.";
    SIGCHLD = 17, "A child ended or stopped.";
    SIGCONT = 18, "Continue.";
    SIGSTOP = 19, "Stop.";
    SIGTSTP = 20, "Stop from the terminal.";
    SIGTTIN = 21, "Background read.";
    SIGTTOU = 22, "Background write.";
    SIGURG = 23, "Urgent data.";
    SIGXCPU = 24, "CPU time limit.";
    SIGXFSZ = 25, "File size limit.";
    SIGVTALRM = 26, "Virtual alarm.";
    SIGPROF = 27, "Profiling timer.";
    SIGWINCH = 28, "Window size changed.";
    SIGIO = 29, "I/O possible.";
    SIGPWR = 30, "Power failure.";
    SIGSYS = 31, "Bad system call.";
    SIGRTMIN = 32, "First real-time signal.";
    NSIG = 64, "The highest signal number.";
}

constants! { u64:
    SIG_BLOCK = 0, "rt_sigprocmask: add to the mask.";
    SIG_UNBLOCK = 1, "rt_sigprocmask: take from the mask.";
    SIG_SETMASK = 2, "rt_sigprocmask: replace the mask.";
    SIG_DFL = 0, "The default action.";
    SIG_IGN = 1, "Ignore.";
    SA_NOCLDSTOP = 1, "No SIGCHLD for stopped children.";
    SA_NOCLDWAIT = 2, "No zombies.";
    SA_SIGINFO = 4, "The handler takes three arguments.";
    SA_RESTORER = 0x0400_0000, "The action names a restorer.";
    SA_ONSTACK = 0x0800_0000, "On the alternate stack.";
    SA_RESTART = 0x1000_0000, "Restart interrupted calls.";
    SA_NODEFER = 0x4000_0000, "Do not block the signal in its handler.";
    SA_RESETHAND = 0x8000_0000, "Back to the default on delivery.";
}

constants! { i32:
    SS_ONSTACK = 1, "The thread runs on its alternate stack.";
    SS_DISABLE = 2, "There is no alternate stack.";
    SS_AUTODISARM = i32::MIN, "There is none while a handler runs.";
    SI_USER = 0, "Sent by kill().";
    SI_TIMER = -2, "Sent by a timer.";
    SI_MESGQ = -3, "Sent by a message queue.";
    SIGEV_SIGNAL = 0, "A timer sends a signal.";
    SIGEV_NONE = 1, "A timer sends none.";
    SIGEV_THREAD_ID = 4, "A timer sends a signal to one thread.";
    SI_KERNEL = 0x80, "Sent by the kernel.";
    SI_QUEUE = -1, "Sent by sigqueue().";
    SI_TKILL = -6, "Sent by tgkill().";
    ILL_ILLOPN = 2, "Illegal operand.";
    FPE_INTDIV = 1, "Integer division by zero.";
    FPE_FLTDIV = 3, "Floating point division by zero.";
    FPE_FLTOVF = 4, "Floating point overflow.";
    FPE_FLTUND = 5, "Floating point underflow.";
    FPE_FLTRES = 6, "Floating point inexact result.";
    FPE_FLTINV = 7, "Invalid floating point operation.";
    SEGV_MAPERR = 1, "Address not mapped.";
    SEGV_ACCERR = 2, "Access not permitted.";
    BUS_ADRALN = 1, "Invalid address alignment.";
    BUS_ADRERR = 2, "Nonexistent physical address.";
    TRAP_BRKPT = 1, "Process breakpoint.";
    TRAP_TRACE = 2, "Process trace trap.";
    CLD_EXITED = 1, "The child exited.";
    CLD_KILLED = 2, "A signal killed the child.";
    CLD_TRAPPED = 4, "The tracee stopped.";
    CLD_STOPPED = 5, "A signal stopped the child.";
    CLD_CONTINUED = 6, "The child goes on.";
}

/// Minimum size of the alternate stack for `sigaltstack`.
pub const MINSIGSTKSZ: u64 = 2048;

plain! {
    /// `struct kernel_sigaction`.
    #[derive(Default)]
    pub struct Sigaction {
        /// Address of the handler, [`SIG_DFL`] or [`SIG_IGN`].
        pub handler: u64,
        /// `SA_*`.
        pub flags: u64,
        /// Address to which the handler returns.
        pub restorer: u64,
        /// Signals blocked in the handler, bit 0 = signal 1.
        pub mask: u64,
    }

    /// `stack_t`.
    #[derive(Default)]
    pub struct SignalStack {
        /// Lowest address.
        pub base: u64,
        /// `SS_*`.
        pub flags: i32,
        /// Zero.
        pub padding: u32,
        /// Bytes.
        pub size: u64,
    }

    /// `struct sigevent`: what a timer does.
    pub struct Sigevent {
        /// `si_value` of the signal.
        pub value: u64,
        /// The signal.
        pub signo: i32,
        /// `SIGEV_*`.
        pub notify: i32,
        /// The thread, for SIGEV_THREAD_ID.
        pub tid: i32,
        /// Zero.
        pub padding: [u32; 11],
    }

    /// `siginfo_t`, for all that fits three words after the head.
    pub struct Siginfo {
        /// Signal number.
        pub signo: i32,
        /// An errno, or zero.
        pub errno: i32,
        /// `SI_*`, `SEGV_*`, ...
        pub code: i32,
        /// Zero.
        pub padding: u32,
        /// `si_addr`, or `si_pid` and `si_uid`.
        pub fields: [u64; 14],
    }

    /// `struct signalfd_siginfo`.
    #[derive(Default)]
    pub struct SignalfdSiginfo {
        /// Signal number.
        pub signo: u32,
        /// An errno, or zero.
        pub errno: i32,
        /// `SI_*`, `CLD_*`, ...
        pub code: i32,
        /// The process that sent it, or the child.
        pub pid: u32,
        /// Its user.
        pub uid: u32,
        /// A descriptor.
        pub fd: i32,
        /// The number of the timer.
        pub tid: u32,
        /// An event of a file.
        pub band: u32,
        /// Further times that the timer was due.
        pub overrun: u32,
        /// A trap's number.
        pub trapno: u32,
        /// The status of the child.
        pub status: i32,
        /// The value that was sent, as a number.
        pub int: i32,
        /// The value that was sent.
        pub ptr: u64,
        /// The child's time in user mode.
        pub utime: u64,
        /// Its time in the kernel.
        pub stime: u64,
        /// The address of a fault.
        pub addr: u64,
        /// Its last bits.
        pub addr_lsb: u16,
        /// Padding.
        pub padding: [u16; 23],
    }

    /// `struct sigcontext`: the registers as a handler sees them.
    #[derive(Default)]
    pub struct Sigcontext {
        /// r8 to r15.
        pub r8_to_r15: [u64; 8],
        /// rdi.
        pub rdi: u64,
        /// rsi.
        pub rsi: u64,
        /// rbp.
        pub rbp: u64,
        /// rbx.
        pub rbx: u64,
        /// rdx.
        pub rdx: u64,
        /// rax.
        pub rax: u64,
        /// rcx.
        pub rcx: u64,
        /// rsp.
        pub rsp: u64,
        /// rip.
        pub rip: u64,
        /// rflags.
        pub rflags: u64,
        /// cs, gs, fs, ss.
        pub segments: [u16; 4],
        /// The exception's error code.
        pub error_code: u64,
        /// The exception's vector.
        pub trap_number: u64,
        /// The signal mask before the handler.
        pub old_mask: u64,
        /// The faulting address.
        pub cr2: u64,
        /// Address of the saved floating point state.
        pub fpstate: u64,
        /// Zero.
        pub reserved: [u64; 8],
    }

    /// `ucontext_t`.
    #[derive(Default)]
    pub struct Ucontext {
        /// `UC_*`.
        pub flags: u64,
        /// Zero.
        pub link: u64,
        /// The alternate stack.
        pub stack: SignalStack,
        /// The registers.
        pub registers: Sigcontext,
        /// The mask that returning restores.
        pub mask: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_linux() {
        assert_eq!(size_of::<Sigaction>(), 32);
        assert_eq!(size_of::<SignalStack>(), 24);
        assert_eq!(size_of::<Siginfo>(), 128);
        assert_eq!(size_of::<Sigcontext>(), 256);
        assert_eq!(size_of::<Ucontext>(), 304);
    }
}
