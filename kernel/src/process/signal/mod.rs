//! Signals: sending, taking and handling them.
//!
//! Sending sets a bit, of a thread or of the whole process, and notifies a thread. A thread looks on its way
//! to user mode (`deliver`), takes the first deliverable signal, and ignores it, dies of it with its whole
//! process, or enters the program's handler (`frame`), perhaps on another stack (`altstack`). Real-time
//! signals queue, and of each other number one can be pending (`pending`). A program can also read signals
//! (`signalfd`).

mod actions;
mod altstack;
mod deliver;
mod frame;
mod layout;
mod pending;
pub mod signalfd;

use alloc::sync::Arc;

use abi::Errno;
use abi::process::RLIMIT_SIGPENDING;
use abi::signal::*;
use sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use sync::{CachePadded, SpinLock};

use super::{Ending, Process};
use crate::sched::{Task, attention};
use actions::Actions;

pub use altstack::{replace as replace_stack, reported as reported_stack};
pub use deliver::{Fate, Fault, deliver, force, return_from_handler};
pub use frame::{info, min_stack};
pub use layout::Layout;
pub use pending::{Added, Origin, Pending};

/// Returns the bit of a signal in a mask.
pub const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Signals that can be neither blocked nor handled.
pub const UNSTOPPABLE: u64 = bit(SIGKILL) | bit(SIGSTOP);

/// Signals whose default is to be ignored.
const IGNORED: u64 = bit(SIGCHLD) | bit(SIGURG) | bit(SIGWINCH) | bit(SIGCONT);
/// Signals whose default is to stop the process.
const STOPPING: u64 = bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);

/// The signal state of a process.
pub struct ProcessSignals {
    /// The actions. Processes may share them (CLONE_SIGHAND).
    actions: SpinLock<Arc<Actions>>,
    pending: CachePadded<Pending>,
    /// Set once a thread has asked whether a file of signals is ready. Then signals wake pollers.
    are_polled: AtomicBool,
    /// Counts the signals that were added since, and changes of such files.
    added: AtomicU64,
}

impl ProcessSignals {
    /// Returns the action for `signal`.
    pub fn action(&self, signal: u32) -> Sigaction {
        self.actions.lock().get(signal)
    }

    fn ignores(&self, signal: u32) -> bool {
        match self.action(signal).handler {
            SIG_IGN => true,
            SIG_DFL => IGNORED & bit(signal) != 0,
            _ => false,
        }
    }
}

impl Process {
    /// Sets the action for `signal` and returns the old one. If the signal is ignored from now on, it is not
    /// pending any more, neither for the process nor for a thread.
    pub fn set_action(&self, signal: u32, action: Sigaction) -> Sigaction {
        let old = self.signals.actions.lock().replace(signal, action);
        if self.signals.ignores(signal) {
            self.discard_pending(bit(signal));
        }
        old
    }

    fn discard_pending(&self, signals: u64) {
        self.signals.pending.discard(signals);
        self.for_each_thread(|task| task.thread.signals.pending.discard(signals));
    }
}

/// When a call that returns EINTR is restarted.
enum Restart {
    Never,
    /// If no handler runs, or one with SA_RESTART.
    AsHandlerSays,
    /// If no handler runs.
    WithoutHandler,
}

/// The signal state of a thread.
pub struct ThreadSignals {
    mask: AtomicU64,
    /// The signals that `rt_sigtimedwait` waits for.
    wanted: AtomicU64,
    /// Padded, because other threads write it, and the thread itself reads its neighbours in each call.
    pending: CachePadded<Pending>,
    /// The mask to restore when `rt_sigsuspend` or `ppoll` has delivered a signal.
    suspended: SpinLock<Option<u64>>,
    /// `sigaltstack`.
    stack: SpinLock<SignalStack>,
    /// When the interrupted call may be restarted: a [`Restart`].
    restart: AtomicU8,
}

impl ThreadSignals {
    /// Creates the state of a thread that blocks `mask`.
    pub fn new(mask: u64) -> Self {
        Self {
            mask: AtomicU64::new(mask),
            wanted: AtomicU64::new(0),
            pending: CachePadded::new(Pending::new()),
            suspended: SpinLock::new(None),
            stack: SpinLock::new(altstack::NONE),
            restart: AtomicU8::new(Restart::Never as u8),
        }
    }

    /// Returns the state of a child. It blocks the same signals. If `its_own`, it has the same alternate
    /// stack, on which no other thread runs meanwhile.
    pub fn inherit(&self, its_own: bool) -> Self {
        let child = Self::new(self.lasting_mask());
        if its_own {
            child.set_stack(self.stack());
        }
        child
    }

    /// Takes over the pending signals of `old`.
    pub fn take_over(&self, old: &Self) {
        self.pending.take_over(&old.pending);
    }

    /// Returns the blocked signals. Only the thread itself changes them.
    ///
    /// The mask and the pending set are SeqCst. A thread writes its mask (or the signals that it waits for)
    /// and then looks at the pending set. A sender adds to that and then looks at the masks. One of them sees
    /// the other.
    pub fn mask(&self) -> u64 {
        self.mask.load(Ordering::SeqCst)
    }

    /// Blocks `mask` for the running thread, and looks at the signals that this unblocks. Signals that it
    /// newly blocks, and of which it may have been notified, are passed to another thread.
    pub fn set_mask(&self, task: &Task, mask: u64) {
        let new = mask & !UNSTOPPABLE;
        // SeqCst: see `mask`.
        let old = self.mask.swap(new, Ordering::SeqCst);
        if self.deliverable(&task.process().signals) {
            task.attention.raise(attention::SIGNAL);
        }
        retarget(task.process(), new & !old);
    }

    /// Notes that the running thread is about to sleep until it can take one of `wanted`, blocked or not.
    /// Signals that it waited for before, and of which it may have been notified, are passed to another
    /// thread.
    pub fn want(&self, task: &Task, wanted: u64) {
        // SeqCst: see `mask`.
        let old = self.wanted.swap(wanted, Ordering::SeqCst);
        let left = old & !wanted & self.mask();
        if left != 0 {
            retarget(task.process(), left);
        }
    }

    /// Ends that wait.
    pub fn want_nothing(&self, task: &Task) {
        self.want(task, 0);
    }

    fn wants(&self, signal: u32) -> bool {
        self.wanted.load(Ordering::SeqCst) & bit(signal) != 0
    }

    fn blocks(&self, signal: u32) -> bool {
        self.mask() & bit(signal) != 0
    }

    /// Blocks `mask` until the next delivery, or [`Self::resume`].
    pub fn suspend(&self, task: &Task, mask: u64) {
        *self.suspended.lock() = Some(self.mask());
        self.set_mask(task, mask);
    }

    /// Restores the mask from before [`Self::suspend`], if that was not done yet.
    pub fn resume(&self, task: &Task) {
        let before = self.suspended.lock().take();
        if let Some(mask) = before {
            self.set_mask(task, mask);
        }
    }

    /// Returns the mask to restore.
    fn lasting_mask(&self) -> u64 {
        self.suspended.lock().unwrap_or(self.mask())
    }

    /// Returns the pending signals of the thread and its process.
    pub fn pending(&self, process: &ProcessSignals) -> u64 {
        self.pending.set() | process.pending.set()
    }

    /// Returns whether one of them is not blocked.
    pub fn deliverable(&self, process: &ProcessSignals) -> bool {
        self.pending(process) & !self.mask() != 0
    }

    /// Takes one of `wanted` that is pending, the thread's own first.
    pub fn take(&self, process: &ProcessSignals, wanted: u64) -> Option<(u32, Origin)> {
        self.pending.take(wanted).or_else(|| process.pending.take(wanted))
    }

    /// Returns the alternate stack.
    pub fn stack(&self) -> SignalStack {
        *self.stack.lock()
    }

    /// Sets the alternate stack.
    pub fn set_stack(&self, stack: SignalStack) {
        *self.stack.lock() = stack;
    }

    /// Allows the call that now returns EINTR to be restarted after a handler with SA_RESTART, or if no
    /// handler runs.
    pub fn allow_restart(&self) {
        self.restart.store(Restart::AsHandlerSays as u8, Ordering::Relaxed);
    }

    /// Allows it only if no handler runs (ERESTARTNOHAND in Linux).
    pub fn allow_restart_without_handler(&self) {
        self.restart.store(Restart::WithoutHandler as u8, Ordering::Relaxed);
    }

    /// Returns whether the call is restarted, and forgets it. `handler` tells whether the handler that runs
    /// asks for it, if one does.
    fn take_restart(&self, handler: Option<bool>) -> bool {
        let restart = self.restart.swap(Restart::Never as u8, Ordering::Relaxed);
        restart == Restart::AsHandlerSays as u8 && handler != Some(false)
            || restart == Restart::WithoutHandler as u8 && handler.is_none()
    }
}

/// Checks that signal `number` exists.
///
/// # Errors
/// EINVAL.
pub fn checked(number: u64) -> Result<u32, Errno> {
    match number as u32 {
        signal @ 1..=NSIG => Ok(signal),
        _ => Err(Errno::EINVAL),
    }
}

/// Prepares sending: SIGCONT and the signals that stop discard one another, and SIGCONT continues the
/// process, however it is handled.
fn before_sending(process: &Arc<Process>, signal: u32) {
    let undone = match bit(signal) {
        sent if STOPPING & sent != 0 => bit(SIGCONT),
        sent if sent == bit(SIGCONT) => STOPPING,
        _ => return,
    };
    process.discard_pending(undone);
    if signal == SIGCONT {
        process.go_on();
    }
}

/// When a signal was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Now, perhaps in vain.
    Now,
    /// Before, and it is still pending.
    Before,
}

/// Sends `signal` to the thread `tid` of `process` alone.
///
/// # Errors
/// ESRCH if there is none, EAGAIN if there is no room for the origin of a real-time signal.
pub fn send_to_thread(process: &Arc<Process>, tid: u32, signal: u32, origin: Origin) -> Result<Sent, Errno> {
    if (UNSTOPPABLE | STOPPING | bit(SIGCONT)) & bit(signal) != 0 {
        process.thread(tid).ok_or(Errno::ESRCH)?;
    }
    if signal == SIGKILL {
        process.end(Ending::Signal(SIGKILL));
        return Ok(Sent::Now);
    }
    before_sending(process, signal);
    // Under the lock that replaces one thread by another: the new one takes over the signals of the old one.
    process.with_thread(tid, |task| {
        let signals = &task.thread.signals;
        if !signals.blocks(signal) && process.signals.ignores(signal) {
            return Ok(Sent::Now);
        }
        // Added first, notified second: a thread that unblocks it meanwhile, or waits for it, sees it.
        let sent = add(process, &signals.pending, signal, origin)?;
        if signals.wants(signal) || !signals.blocks(signal) {
            Task::notify(task, attention::SIGNAL);
        }
        Ok(sent)
    })?
}

/// Adds a signal to those that are pending for `process` or one of its threads.
///
/// # Errors
/// EAGAIN if there is no room for the origin of a real-time signal.
fn add(process: &Process, to: &Pending, signal: u32, origin: Origin) -> Result<Sent, Errno> {
    let most = if signal < SIGRTMIN { u64::MAX } else { process.limits.current(RLIMIT_SIGPENDING) };
    match to.add(signal, origin, most) {
        Added::New | Added::WithoutOrigin => {
            signalfd::signal_added(&process.signals);
            Ok(Sent::Now)
        }
        Added::Before => Ok(Sent::Before),
        Added::Refused => Err(Errno::EAGAIN),
    }
}

/// Returns the thread that takes `signal` if it is sent to `process`: one that waits for it, or else one that
/// does not block it.
fn receiver(process: &Process, signal: u32) -> Option<Arc<Task>> {
    let (mut waiting, mut open) = (None, None);
    process.for_each_thread(|task| {
        let signals = &task.thread.signals;
        if waiting.is_none() && signals.wants(signal) {
            waiting = Some(task.clone());
        } else if open.is_none() && !signals.blocks(signal) {
            open = Some(task.clone());
        }
    });
    waiting.or(open)
}

/// Notifies a thread for each of `signals` that is pending for `process`. The caller does not take them any
/// more: its mask blocks them, or it has left the process.
pub fn retarget(process: &Process, signals: u64) {
    let mut left = process.signals.pending.set() & signals;
    while left != 0 {
        notify_receiver(process, left.trailing_zeros() + 1);
        left &= left - 1;
    }
}

fn notify_receiver(process: &Process, signal: u32) {
    if let Some(task) = receiver(process, signal) {
        Task::notify(&task, attention::SIGNAL);
    }
}

/// Sends `signal` to `process`. A thread that waits for it, or does not block it, takes it. It may be lost if
/// there is no room for the origin of a real-time signal: see [`queue_to_process`].
pub fn send_to_process(process: &Arc<Process>, signal: u32, origin: Origin) {
    let _lost = queue_to_process(process, signal, origin);
}

/// Does the same.
///
/// # Errors
/// EAGAIN if there is no room for the origin of a real-time signal of `sigqueue`.
pub fn queue_to_process(process: &Arc<Process>, signal: u32, origin: Origin) -> Result<Sent, Errno> {
    if signal == SIGKILL {
        process.end(Ending::Signal(SIGKILL));
        return Ok(Sent::Now);
    }
    before_sending(process, signal);
    let in_vain = |task: Arc<Task>| !task.thread.signals.blocks(signal);
    if process.signals.ignores(signal) && receiver(process, signal).is_some_and(in_vain) {
        return Ok(Sent::Now);
    }
    // Added first, notified second: a thread that unblocks it meanwhile is notified, or sees it.
    let sent = add(process, &process.signals.pending, signal, origin)?;
    notify_receiver(process, signal);
    Ok(sent)
}
