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
mod states;
pub mod waiting_count;

use alloc::sync::Arc;

use abi::Errno;
use abi::process::RLIMIT_SIGPENDING;
use abi::signal::*;
use rcu::Word;
use sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use sync::{CachePadded, SpinLock};

use super::{Ending, Process};
use crate::sched::{Task, attention};
use actions::Actions;
use states::States;

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
    /// The actions, always there. Processes may share them (CLONE_SIGHAND).
    actions: Word<Arc<Actions>>,
    pending: CachePadded<Pending>,
    /// The states of its threads.
    pub states: States,
    /// Set once a thread has asked whether a file of signals is ready. Then signals wake pollers.
    are_polled: AtomicBool,
    /// Counts the signals that were added since, and changes of such files.
    added: AtomicU64,
}

impl Process {
    /// Sets the action for `signal` and returns the old one. If the signal is ignored from now on, it is not
    /// pending any more, neither for the process nor for a thread.
    pub fn set_action(&self, signal: u32, action: Sigaction) -> Sigaction {
        self.signals.set_action(signal, action)
    }

    /// Returns whether a tracer is to see the signals that it ignores.
    fn is_traced(&self) -> bool {
        self.traced.load(Ordering::Relaxed) != 0
    }
}

impl ProcessSignals {
    fn discard_pending(&self, signals: u64) {
        self.pending.discard(signals);
        self.states.for_each(|state| state.pending.discard(signals));
    }

    /// Removes the pending signals of timers, of which a new program has none.
    pub fn forget_timers(&self) {
        self.pending.forget_timers();
        self.states.for_each(|state| state.pending.forget_timers());
    }
}

/// When a call that returns EINTR is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Not at all.
    Never,
    /// If no handler runs, or one with SA_RESTART.
    AsHandlerSays,
    /// If no handler runs.
    WithoutHandler,
    /// If no handler runs, for the rest of its time, by `restart_syscall`.
    ForTheRest,
}

/// The rest of a sleep.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// Its end, in nanoseconds since boot.
    pub until: u64,
    /// The address where the rest is written if the sleep is ended again, or 0.
    pub remaining: u64,
}

/// The signal state of a thread. The first fields are those that senders read: see [`states`].
#[repr(C)]
pub struct ThreadSignals {
    /// The number of the thread, or 0.
    tid: AtomicU32,
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
    /// The rest of the sleep that may be.
    rest: SpinLock<Option<Rest>>,
}

impl ThreadSignals {
    /// Creates a state that is no thread's.
    pub const fn new() -> Self {
        Self {
            tid: AtomicU32::new(0),
            mask: AtomicU64::new(u64::MAX),
            wanted: AtomicU64::new(0),
            pending: CachePadded::new(Pending::new()),
            suspended: SpinLock::new(None),
            stack: SpinLock::new(altstack::NONE),
            restart: AtomicU8::new(Restart::Never as u8),
            rest: SpinLock::new(None),
        }
    }

    /// Returns what a child has of it: it blocks the same signals. If `its_own`, it has the same alternate
    /// stack, on which no other thread runs meanwhile.
    pub fn inherit(&self, its_own: bool) -> Inherited {
        Inherited { mask: self.lasting_mask(), stack: if its_own { self.stack() } else { altstack::NONE } }
    }

    /// Sets what a new task has inherited.
    fn begin(&self, inherited: Inherited) {
        self.mask.store(inherited.mask, Ordering::SeqCst);
        self.set_stack(inherited.stack);
    }

    /// Makes it the state of the thread `tid`, which joins its process.
    pub fn enter(&self, tid: u32) {
        // Relaxed: a sender that finds it looks again under the lock of the pending signals.
        self.tid.store(tid, Ordering::Relaxed);
    }

    /// Makes it no thread's, since its thread has left the process. Returns the mask.
    pub fn leave(&self) -> u64 {
        self.pending.under_lock(|| self.tid.store(0, Ordering::Relaxed));
        // SeqCst: see `states`.
        self.mask.swap(u64::MAX, Ordering::SeqCst)
    }

    /// Makes it as new. Its task has ended.
    fn clear(&self) {
        self.leave();
        self.wanted.store(0, Ordering::Relaxed);
        self.pending.clear();
        *self.suspended.lock() = None;
        self.restart.store(Restart::Never as u8, Ordering::Relaxed);
    }

    fn is_of(&self, tid: u32) -> bool {
        self.tid.load(Ordering::Relaxed) == tid
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
    pub fn lasting_mask(&self) -> u64 {
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

    /// Allows a sleep to go on for its rest if no handler runs (ERESTART_RESTARTBLOCK in Linux).
    pub fn allow_rest(&self, rest: Rest) {
        *self.rest.lock() = Some(rest);
        self.allow(Restart::ForTheRest);
    }

    /// Takes the rest of the sleep that is restarted.
    pub fn take_rest(&self) -> Option<Rest> {
        self.rest.lock().take()
    }

    /// Sets when the call that now returns EINTR is restarted.
    pub fn allow(&self, restart: Restart) {
        self.restart.store(restart as u8, Ordering::Relaxed);
    }

    /// Returns when the call is restarted.
    pub fn allowed_restart(&self) -> Restart {
        let kinds = [Restart::AsHandlerSays, Restart::WithoutHandler, Restart::ForTheRest];
        let set = self.restart.load(Ordering::Relaxed);
        kinds.into_iter().find(|&kind| kind as u8 == set).unwrap_or(Restart::Never)
    }

    /// Returns whether the call is restarted, and how, and forgets it. `handler` tells whether the handler
    /// that runs asks for it, if one does.
    fn take_restart(&self, handler: Option<bool>) -> Restart {
        let restart = self.allowed_restart();
        self.allow(Restart::Never);
        match restart {
            Restart::AsHandlerSays if handler != Some(false) => restart,
            _ if handler.is_none() => restart,
            _ => Restart::Never,
        }
    }
}

/// The part of a task's signal state that a new task gets.
#[derive(Clone, Copy, Debug)]
pub struct Inherited {
    mask: u64,
    stack: SignalStack,
}

impl Inherited {
    /// The state of the first thread.
    pub const NOTHING: Self = Self { mask: 0, stack: altstack::NONE };

    /// Returns the state of a new task of `process`. The task gives it back when it ends.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn state_in(self, process: &ProcessSignals) -> Result<Arc<ThreadSignals>, Errno> {
        let state = process.states.take()?;
        state.begin(self);
        Ok(state)
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
    process.signals.discard_pending(undone);
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
    let states = &process.signals.states;
    let sent =
        states.of(tid).and_then(|state| send_to_state(process, state, tid, signal, origin).transpose());
    let (sent, notifies) = match sent {
        Some(sent) => sent?,
        // It may have run another program meanwhile, or be one of very many.
        None => process.with_thread(tid, |task| {
            send_to_state(process, &task.thread.signals, tid, signal, origin)?.ok_or(Errno::ESRCH)
        })??,
    };
    if notifies {
        // If it has ended, so be it. A thread that replaced it looks at the signals that it takes over.
        let _gone = process.with_thread(tid, |task| Task::notify(task, attention::SIGNAL));
    }
    Ok(sent)
}

/// Sends a signal to the thread `tid`, which had this state a moment ago. Returns also whether the thread is
/// to be notified, or `None` if the state is not the thread's any more.
///
/// # Errors
/// EAGAIN, as above.
fn send_to_state(
    process: &Process,
    state: &ThreadSignals,
    tid: u32,
    signal: u32,
    origin: Origin,
) -> Result<Option<(Sent, bool)>, Errno> {
    if !state.blocks(signal) && process.signals.ignores(signal) && !process.is_traced() {
        return Ok(state.is_of(tid).then_some((Sent::Now, false)));
    }
    // Added first, notified second: a thread that unblocks it meanwhile, or waits for it, sees it.
    let sent = add(process, &state.pending, signal, origin, || state.is_of(tid))?;
    Ok(sent.map(|sent| (sent, state.wants(signal) || !state.blocks(signal))))
}

/// Sends `signal` to `task`, which does not run yet.
pub fn begin_with(task: &Task, signal: u32, origin: Origin) {
    let _without_origin = task.thread.signals.pending.add(signal, origin, u64::MAX, || true);
    task.attention.raise(attention::SIGNAL);
}

/// Adds a signal to those that are pending for `process` or one of its threads, unless `is_receiver` finds
/// then that they are not those of the receiver any more.
///
/// # Errors
/// EAGAIN if there is no room for the origin of a real-time signal.
fn add(
    process: &Process,
    to: &Pending,
    signal: u32,
    origin: Origin,
    is_receiver: impl Fn() -> bool,
) -> Result<Option<Sent>, Errno> {
    let is_unlimited = signal < SIGRTMIN && origin.code >= 0;
    let most = if is_unlimited { u64::MAX } else { process.limits.current(RLIMIT_SIGPENDING) };
    match to.add(signal, origin, most, is_receiver) {
        Some(Added::New | Added::WithoutOrigin) => {
            signalfd::signal_added(&process.signals);
            Ok(Some(Sent::Now))
        }
        Some(Added::Before) => Ok(Some(Sent::Before)),
        Some(Added::Refused) => Err(Errno::EAGAIN),
        None => Ok(None),
    }
}

/// Returns the thread that takes `signal` if it is sent to `process`: one that waits for it, or else one that
/// does not block it.
fn receiver(process: &Process, signal: u32) -> Option<Arc<Task>> {
    if !process.signals.states.may_take(signal) {
        return None;
    }
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
    if process.signals.ignores(signal)
        && !process.is_traced()
        && receiver(process, signal).is_some_and(in_vain)
    {
        return Ok(Sent::Now);
    }
    // Added first, notified second: a thread that unblocks it meanwhile is notified, or sees it.
    let sent = add(process, &process.signals.pending, signal, origin, || true)?;
    notify_receiver(process, signal);
    Ok(sent.unwrap_or(Sent::Now))
}
