//! The meaning of the fields of a `siginfo_t`, by signal and code.

use abi::signal::{SI_KERNEL, SI_TIMER, SI_USER, SIGBUS, SIGCHLD, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};

/// The fields of a `siginfo_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `si_pid` and `si_uid`.
    Sender,
    /// The same, and `si_value`.
    Value,
    /// `si_timerid`, `si_overrun` and `si_value`.
    Timer,
    /// `si_band` and `si_fd`.
    File,
    /// `si_addr`.
    Fault,
    /// `si_pid`, `si_uid`, `si_status`, `si_utime` and `si_stime`.
    Child,
    /// `si_call_addr`, `si_syscall` and `si_arch`.
    Call,
}

/// The code of a signal about a file (`SI_SIGIO`).
const OF_FILE: i32 = -5;
/// Linux's codes below 0: the lowest of those that follow one another (`SI_DETHREAD`), and `SI_ASYNCNL`.
const LOWEST: i32 = -7;
const OF_NAME: i32 = -60;
/// The highest code of such a signal.
const FILES: i32 = 6;

impl Layout {
    /// Returns the layout for `signal` with `code`.
    pub fn of(signal: u32, code: i32) -> Self {
        match code {
            SI_TIMER => Self::Timer,
            OF_FILE => Self::File,
            ..0 => Self::Value,
            _ => Self::of_own(signal, code).unwrap_or(Self::Sender),
        }
    }

    /// Returns whether Linux knows it, so that the fields after it mean nothing.
    pub fn is_known(signal: u32, code: i32) -> bool {
        matches!(code, LOWEST..=SI_USER | OF_NAME | SI_KERNEL) || Self::of_own(signal, code).is_some()
    }

    /// Returns the layout if `code` is one that this signal alone has.
    fn of_own(signal: u32, code: i32) -> Option<Self> {
        let (most, layout) = match signal {
            SIGILL => (11, Self::Fault),
            SIGFPE => (15, Self::Fault),
            SIGSEGV => (10, Self::Fault),
            SIGBUS => (5, Self::Fault),
            SIGTRAP => (6, Self::Fault),
            SIGCHLD => (6, Self::Child),
            SIGSYS => (2, Self::Call),
            // SIGIO, or another that was chosen for a file.
            _ => (FILES, Self::File),
        };
        (1..=most).contains(&code).then_some(layout)
    }
}
