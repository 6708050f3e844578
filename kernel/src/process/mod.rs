//! Processes: how they start, the state that their threads share, and how they end.
//!
//! | file | contents |
//! |---|---|
//! | `pid` | pids and tids, and the table from them to processes |
//! | `thread` | the part of a task that belongs to its process |
//! | `clone`, `vfork` | making threads and processes |
//! | `memory`, `heap` | an address space with its program, `brk` |
//! | `freeze` | freezing threads while their memory is copied |
//! | `pages`, `limits` | the memory in use, its limits |
//! | `start`, `exec`, `script`, `arguments` | running the first program, and another one |
//! | `load`, `elf`, `image`, `stack`, `vdso` | loading a program into memory |
//! | `end`, `shutdown` | the end of a process, and of the machine with the first process |
//! | `parent`, `wait`, `usage` | parents and children, waiting for children, resource usage |
//! | `ptrace`, `remote` | tracing the threads of another process, access to its memory |
//! | `timers`, `cpu_timers` | timers that send signals |
//! | `pidfd` | descriptors of processes |
//! | `groups`, `stop` | groups and sessions, stopping and continuing |
//! | `terminal` | the terminal of a run that has one |
//! | `fault`, `oom`, `oom_badness` | exceptions of programs, the OOM kill, the badness of a process |
//! | `signal` | signals and their handlers |
//! | `reclaim`, `rounds`, `page_out` | freeing memory when it is short |
//! | `pieces` | operations on long ranges |
//! | `futex`, `robust` | sleeping on a word of the program's memory |
//! | `ipc` | SysV shared memory, semaphores, messages |
//! | `mqueue` | POSIX message queues |
#![deny(unsafe_code, clippy::indexing_slicing, clippy::unwrap_used)]

mod arguments;
mod clone;
pub mod cpu_timers;
mod elf;
mod end;
mod exec;
pub mod fault;
mod freeze;
pub mod futex;
mod groups;
mod heap;
mod image;
pub mod ipc;
mod limits;
mod load;
mod local_counts;
mod memory;
pub mod mqueue;
mod oom;
mod oom_badness;
mod page_out;
mod pages;
mod parent;
pub mod pid;
pub mod pidfd;
pub mod pieces;
pub mod ptrace;
mod reclaim;
pub mod remote;
mod robust;
mod rounds;
mod script;
mod shutdown;
pub mod signal;
mod stack;
mod start;
mod stop;
pub mod terminal;
mod thread;
pub mod timers;
mod usage;
pub mod vdso;
mod vfork;
mod wait;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use abi::Errno;
use percore::pin;
use sync::SpinLock;
use sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use vm::{HUGE_PAGES, PAGE_SIZE};

use crate::arch::TrapFrame;
use crate::sched::{self, Task, attention};

pub use arguments::Strings;
pub use clone::{Clone, clone};
pub use end::Ending;
use end::EndingCell;
pub use exec::exec;
pub use groups::Groups;
use ipc::semaphores::Undoing;
pub use limits::{Growth, Limits, within_limits};
pub use memory::{Mapped, Memory, Program};
pub use oom::wait_for_oom;
pub use pages::Pages;
pub use parent::{Relations, State};
pub use pid::Pid;
pub use reclaim::{Reclaim, retry, retry_on_enomem, under_lock, under_lock_over};
use signal::ProcessSignals;
pub use stack::{AUXV_BYTES, TICKS_PER_SECOND};
pub use start::start_first;
pub use stop::{News, Stop};
pub use thread::{NAME_BYTES, exit_thread};
pub use usage::{Total, Usage};
pub use wait::{Found, Kind, Wanted, Who};

/// The bytes of stack that a main thread can use.
pub const STACK_BYTES: u64 = 8 << 20;
/// The main thread's stack. It is below the program, so that a core that uses both needs no more upper
/// tables. It ends a few pages into the block where the program begins, because that block needs a leaf of
/// the radix map anyway, which each fork copies. Below that it has whole blocks, which stay folded until they
/// are used.
const STACK: Range<u64> = STACK_BLOCKS_END - STACK_BYTES..STACK_BLOCKS_END + 64 * PAGE_SIZE;
const STACK_BLOCKS_END: u64 = elf::PROGRAM_BASE & !(HUGE_PAGES * PAGE_SIZE - 1);
const _: () = assert!(STACK_BYTES.is_multiple_of(HUGE_PAGES * PAGE_SIZE));

/// The number of the first process. The machine ends when it does.
pub const FIRST: u32 = 1;

/// A program in execution, or a zombie.
pub struct Process {
    number: Pid,
    /// Its parent and children.
    pub relations: Relations,
    groups: Groups,
    /// Its actions for signals, and the pending signals of the whole process.
    pub signals: ProcessSignals,
    stop: Stop,
    /// Its limits.
    pub limits: Limits,
    /// Its threads by rising tid.
    threads: SpinLock<Vec<Arc<Task>>>,
    ending: EndingCell,
    /// The thread that runs another program and ends the others meanwhile, or 0. Written under the lock of
    /// `threads`.
    executor: AtomicU32,
    /// Set if it ever ran another program. Relaxed: it orders nothing.
    executed: AtomicBool,
    /// The status with which the main thread exited alone. It is the process's if no thread ends the process
    /// otherwise.
    pub main_status: AtomicU8,
    /// The name of the last thread that left.
    last_name: SpinLock<[u8; NAME_BYTES]>,
    /// The real user of that thread. Relaxed: the end of the process is told after it.
    last_user: AtomicU32,
    /// The resources that past threads used.
    past: Total,
    /// The resources that children used that were waited for.
    pub children_usage: Total,
    /// Its threads that are traced, and its main thread if that was and has ended. Relaxed: a sender of a
    /// signal may miss that a thread is traced since a moment ago.
    traced: AtomicU32,
    /// The tracee of its main thread, once that has ended.
    main_tracee: ptrace::Place,
    /// Its timers.
    pub timers: timers::Timers,
    /// The sets of semaphores in which it has changes to undo.
    pub undoing: Undoing,
}

impl Process {
    /// Returns its number.
    pub fn pid(&self) -> u32 {
        self.number.get()
    }

    /// Returns one of its threads, the main thread if that still runs, or `None` once the process has ended.
    pub fn any_thread(&self) -> Option<Arc<Task>> {
        self.with_any_thread(|thread| thread.cloned())
    }

    /// Calls `f` with the same thread, under the lock with which a program that the process executes takes
    /// the thread's place.
    pub fn with_any_thread<R>(&self, f: impl FnOnce(Option<&Arc<Task>>) -> R) -> R {
        let threads = self.threads.lock();
        // Cores have their own numbers, so another thread's may be lower.
        let main = threads.binary_search_by_key(&self.pid(), |task| task.tid()).unwrap_or(0);
        f(threads.get(main))
    }

    /// Returns its memory, or `None` once it has ended.
    pub fn memory(&self) -> Option<Arc<Memory>> {
        self.any_thread().map(|task| task.shared().memory.clone())
    }

    /// Returns how many pages it has mapped and in memory, without a walk. They are 0 once it has ended.
    pub fn page_counts(&self) -> vm::Usage {
        self.memory().map(|memory| memory.space.usage()).unwrap_or_default()
    }

    /// Returns its pages by kinds, and those in memory if `detail` says so. They are 0 once it has ended.
    pub fn pages(&self, detail: vm::Detail) -> Pages {
        self.memory().map(|memory| memory.pages(detail)).unwrap_or_default()
    }

    /// Returns the number of frames in its page tables.
    pub fn table_pages(&self) -> u64 {
        self.memory().map_or(0, |memory| memory.space.table_pages())
    }

    /// Returns the number of its threads.
    pub fn count_threads(&self) -> usize {
        self.threads.lock().len()
    }

    /// Returns the lowest number of a thread from `from` on.
    pub fn next_tid(&self, from: u32) -> Option<u32> {
        self.first_thread_from(from).map(|task| task.tid())
    }

    /// Returns the thread with the lowest number from `from` on.
    fn first_thread_from(&self, from: u32) -> Option<Arc<Task>> {
        let threads = self.threads.lock();
        let at = threads.partition_point(|task| task.tid() < from);
        threads.get(at).cloned()
    }

    /// Returns the name of its main thread, or the name of its last thread if it has ended. Takes one lock at
    /// a time, because a thread that ends takes both.
    pub fn name(&self) -> [u8; NAME_BYTES] {
        match self.any_thread() {
            Some(task) => *task.thread.name.lock(),
            None => *self.last_name.lock(),
        }
    }

    /// Returns the real user of its main thread, or of its last thread if it has ended.
    pub fn real_user(&self) -> u32 {
        match self.any_thread() {
            Some(task) => task.thread.credentials.peek(&pin()).users.real,
            None => self.last_user.load(Ordering::Relaxed),
        }
    }

    /// Returns whether one of its threads runs, or waits for a core.
    pub fn is_running(&self) -> bool {
        self.threads.lock().iter().any(|task| task.is_running())
    }

    /// Returns whether it is stopped.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_stopped()
    }

    /// Returns whether it ever ran another program.
    pub fn has_executed(&self) -> bool {
        self.executed.load(Ordering::Relaxed)
    }

    /// Returns the thread with this number.
    pub fn thread(&self, tid: u32) -> Option<Arc<Task>> {
        self.with_thread(tid, Arc::clone).ok()
    }

    /// Calls `f` with the thread with this number, which stays in the list meanwhile.
    ///
    /// # Errors
    /// ESRCH if there is none.
    fn with_thread<R>(&self, tid: u32, f: impl FnOnce(&Arc<Task>) -> R) -> Result<R, Errno> {
        let threads = self.threads.lock();
        let at = threads.binary_search_by_key(&tid, |task| task.tid()).map_err(|_| Errno::ESRCH)?;
        Ok(f(threads.get(at).ok_or(Errno::ESRCH)?))
    }

    /// Calls `f` with every thread.
    pub fn for_each_thread(&self, f: impl FnMut(&Arc<Task>)) {
        self.threads.lock().iter().for_each(f);
    }
}

/// Handles what the running task was notified of: the end of its process or of itself, a stop, signals.
pub fn handle_attention(frame: &mut TrapFrame) {
    let is_wanted = sched::with_current(|task| {
        task.attention.clear(attention::SIGNAL);
        freeze::wait_for_thaw(task);
        thread::write_child_tid(task);
        stop_if_asked(task, frame);
        task.process().wants(task)
    });
    if !is_wanted {
        exit_thread();
    }
    sched::with_current(|task| {
        fault::carry_out(task, signal::deliver(task, frame), frame);
        stop_if_asked(task, frame);
    });
}

/// Stops the running task if its process is stopped, or its tracer wants it.
///
/// TRACE may be raised a moment after its tracee is gone: by a SIGCONT, or a thread that stops the process.
/// It is cleared before the look at TRACED, because it is raised after that.
fn stop_if_asked(task: &Task, frame: &mut TrapFrame) {
    if task.attention.has(attention::TRACE) {
        task.attention.clear(attention::TRACE);
    }
    match task.attention.has(attention::TRACED) {
        true => ptrace::at_return(task, frame),
        false => stop::park_while_stopped(task),
    }
}
