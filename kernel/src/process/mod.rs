//! Processes: what the threads of one program share, how it starts and how it ends.
//!
//! | file | what |
//! |---|---|
//! | `thread` | what a task is to its process; `clone`, exit |
//! | `start`, `elf`, `image`, `stack` | from a file to a running program |
//! | `end` | exit of a process; killing |
//! | `heap` | `brk` |
//! | `fault` | exceptions of programs |
//! | `signal` | signals and their handlers |
//! | `patience` | what to do when memory is short |
//! | `futex`, `robust` | sleeping on a word of the program's memory |
#![deny(unsafe_code)]

mod elf;
mod end;
pub mod fault;
pub mod futex;
mod heap;
mod image;
mod patience;
mod robust;
pub mod signal;
mod stack;
mod start;
mod thread;

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::process::{RLIM_INFINITY, RLIMIT_CORE, RLIMIT_NLIMITS, RLIMIT_NOFILE, RLIMIT_STACK, Rlimit};
use sync::SpinLock;
use sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::arch::TrapFrame;
use crate::fs::FdTable;
use crate::mm::space::SpaceHandle;
use crate::sched::{self, Task, attention};

pub use end::Ending;
use end::EndingCell;
use heap::Heap;
pub use patience::{Patience, under_lock};
use signal::ProcessSignals;
pub use stack::TICKS_PER_SECOND;
pub use start::start_first;
pub use thread::{NewThread, Thread, exit_thread, spawn};

/// Bytes of a main thread's stack.
pub const STACK_BYTES: u64 = 8 << 20;

/// One program in execution.
pub struct Process {
    pid: u32,
    space: Arc<SpaceHandle>,
    /// Its open files.
    pub files: FdTable,
    /// What it does about signals, and those sent to all of it.
    pub signals: ProcessSignals,
    /// The end of its data segment.
    pub heap: Heap,
    /// Limits, told and not enforced.
    pub limits: SpinLock<[Rlimit; RLIMIT_NLIMITS as usize]>,
    /// Threads by rising tid.
    threads: SpinLock<Vec<Arc<Task>>>,
    ending: EndingCell,
    /// What the main thread said when it exited alone: the process's status if no thread ends it otherwise.
    pub main_status: AtomicU8,
    load_bias: u64,
    /// CPU time of threads that are gone.
    past_cpu_ns: AtomicU64,
}

/// The last tid given out. The first process is 1, and so is its main thread.
static LAST_TID: AtomicU32 = AtomicU32::new(0);

fn next_tid() -> u32 {
    // Relaxed: only uniqueness matters.
    LAST_TID.fetch_add(1, Ordering::Relaxed) + 1
}

fn default_limits() -> [Rlimit; RLIMIT_NLIMITS as usize] {
    let same = |bytes| Rlimit { current: bytes, maximum: bytes };
    let mut limits = [same(RLIM_INFINITY); RLIMIT_NLIMITS as usize];
    limits[RLIMIT_STACK as usize].current = STACK_BYTES;
    limits[RLIMIT_CORE as usize].current = 0;
    limits[RLIMIT_NOFILE as usize] = same(crate::fs::MAX_FILES);
    limits
}

impl Process {
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its memory.
    #[inline(always)]
    pub fn space(&self) -> &Arc<SpaceHandle> {
        &self.space
    }

    /// What was added to the addresses in its file.
    pub fn load_bias(&self) -> u64 {
        self.load_bias
    }

    /// The thread with this number.
    pub fn thread(&self, tid: u32) -> Option<Arc<Task>> {
        let threads = self.threads.lock();
        let at = threads.binary_search_by_key(&tid, |task| task.tid()).ok()?;
        Some(threads[at].clone())
    }

    /// Calls `f` with every thread.
    pub fn for_each_thread(&self, f: impl FnMut(&Arc<Task>)) {
        self.threads.lock().iter().for_each(f);
    }

    /// CPU time of all its threads, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        let mut sum = self.past_cpu_ns.load(Ordering::Relaxed);
        self.for_each_thread(|task| sum += task.cpu_ns());
        sum
    }
}

/// What the running task was notified of: the end of its process, or signals.
pub fn attend(frame: &mut TrapFrame) {
    let ending = sched::with_current(|task| {
        task.attention.clear(attention::SIGNAL);
        task.process().ending.is_set()
    });
    if ending {
        exit_thread();
    }
    sched::with_current(|task| fault::meet(task, signal::deliver(task, frame), frame));
}
