//! Tracing: a thread of another process, the tracer, stops a thread, the tracee, and reads and changes it.
//!
//! ```text
//!   tracer's process ──tracees──▶ Tracee ◀──tracee── task of the tracee
//!                    ◀──tracer (weak)──┘ └──process (weak)──▶ tracee's process
//! ```
//!
//! | a tracee | is | changed to it by |
//! |---|---|---|
//! | runs | on its way, or asleep in a call | the tracer, which lets a stopped one go on |
//! | stopped | parked, or about to park, its registers in `saved` | its task, in [`stop`](Tracee::stop) |
//! | gone | traced no more | the tracer, or its end |
//! | ended | a thread, or process, whose end its tracer has not waited for | its last act |
//!
//! 1. A tracee stops and goes on under the lock of its state. The tracer writes `saved` with that lock, and
//!    only while the tracee is stopped. The task takes it back when it goes on, and makes it harmless then.
//! 2. The state changes first, then the task is woken. The task looks at the state after it has said that
//!    it sleeps (`sync::Parking`), so it does not sleep through that.
//! 3. A killed task does not stop, and one that is stopped goes on (to its end).
//! 4. The task itself takes its tracee out of its place when it finds that it is gone. Until then another
//!    tracer may put its own there.
//! 5. A thread of a process can become a tracee only under the lock of its threads, and only if it is among
//!    them. So a thread that leaves finds there whether it is traced. A main thread that leaves gives its
//!    tracee to the process under the same lock, before the last thread ends that.
//! 6. A tracer asks for its rights under that lock, too, where an executed program takes the place of its
//!    thread. So it becomes the tracer before, and the program gets no rights (unless it may trace threads of
//!    all users), or after, and needs rights over the program's user.
//! 7. If the process of a traced main thread ends and its tracer is not its parent, the parent hears of it
//!    when the tracer has waited for it, or traces it no more. One of the two comes first, under the lock of
//!    the state: the end, or that it is gone.
//!
//! Lock order: the tracer's `children`, the tracee's `threads`, the task's `tracee`, the tracee's state. The
//! lock of `main_tracee`, and that of the count, are taken last.
//! Nothing is notified under the state's lock.
//!
//! An untraced task pays nothing: the entry of system calls that looks for tracees is installed only while
//! there are some ([`choose_entry`]). The rest is behind bits of [`attention`] that are looked at anyway.

mod events;
mod registers;
mod requests;
mod stops;

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};

use abi::Errno;
use abi::ptrace::*;
use abi::signal::{CLD_STOPPED, CLD_TRAPPED, SA_NOCLDSTOP, SIG_IGN, SIGCHLD, SIGTRAP};
use sync::SpinLock;
use sync::atomic::{AtomicU32, AtomicUsize, Ordering};

pub use events::{
    after_clone, after_exec, after_vfork, at_exit, end_is_held, main_thread_leaves, prepare_child,
    release_all, thread_leaves, tracer_executes, tracer_leaves,
};
pub use registers::Saved;
pub use requests::{attach, seize, trace_me};
pub use stops::{
    at_return, before_handler, handler_entered, on_signal, step_is_stale, traced_call, without_step,
};

use super::signal::{self, Origin};
use super::{Ending, Memory, Process};
use crate::arch;
use crate::mm::fallible;
use crate::sched::{self, Task, attention};

impl State {
    /// Returns the message of the last event.
    pub fn message(&self) -> u64 {
        self.message
    }

    /// Returns the signal of the stop and its origin, or `None` if the stop has none.
    pub fn signal(&self) -> Option<(u32, Origin)> {
        let code = self.report.code;
        let signal = if code >> 8 == 0 { code & 0x7f } else { SIGTRAP };
        self.report.origin.map(|origin| (signal, origin))
    }

    /// Sets the origin of the stop's signal.
    pub fn set_origin(&mut self, origin: Origin) {
        self.report.origin = Some(origin);
    }

    /// Returns which end of a call it has stopped at: `PTRACE_SYSCALL_INFO_*`.
    pub fn call_end(&self) -> u32 {
        let is_call = self.report.code == SIGTRAP | 0x80;
        match (is_call, self.message as u32) {
            (true, PTRACE_EVENTMSG_SYSCALL_ENTRY) => PTRACE_SYSCALL_INFO_ENTRY,
            (true, PTRACE_EVENTMSG_SYSCALL_EXIT) => PTRACE_SYSCALL_INFO_EXIT,
            _ => PTRACE_SYSCALL_INFO_NONE,
        }
    }

    /// Returns the mask that it gets when it goes on, if that was set.
    pub fn mask(&self) -> Option<u64> {
        self.mask
    }

    /// Sets the mask that it gets when it goes on.
    pub fn set_mask(&mut self, mask: u64) {
        self.mask = Some(mask);
    }
}

/// A thread as its tracer sees it. See the module.
pub struct Tracee {
    /// Its number. Changed by exec of a thread that is not the main one.
    tid: AtomicU32,
    process: Weak<Process>,
    tracer: Weak<Process>,
    /// The thread that traces it, or 0 if any thread of the tracer does. Changed by exec of a thread that is
    /// not the main one.
    tracer_tid: AtomicU32,
    /// Set if it was seized, and not attached.
    is_seized: bool,
    /// Set if its tracer could trace threads of all users when it became that: a program that the tracee
    /// executes gets its rights then.
    is_tracer_privileged: bool,
    state: SpinLock<State>,
}

/// The tracer of a new tracee.
struct Tracer {
    /// The thread, or 0.
    tid: u32,
    process: Weak<Process>,
    is_privileged: bool,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Runs,
    Stopped,
    Gone,
    Ended(Ending),
}

/// How a tracee goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To its next signal or event.
    Freely,
    /// To the beginning or the end of a call.
    ToCall,
    /// For one instruction.
    OneStep,
}

/// The news that a stop is for the tracer.
#[derive(Clone, Copy, Debug)]
struct Report {
    /// The signal, and in the second byte the event.
    code: u32,
    /// The signal's origin, if a signal or an event is the reason.
    origin: Option<Origin>,
    /// The answer to PTRACE_GETEVENTMSG from now on.
    message: Option<u64>,
}

/// The state of a tracee.
pub struct State {
    phase: Phase,
    /// `PTRACE_O_*`.
    options: u32,
    mode: Mode,
    message: u64,
    report: Report,
    /// Set once the tracer has waited for the stop.
    is_reported: bool,
    /// Set while it is stopped and the tracer listens.
    listens: bool,
    /// The signal that it gets when it goes on, or 0.
    injected: u32,
    /// The mask that it gets when it goes on.
    mask: Option<u64>,
    /// The reports that the task is to make on its way to user mode: a set of `want`.
    wanted: u32,
    /// Set if the kernel, and not the program, has set the trap flag.
    steps: bool,
    /// The status with which the thread exits alone.
    exit_status: u8,
    /// The number before exec.
    former_tid: u32,
    /// The process, from its end until the tracer has waited for that.
    ended: Option<Arc<Process>>,
    /// Its registers, while it is stopped.
    pub saved: Box<Saved>,
}

/// Reports that a task is to make on its way to user mode.
mod want {
    /// PTRACE_INTERRUPT, or the birth of a child of a seized one. Any stop will do.
    pub const STOP: u32 = 1;
    /// It runs another program.
    pub const EXEC: u32 = 2;
    /// It is seized, and there was a SIGCONT. Only a stop of PTRACE_EVENT_STOP will do.
    pub const CONTINUED: u32 = 4;
}

/// The place for a task's tracee.
pub type Place = SpinLock<Option<Arc<Tracee>>>;

/// Tasks with a tracee. The entry of calls looks for tracees if there is one.
static TRACED: SpinLock<usize> = SpinLock::new(0);
/// The same number, for the cores. Written under that lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Chooses the entry of system calls on this core. A core does so before it runs a tracee: the number rose
/// first, then all cores were asked, and only then the tracee went on.
pub fn choose_entry() {
    arch::choose_syscall_entry(COUNT.load(Ordering::SeqCst) != 0);
}

/// Counts a task of `process` that gets a tracee, or gives one up.
fn count_task(process: &Process, change: isize) {
    process.traced.fetch_add(change as u32, Ordering::Relaxed);
    let mut traced = TRACED.lock();
    let before = *traced;
    *traced = before.wrapping_add_signed(change);
    COUNT.store(*traced, Ordering::SeqCst);
    if (before == 0) != (*traced == 0) {
        sched::renew_entries();
    }
}

/// Returns the tracee of `task`, if it is traced.
#[cold]
pub fn of(task: &Task) -> Option<Arc<Tracee>> {
    let found = task.thread.tracee.lock().clone()?;
    if found.state.lock().phase != Phase::Gone {
        return Some(found);
    }
    None
}

/// Returns the number of the tracer of a thread, or 0.
pub fn tracer_of(task: &Task) -> u32 {
    of(task).and_then(|tracee| tracee.tracer.upgrade()).map_or(0, |tracer| tracer.pid())
}

/// Returns whether a program that `task` executes gets no rights that it does not have, because it is traced.
pub fn withholds_rights(task: &Task) -> bool {
    task.attention.has(attention::TRACED) && of(task).is_some_and(|tracee| !tracee.is_tracer_privileged)
}

/// Returns whether it is traced and stopped.
pub fn is_stopped(task: &Task) -> bool {
    of(task).is_some_and(|tracee| tracee.state.lock().phase == Phase::Stopped)
}

impl Tracee {
    /// Creates a tracee that runs.
    ///
    /// # Errors
    /// ENOMEM.
    fn new(
        task: (u32, &Arc<Process>),
        tracer: Tracer,
        is_seized: bool,
        options: u32,
    ) -> Result<Arc<Self>, Errno> {
        let state = State {
            phase: Phase::Runs,
            options,
            mode: Mode::Freely,
            message: 0,
            report: Report { code: 0, origin: None, message: None },
            is_reported: true,
            listens: false,
            injected: 0,
            mask: None,
            wanted: 0,
            steps: false,
            exit_status: 0,
            former_tid: 0,
            ended: None,
            saved: fallible::boxed(Saved::new())?,
        };
        fallible::arc(Self {
            tid: AtomicU32::new(task.0),
            process: Arc::downgrade(task.1),
            tracer: tracer.process,
            tracer_tid: AtomicU32::new(tracer.tid),
            is_seized,
            is_tracer_privileged: tracer.is_privileged,
            state: SpinLock::new(state),
        })
    }

    /// Returns its number.
    pub fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Returns the memory of its task, for its tracer.
    ///
    /// # Errors
    /// EIO if the memory is hidden from processes of its user, and the tracer could not trace all threads
    /// when it became that.
    pub fn memory_of<'a>(&self, task: &'a Task) -> Result<&'a Memory, Errno> {
        let memory = &task.shared().memory;
        if self.is_tracer_privileged || memory.is_dumpable() { Ok(memory) } else { Err(Errno::EIO) }
    }

    /// Returns its real user.
    pub fn real_user(&self) -> u32 {
        self.process().map_or(0, |process| process.real_user())
    }

    /// Returns its process.
    pub fn process(&self) -> Option<Arc<Process>> {
        self.process.upgrade()
    }

    /// Returns whether `task` traces it.
    pub fn is_traced_by(&self, task: &Task) -> bool {
        let tracer = self.tracer_tid.load(Ordering::Relaxed);
        core::ptr::eq(self.tracer.as_ptr(), Arc::as_ptr(task.process()))
            && (tracer == 0 || tracer == task.tid())
    }

    fn has(&self, option: u32) -> bool {
        self.state.lock().options & option != 0
    }

    /// Calls `f` with the state of a tracee that is stopped.
    ///
    /// # Errors
    /// ESRCH if it is not, and those of `f`.
    pub fn while_stopped<R>(&self, f: impl FnOnce(&mut State) -> Result<R, Errno>) -> Result<R, Errno> {
        let mut state = self.state.lock();
        if state.phase != Phase::Stopped || state.listens {
            return Err(Errno::ESRCH);
        }
        f(&mut state)
    }

    /// Notifies the tracer of a stop for the reason `code`.
    fn notify_tracer(&self, code: u32, is_group_stop: bool) {
        let Some(tracer) = self.tracer.upgrade() else { return };
        let action = tracer.signals.action(SIGCHLD);
        if action.handler != SIG_IGN && action.flags & SA_NOCLDSTOP == 0 {
            let why = if is_group_stop { CLD_STOPPED } else { CLD_TRAPPED };
            let origin =
                Origin::of_two(why, Origin::peer(self.tid(), self.real_user()), u64::from(code & 0x7f));
            signal::send_to_process(&tracer, SIGCHLD, origin);
        }
        tracer.relations.changed.wake_all();
    }

    /// Returns its news for a wait by its tracer, and whether that is its end. A stop is reported only once,
    /// unless it is to `stay`.
    pub fn news(&self, wants_end: bool, stay: bool) -> Option<super::State> {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Stopped if !state.is_reported => {
                state.is_reported = !stay;
                Some(super::State::Traced(state.report.code))
            }
            Phase::Ended(ending) if wants_end => Some(super::State::Ended(ending)),
            _ => None,
        }
    }

    /// Traces it no more. It goes on, with `signal` if that is not 0, and its parent hears of its end if it
    /// has ended.
    pub fn release(&self, signal: u32) {
        let (phase, ended) = {
            let mut state = self.state.lock();
            let before = core::mem::replace(&mut state.phase, Phase::Gone);
            state.injected = signal;
            state.mode = Mode::Freely;
            (before, state.ended.take())
        };
        if let (Phase::Ended(ending), Some(process)) = (phase, ended) {
            process.tell_end(ending);
        }
        if phase == Phase::Stopped {
            self.wake();
        }
    }

    /// Lets a stopped tracee go on with `signal`, or 0.
    ///
    /// # Errors
    /// ESRCH if it is not stopped.
    pub fn go_on(&self, mode: Mode, signal: u32) -> Result<(), Errno> {
        self.while_stopped(|state| {
            state.phase = Phase::Runs;
            (state.mode, state.injected) = (mode, signal);
            Ok(())
        })?;
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        if let Some(task) = self.task() {
            Task::wake(&task);
        }
    }

    /// Returns its task, while that is a thread of its process.
    fn task(&self) -> Option<Arc<Task>> {
        self.process()?.thread(self.tid())
    }

    /// Sets `PTRACE_O_*`.
    ///
    /// # Errors
    /// ESRCH if it is not stopped.
    pub fn set_options(&self, options: u32) -> Result<(), Errno> {
        self.while_stopped(|state| {
            state.options = options;
            Ok(())
        })
    }

    /// Leaves it stopped, but lets it report SIGCONT and PTRACE_INTERRUPT.
    ///
    /// # Errors
    /// ESRCH if it is not stopped, EIO if it was not seized, or the stop is not one of its process.
    pub fn listen(&self, task: &Task) -> Result<(), Errno> {
        let is_seized = self.is_seized;
        let has_news = self.while_stopped(|state| {
            if !is_seized || state.report.code >> 8 != PTRACE_EVENT_STOP {
                return Err(Errno::EIO);
            }
            state.listens = true;
            Ok(state.wanted & (want::STOP | want::CONTINUED) != 0)
        })?;
        if has_news {
            self.stop_again(task);
        }
        Ok(())
    }

    /// Stops it, wherever it is.
    ///
    /// # Errors
    /// EIO if it was not seized, ESRCH if it has ended.
    pub fn interrupt(&self, task: &Arc<Task>) -> Result<(), Errno> {
        if !self.is_seized {
            return Err(Errno::EIO);
        }
        self.want(task, want::STOP);
        Ok(())
    }

    /// Makes `task` look up, and leave a call in which it sleeps, to report `wanted`. If it is stopped, and
    /// its tracer listens, that is a stop at once.
    fn want(&self, task: &Arc<Task>, wanted: u32) {
        self.state.lock().wanted |= wanted;
        if !self.stop_again(task) {
            Task::notify(task, attention::TRACE);
        }
    }
}

impl Report {
    /// A stop that a signal is the reason of.
    fn of_signal(signal: u32, origin: Origin) -> Self {
        Self { code: signal, origin: Some(origin), message: None }
    }

    /// A stop of `task` that tells of an event, or of a call.
    fn of_event(task: &Task, code: u32, message: Option<u64>) -> Self {
        let origin = Origin::new(code as i32, task.tid().into());
        Self { code, origin: Some(origin), message }
    }

    fn event(task: &Task, event: u32, message: u64) -> Self {
        Self::of_event(task, SIGTRAP | event << 8, Some(message))
    }

    /// A stop of the whole process by `signal`.
    fn of_group(task: &Task, tracee: &Tracee, signal: u32) -> Self {
        match tracee.is_seized {
            true => Self::of_event(task, signal | PTRACE_EVENT_STOP << 8, None),
            false => Self { code: signal, origin: None, message: None },
        }
    }
}
