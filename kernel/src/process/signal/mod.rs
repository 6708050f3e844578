//! Signals: who is told, when, and what then happens.
//!
//! Sending sets a bit, of a thread or of the whole process, and notifies a thread. A thread looks on its
//! way to user mode (`deliver`), takes the lowest deliverable signal, and ignores it, dies of it with its
//! whole process, or enters the program's handler (`frame`). Each number is pending at most once, real-time
//! signals too. Stopping is not supported: what would stop a process is ignored.

mod deliver;
mod frame;
mod pending;

use alloc::sync::Arc;

use abi::Errno;
use abi::signal::*;
use sync::SpinLock;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Ending, Process};
use crate::sched::{Task, attention};

pub use deliver::{Fate, deliver, force};
pub use frame::{MIN_STACK, on_stack, restore, told};
pub use pending::{Origin, Pending};

/// The bit of a signal in a mask.
pub const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Signals that can be neither blocked nor handled.
pub const UNSTOPPABLE: u64 = bit(SIGKILL) | bit(SIGSTOP);

/// Signals whose default is to be ignored; those that would stop a process are treated alike.
const IGNORED: u64 = bit(SIGCHLD)
    | bit(SIGURG)
    | bit(SIGWINCH)
    | bit(SIGCONT)
    | bit(SIGSTOP)
    | bit(SIGTSTP)
    | bit(SIGTTIN)
    | bit(SIGTTOU);

/// What a process has.
pub struct ProcessSignals {
    actions: SpinLock<[Sigaction; NSIG as usize]>,
    pending: Pending,
}

impl Default for ProcessSignals {
    fn default() -> Self {
        Self { actions: SpinLock::new([Sigaction::default(); NSIG as usize]), pending: Pending::new() }
    }
}

impl ProcessSignals {
    /// What is to be done about `signal`.
    pub fn action(&self, signal: u32) -> Sigaction {
        self.actions.lock()[signal as usize - 1]
    }

    /// Sets it; what it was.
    pub fn set_action(&self, signal: u32, action: Sigaction) -> Sigaction {
        let old = core::mem::replace(&mut self.actions.lock()[signal as usize - 1], action);
        if self.ignores(signal) {
            self.pending.discard(signal);
        }
        old
    }

    fn ignores(&self, signal: u32) -> bool {
        match self.action(signal).handler {
            SIG_IGN => true,
            SIG_DFL => IGNORED & bit(signal) != 0,
            _ => false,
        }
    }
}

/// What a thread has.
pub struct ThreadSignals {
    mask: AtomicU64,
    pending: Pending,
    /// The mask to go back to once `rt_sigsuspend` has delivered.
    suspended: SpinLock<Option<u64>>,
    /// `sigaltstack`.
    stack: SpinLock<SignalStack>,
    /// The call that was interrupted may be made again.
    restartable: AtomicBool,
}

impl ThreadSignals {
    /// Of a thread that blocks `mask`.
    pub fn new(mask: u64) -> Self {
        let stack = SignalStack { flags: SS_DISABLE, ..SignalStack::default() };
        Self {
            mask: AtomicU64::new(mask),
            pending: Pending::new(),
            suspended: SpinLock::new(None),
            stack: SpinLock::new(stack),
            restartable: AtomicBool::new(false),
        }
    }

    /// The blocked signals. Relaxed, here and below: only the thread itself changes its mask, and who sends
    /// decides by a look at it that may be old, as it may on Linux.
    pub fn mask(&self) -> u64 {
        self.mask.load(Ordering::Relaxed)
    }

    /// The running thread blocks `mask` from now on, and looks at what that lets through.
    pub fn set_mask(&self, task: &Task, mask: u64) {
        self.mask.store(mask & !UNSTOPPABLE, Ordering::Relaxed);
        if self.deliverable(&task.process().signals) {
            task.attention.raise(attention::SIGNAL);
        }
    }

    /// Blocks `mask` until the next delivery.
    pub fn suspend(&self, task: &Task, mask: u64) {
        *self.suspended.lock() = Some(self.mask());
        self.set_mask(task, mask);
    }

    /// Signals that wait, of the thread and its process.
    pub fn pending(&self, process: &ProcessSignals) -> u64 {
        self.pending.set() | process.pending.set()
    }

    /// Whether one of them is not blocked.
    pub fn deliverable(&self, process: &ProcessSignals) -> bool {
        self.pending(process) & !self.mask() != 0
    }

    /// Takes one of `wanted` that is pending, the thread's own first.
    pub fn take(&self, process: &ProcessSignals, wanted: u64) -> Option<(u32, Origin)> {
        self.pending.take(wanted).or_else(|| process.pending.take(wanted))
    }

    /// The alternate stack.
    pub fn stack(&self) -> SignalStack {
        *self.stack.lock()
    }

    /// Sets it.
    pub fn set_stack(&self, stack: SignalStack) {
        *self.stack.lock() = stack;
    }

    /// The call that now returns EINTR may be made again after a handler that asks for that (SA_RESTART),
    /// or after none.
    pub fn allow_restart(&self) {
        self.restartable.store(true, Ordering::Relaxed);
    }

    fn take_restart(&self) -> bool {
        self.restartable.swap(false, Ordering::Relaxed)
    }
}

/// Signal number `number`, if there is one.
///
/// # Errors
/// EINVAL.
pub fn checked(number: u64) -> Result<u32, Errno> {
    match number as u32 {
        signal @ 1..=NSIG => Ok(signal),
        _ => Err(Errno::EINVAL),
    }
}

/// Sends `signal` to `task` alone.
pub fn send_to_thread(task: &Arc<Task>, signal: u32, origin: Origin) {
    let process = task.process();
    let blocked = task.thread.signals.mask() & bit(signal) != 0;
    if signal == SIGKILL {
        process.end(Ending::Signal(SIGKILL));
    } else if blocked || !process.signals.ignores(signal) {
        task.thread.signals.pending.add(signal, origin);
        Task::notify(task, attention::SIGNAL);
    }
}

/// Sends `signal` to `process`: some thread that does not block it takes it.
pub fn send_to_process(process: &Process, signal: u32, origin: Origin) {
    if signal == SIGKILL {
        process.end(Ending::Signal(SIGKILL));
        return;
    }
    let mut open = None;
    process.for_each_thread(|task| {
        if open.is_none() && task.thread.signals.mask() & bit(signal) == 0 {
            open = Some(task.clone());
        }
    });
    if open.is_some() && process.signals.ignores(signal) {
        return;
    }
    process.signals.pending.add(signal, origin);
    if let Some(task) = open {
        Task::notify(&task, attention::SIGNAL);
    }
}
