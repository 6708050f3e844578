//! A thread as the scheduler sees it. The part that belongs to its process has a type that the scheduler does
//! not know.

use alloc::boxed::Box;
use alloc::sync::Arc;

use abi::Errno;
use percore::{CoreId, CoreSet};
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::{Parking, SpinLock};

use super::above::{Thread as _, Threads};
use super::attention::{self, Attention};
use super::list::Link;
use super::place;
use crate::above::Above;
use crate::arch::{self, FpuState, KernelStack, Running, Suspended, TrapFrame};
use crate::counters::{Counter, add};
use crate::mm::fallible;
use crate::mm::space::SpaceHandle;

impl Running for Above {
    type Task = Task;
}

type Thread = <Above as Threads>::Thread;

/// A thread.
pub struct Task {
    tid: u32,
    /// The part that only its process's code accesses.
    pub thread: Thread,
    /// Why this task must look up before it returns to user mode.
    pub attention: Attention,
    pub(super) parking: Parking,
    pub(super) run_link: Link,
    pub(super) wait_link: Link,
    /// The core on which it runs, waits to run, or ran last.
    core: AtomicUsize,
    affinity: SpinLock<CoreSet>,
    /// Its flow of control while no core runs it.
    pub(super) flow: SpinLock<Option<Suspended>>,
    pub(super) registers: SpinLock<Registers>,
    /// CPU time up to the last switch away, and when it was last switched to.
    pub(super) cpu_ns: AtomicU64,
    pub(super) since_ns: AtomicU64,
    /// When its call gives up a wait, in nanoseconds since boot, or 0. Relaxed: only the task itself uses it.
    pub(super) wait_limit: AtomicU64,
}

/// User registers that the kernel itself does not use, while the task does not run.
pub struct Registers {
    pub(super) fpu: Box<FpuState>,
    pub(super) fs_base: u64,
}

/// The initial state of a new task.
pub struct Start {
    /// User registers.
    pub frame: TrapFrame,
    /// Floating point and vector registers.
    pub fpu: Box<FpuState>,
    /// Thread-local storage.
    pub fs_base: u64,
    /// The cores on which it may run.
    pub affinity: CoreSet,
}

impl Task {
    /// Creates a task that [`place::enqueue`] will run for the first time.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(tid: u32, thread: Thread, stack: KernelStack, start: Start) -> Result<Arc<Self>, Errno> {
        let flow = Suspended::new_user_thread(stack, start.frame);
        // Subtracted again when the task is dropped, also if there is no memory for it.
        add(&percore::pin(), Counter::Tasks, 1);
        fallible::arc(Self {
            tid,
            thread,
            attention: Attention::new(),
            parking: Parking::new(),
            run_link: Link::new(),
            wait_link: Link::new(),
            core: AtomicUsize::new(place::near(&start.affinity).index()),
            affinity: SpinLock::new(start.affinity),
            flow: SpinLock::new(Some(flow)),
            registers: SpinLock::new(Registers { fpu: start.fpu, fs_base: start.fs_base }),
            cpu_ns: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            wait_limit: AtomicU64::new(0),
        })
    }

    /// Returns the task's number.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// Returns the address space of its process.
    #[inline(always)]
    pub fn space(&self) -> &Arc<SpaceHandle> {
        self.thread.space()
    }

    /// Returns the core on which the task runs, waits to run, or ran last.
    pub fn core(&self) -> CoreId {
        // SeqCst: see `notify`.
        CoreId::new(self.core.load(Ordering::SeqCst))
    }

    pub(super) fn set_core(&self, core: CoreId) {
        self.core.store(core.index(), Ordering::SeqCst);
    }

    /// Returns the cores on which the task may run.
    pub fn affinity(&self) -> CoreSet {
        *self.affinity.lock()
    }

    pub(super) fn replace_affinity(&self, cores: CoreSet) {
        *self.affinity.lock() = cores;
    }

    /// Returns whether a core runs the task, or will.
    pub fn is_running(&self) -> bool {
        !self.parking.is_asleep()
    }

    /// Returns the CPU time so far, in nanoseconds. Exact for the caller itself, up to one slice old for
    /// others.
    pub fn cpu_ns(&self) -> u64 {
        // Relaxed: a statistic.
        let past = self.cpu_ns.load(Ordering::Relaxed);
        match self.since_ns.load(Ordering::Relaxed) {
            0 => past,
            since => past + arch::now_ns().saturating_sub(since),
        }
    }

    /// Ends the task's sleep, or makes its next one return at once. Returns whether it slept.
    pub fn wake(this: &Arc<Self>) -> bool {
        let slept = this.parking.wake();
        if slept {
            place::enqueue(this.clone());
        }
        slept
    }

    /// Makes the task see `reasons` before it runs another user instruction, also if it sleeps or runs
    /// elsewhere.
    ///
    /// Either the task sees the reasons when it checks, with interrupts off, on its way to user mode. Or it
    /// checked before they were raised: then the core it says it is on is the core it checked on, and the
    /// interrupt hits it in user mode. Both sides write first and read second. The caller writes the reasons
    /// and reads the task's core. The task writes its core (when switched to) and reads the reasons. All are
    /// SeqCst, so at least one sees the other.
    pub fn notify(this: &Arc<Self>, reasons: u32) {
        this.attention.raise(reasons);
        let active = !Self::wake(this);
        let core = this.core();
        if active && core != arch::core() {
            arch::send_reschedule(core);
        }
    }

    /// # Errors
    /// EINTR if the task should leave the call it sleeps in: a signal is pending, or its process ends.
    pub fn check_interrupted(&self) -> Result<(), Errno> {
        match self.is_killed() || self.signal_pending() {
            true => Err(Errno::EINTR),
            false => Ok(()),
        }
    }

    /// Returns whether the task's work has no use any more, because its process ends, or goes on with another
    /// thread only.
    pub fn is_killed(&self) -> bool {
        self.attention.has(attention::KILLED)
    }

    fn signal_pending(&self) -> bool {
        let reasons = self.attention.reasons() & (attention::SIGNAL | attention::TRACE);
        reasons != 0 && (reasons & attention::TRACE != 0 || self.thread.has_signal())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        add(&percore::pin(), Counter::Tasks, -1);
    }
}
