//! The reasons for which a core, or a task, must run kernel work before it returns to user mode.
//!
//! Interrupt handlers and other cores only set bits here. The core itself acts on them, on the way to user
//! mode or in the idle loop, where no lock is held and interrupts are on. An empty word is the fast path.

use sync::atomic::{AtomicU32, Ordering};

/// Core: another task should run, or the task that runs may not run here any more.
pub const RESCHEDULE: u32 = 1 << 0;
/// Core: the timer rang.
pub const TIMER: u32 = 1 << 1;
/// Core: bytes of standard input wait.
pub const INPUT: u32 = 1 << 2;
/// Core: an exited task waits to be freed.
pub const REAP: u32 = 1 << 3;
/// Task: a signal is pending.
pub const SIGNAL: u32 = 1 << 4;
/// Task: it, or its process, is ending.
pub const KILLED: u32 = 1 << 5;
/// Task: its process is stopped.
pub const STOPPED: u32 = 1 << 6;
/// Task: it has not run yet, and has something to do before it does.
pub const BORN: u32 = 1 << 7;

/// Task: its memory is being copied.
pub const FROZEN: u32 = 1 << 8;
/// Core: the network has something to do.
pub const NETWORK: u32 = 1 << 9;

/// Core: system calls enter otherwise from now on.
pub const ENTRY: u32 = 1 << 10;
/// Task: its tracer wants something of it.
pub const TRACE: u32 = 1 << 11;
/// Task: it is traced. No reason to look up by itself.
pub const TRACED: u32 = 1 << 12;
/// Task: it traces others. No reason to look up by itself.
pub const TRACER: u32 = 1 << 13;

/// The bits that say what a task is. The others are reasons.
const LASTING: u32 = TRACED | TRACER;

/// A word of reasons.
#[derive(Debug)]
pub struct Attention(AtomicU32);

impl Attention {
    /// Creates an empty set of reasons.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Adds reasons.
    pub fn raise(&self, reasons: u32) {
        // SeqCst: see `Task::notify`.
        self.0.fetch_or(reasons, Ordering::SeqCst);
    }

    /// Takes reasons away.
    pub fn clear(&self, reasons: u32) {
        self.0.fetch_and(!reasons, Ordering::SeqCst);
    }

    /// Returns whether there is any reason.
    #[inline(always)]
    pub fn any(&self) -> bool {
        // A plain load on x86. SeqCst: see `Task::notify`.
        self.0.load(Ordering::SeqCst) & !LASTING != 0
    }

    /// Returns whether one of `reasons` is set.
    pub fn has(&self, reasons: u32) -> bool {
        self.0.load(Ordering::SeqCst) & reasons != 0
    }

    /// Returns all reasons.
    pub fn reasons(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Takes all reasons.
    pub fn take(&self) -> u32 {
        self.0.swap(0, Ordering::SeqCst)
    }
}

/// Makes this core look up. For interrupt handlers.
pub fn raise(reasons: u32) {
    super::cores::mine().attention.raise(reasons);
}
