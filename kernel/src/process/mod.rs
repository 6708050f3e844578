//! Processes: what the threads of one program share, how it starts and how it ends.
//!
//! | file | what |
//! |---|---|
//! | `pid` | pids and tids, and their processes |
//! | `thread` | what a task is to its process; how it leaves |
//! | `clone`, `vfork` | making threads and processes |
//! | `memory`, `heap` | an address space with its program; `brk` |
//! | `pages`, `limits` | how much memory is used; how much may be |
//! | `start`, `exec`, `script`, `arguments` | running a program: the first one, another one |
//! | `load`, `elf`, `image`, `stack` | from a file to memory that can run |
//! | `end`, `shutdown` | the end of a process; of the first one, and so of the machine |
//! | `parent`, `wait`, `usage` | parents and children; waiting; what was used |
//! | `pidfd` | descriptors of processes |
//! | `groups`, `stop` | groups and sessions; stopping and going on |
//! | `fault`, `oom`, `oom_badness` | exceptions of programs; the kill when there is no memory for a page; what a process has of it |
//! | `signal` | signals and their handlers |
//! | `reclaim` | freeing memory when it is short, and trying again |
//! | `pieces` | operations on long ranges |
//! | `futex`, `robust` | sleeping on a word of the program's memory |
#![deny(unsafe_code, clippy::indexing_slicing, clippy::unwrap_used)]

mod arguments;
mod clone;
mod elf;
mod end;
mod exec;
pub mod fault;
mod freeze;
pub mod futex;
mod groups;
mod heap;
mod image;
mod limits;
mod load;
mod memory;
mod oom;
mod oom_badness;
mod page_out;
mod pages;
mod parent;
pub mod pid;
pub mod pidfd;
pub mod pieces;
mod reclaim;
mod robust;
mod script;
mod shutdown;
pub mod signal;
mod stack;
mod start;
mod stop;
mod thread;
mod usage;
mod vfork;
mod wait;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use abi::Errno;
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
pub use limits::{Growth, Limits, within_limits};
pub use memory::{Mapped, Memory, Program};
pub use oom::wait_for_oom;
pub use pages::Pages;
pub use parent::{Relations, State};
pub use pid::Pid;
pub use reclaim::{Reclaim, retry, retry_on_enomem, under_lock, under_lock_over};
use signal::ProcessSignals;
pub use stack::TICKS_PER_SECOND;
pub use start::start_first;
pub use stop::{News, Stop};
pub use thread::{NAME_BYTES, Shared, Thread, exit_thread};
pub use usage::{Total, Usage};
pub use wait::{Found, Kind, Wanted, Who};

/// Bytes of stack that a main thread may count on.
pub const STACK_BYTES: u64 = 8 << 20;
/// The main thread's stack: below the program, so that who runs on both needs no upper tables more. It ends a few pages into the
/// block where the program begins, which has a leaf of the radix map anyway, that each fork copies. Below it has whole blocks,
/// which stay folded until they are used.
const STACK: Range<u64> = STACK_BLOCKS_END - STACK_BYTES..STACK_BLOCKS_END + 64 * PAGE_SIZE;
const STACK_BLOCKS_END: u64 = elf::PROGRAM_BASE & !(HUGE_PAGES * PAGE_SIZE - 1);
const _: () = assert!(STACK_BYTES.is_multiple_of(HUGE_PAGES * PAGE_SIZE));

/// The number of the first process, with which the machine ends.
pub const FIRST: u32 = 1;

/// One program in execution, or what is left of it until its parent has asked.
pub struct Process {
    number: Pid,
    /// Its parent and children.
    pub relations: Relations,
    groups: Groups,
    /// What it does about signals, and those sent to all of it.
    pub signals: ProcessSignals,
    stop: Stop,
    /// Limits.
    pub limits: Limits,
    /// Threads by rising tid.
    threads: SpinLock<Vec<Arc<Task>>>,
    ending: EndingCell,
    /// The thread that runs another program and wants to be the only one, or 0. Written under the lock of `threads`.
    executor: AtomicU32,
    /// Whether it ever ran another program. Relaxed: it orders nothing.
    executed: AtomicBool,
    /// What the main thread said when it exited alone: the process's status if no thread ends it otherwise.
    pub main_status: AtomicU8,
    /// The name of the last thread that left.
    last_name: SpinLock<[u8; NAME_BYTES]>,
    /// What threads used that are gone.
    past: Total,
    /// What children used that were waited for.
    pub children_usage: Total,
}

impl Process {
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.number.get()
    }

    /// One of its threads, the main thread if that is there; none once it has ended.
    pub fn any_thread(&self) -> Option<Arc<Task>> {
        self.threads.lock().first().cloned()
    }

    /// Its memory; none once it has ended.
    pub fn memory(&self) -> Option<Arc<Memory>> {
        self.any_thread().map(|task| task.shared().memory.clone())
    }

    /// How many pages it has, and has in memory, without a walk; none once it has ended.
    pub fn page_counts(&self) -> vm::Usage {
        self.memory().map(|memory| memory.space.usage()).unwrap_or_default()
    }

    /// How much memory it has, by kinds, and uses if `detail` says so; none once it has ended.
    pub fn pages(&self, detail: vm::Detail) -> Pages {
        self.memory().map(|memory| memory.pages(detail)).unwrap_or_default()
    }

    /// Frames in its page tables.
    pub fn table_pages(&self) -> u64 {
        self.memory().map_or(0, |memory| memory.space.table_pages())
    }

    /// How many threads it has.
    pub fn count_threads(&self) -> usize {
        self.threads.lock().len()
    }

    /// The lowest number of a thread from `from` on.
    pub fn next_tid(&self, from: u32) -> Option<u32> {
        self.first_thread_from(from).map(|task| task.tid())
    }

    /// The thread that has it.
    fn first_thread_from(&self, from: u32) -> Option<Arc<Task>> {
        let threads = self.threads.lock();
        let at = threads.partition_point(|task| task.tid() < from);
        threads.get(at).cloned()
    }

    /// Returns the name of its main thread, or the last one if it has ended. Takes one lock at a time: a thread that ends takes both.
    pub fn name(&self) -> [u8; NAME_BYTES] {
        match self.any_thread() {
            Some(task) => *task.thread.name.lock(),
            None => *self.last_name.lock(),
        }
    }

    /// Whether one of its threads runs.
    pub fn is_running(&self) -> bool {
        self.threads.lock().iter().any(|task| task.is_running())
    }

    /// Whether it is stopped.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_stopped()
    }

    /// Whether it ever ran another program.
    pub fn has_executed(&self) -> bool {
        self.executed.load(Ordering::Relaxed)
    }

    /// The thread with this number.
    pub fn thread(&self, tid: u32) -> Option<Arc<Task>> {
        self.with_thread(tid, Arc::clone).ok()
    }

    /// Calls `f` with the thread with this number, which stays in its place meanwhile.
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

/// What the running task was notified of: the end of its process or of itself, a stop, signals.
pub fn attend(frame: &mut TrapFrame) {
    let is_wanted = sched::with_current(|task| {
        task.attention.clear(attention::SIGNAL);
        freeze::wait_for_thaw(task);
        thread::introduce(task);
        stop::rest(task);
        task.process().wants(task)
    });
    if !is_wanted {
        exit_thread();
    }
    sched::with_current(|task| {
        fault::meet(task, signal::deliver(task, frame), frame);
        stop::rest(task);
    });
}
