//! Running another program: a new task with new memory takes the place of the running one.
//!
//! 1. Everything that can fail is done first, in the new memory and the new task. An error leaves the caller
//!    unchanged.
//! 2. Then the process's other threads end. From here on the call fails only if the process ends.
//! 3. The new task replaces the old one in the list of threads in one step under the list's lock. A sender of
//!    a signal finds the one or the other, and a signal to the thread alone is added under that lock too. The
//!    old task exits without notifying anyone. The new one takes over its pending signals and notifications.
//!
//! A program that gets rights gets none while an unprivileged tracer follows the thread, or another process
//! shares its directory and umask (CLONE_FS). Both are looked at before the program is loaded, which is told
//! its users, and again when no other thread of the process is left, tracers in the step in which the new
//! task takes the old one's place. A program that loses its rights only then is careful for nothing.

use alloc::sync::Arc;

use abi::Errno;
use abi::process::{ADDR_COMPAT_LAYOUT, ADDR_NO_RANDOMIZE, MMAP_PAGE_ZERO, READ_IMPLIES_EXEC};
use percore::pin;
use sync::atomic::Ordering;

use super::arguments::Strings;
use super::load::{Manner, load};
use super::ptrace;
use super::reclaim::retry;
use super::script::{HEAD, Script};
use super::signal::ProcessSignals;
use super::thread::{NAME_BYTES, NewThread, Shared, leave_memory};
use crate::arch::{FpuState, TrapFrame};
use crate::bytes::{copy_prefix, prefix};
use crate::fs::{Executable, FdTable, rights};
use crate::mm::fallible;
use crate::sched::{self, Task, attention};
use crate::users::{OfProgram, Ready, Slot};

/// The deepest nesting of scripts whose interpreters are scripts.
const DEEPEST: usize = 5;

/// Makes the process of the running `task` run the program in `file`, whose given path is `name`. If it
/// returns without an error, the task does not belong to its process any more and must leave by
/// `sched::exit`.
///
/// # Errors
/// EACCES, ENOENT, ENOEXEC, ELOOP, ENOMEM, E2BIG: nothing has changed. EINTR if the process ends.
pub fn exec(task: &Task, file: Executable, name: &[u8], strings: Strings) -> Result<(), Errno> {
    let (file, strings) = find_program(task, file, name, strings)?;
    let process = task.process();
    let Prepared { task: new, plain, forgets_death_signal } = prepare(task, &file, name, strings)?;
    let signals = ProcessSignals::room_for_new_program()?;
    process.end_others(task)?;
    if forgets_death_signal {
        // No other thread is left that could ask for it again.
        process.relations.forget_death_signal();
    }
    leave_memory(task);
    process.forget_main_tracee();
    let is_shared = plain.is_some() && shares_context(task);
    process.replace_thread(task, &new, plain, is_shared)?;
    if task.attention.has(attention::TRACER) {
        ptrace::tracer_executes(process, task.tid(), new.tid());
    }
    new.shared().files.join();
    let (old, files) = (&task.shared().files, &new.shared().files);
    if !Arc::ptr_eq(old, files) && !old.is_shared() {
        files.take_locks_of(old);
    }
    task.shared().files.leave();
    new.shared().files.close_on_exec_all();
    process.signals.begin_program(signals);
    process.timers.clear();
    process.executed.store(true, Ordering::Relaxed);
    process.relations.exit_signal.store(abi::signal::SIGCHLD, Ordering::Relaxed);
    new.thread.signals.take_over(&task.thread.signals);
    process.signals.forget_timers();
    // The old task may have been notified of signals and of a stop that it did not handle.
    new.attention.raise(attention::SIGNAL | attention::STOPPED);
    sched::enqueue_here(new);
    task.shared().memory.attachments.leave();
    task.shared().memory.release();
    Ok(())
}

/// Follows scripts to a program that is not a script.
fn find_program(
    task: &Task,
    mut file: Executable,
    name: &[u8],
    mut strings: Strings,
) -> Result<(Executable, Strings), Errno> {
    let mut name = fallible::copied(name)?;
    for _ in 0..=DEEPEST {
        let mut head = [0; HEAD];
        let content = file.content()?;
        let read = retry(|| content.read(0, &mut head, false))?;
        let Some(script) = Script::parse(prefix(&head, read as u64))? else { return Ok((file, strings)) };
        match script.argument {
            Some(argument) => strings.replace_first(&[script.interpreter, argument, &name])?,
            None => strings.replace_first(&[script.interpreter, &name])?,
        }
        let (pin, context) = (pin(), task.fs_context());
        let start = context.peek_directory(&pin);
        file = Executable::found(context.find(&pin, start, script.interpreter, true)?)?;
        name = fallible::copied(script.interpreter)?;
    }
    Err(Errno::ELOOP)
}

/// Returns whether another process has the same directory and umask as the running `task`. While other
/// threads of its own process exit it may miss that.
fn shares_context(task: &Task) -> bool {
    let context = &task.shared().fs;
    // Under the lock with which threads enter: one that is counted there is seen here.
    let threads = task.process().threads.lock();
    let own = threads.iter().filter(|thread| Arc::ptr_eq(&thread.shared().fs, context));
    context.users() as usize > own.count()
}

/// The start of a program that a thread executes.
struct Prepared {
    /// The new task, which is not in the process's list yet. It has the rights that the program gets, if it
    /// may have some.
    task: Arc<Task>,
    /// Its credentials without these, then.
    plain: Option<Ready>,
    /// Whether its parent's end sends it no signal any more.
    forgets_death_signal: bool,
}

fn prepare(task: &Task, file: &Executable, name: &[u8], strings: Strings) -> Result<Prepared, Errno> {
    let ids = rights::set_ids(file.file().node());
    let own = task.thread.credentials.get();
    let OfProgram { mut credentials, is_secure, mut plain } = own.of_program(ids);
    if plain.is_some() && (ptrace::withholds_rights(task) || shares_context(task)) {
        credentials = plain.take().unwrap_or(credentials);
    }
    let plain = plain.map(Ready::new).transpose()?;
    let personality = personality(task, is_secure);
    let manner = Manner { is_secure, is_random: personality & ADDR_NO_RANDOMIZE == 0 };
    let loaded = load(file, name, strings, &credentials, manner).map_err(|error| error.0)?;
    if credentials.hides_program(&own) {
        loaded.memory.set_dumpable(false);
    }
    let forgets_death_signal = is_secure || credentials.is_more_than(&own);
    let old = task.shared();
    let new = NewThread {
        number: None,
        shared: Shared {
            memory: loaded.memory,
            files: if old.files.is_shared() { FdTable::copy(&old.files)? } else { old.files.clone() },
            fs: old.fs.clone(),
        },
        name: name_of(name),
        frame: TrapFrame::user(loaded.entry, loaded.sp),
        fpu: fallible::boxed(FpuState::new())?,
        fs_base: 0,
        affinity: task.affinity(),
        signals: task.thread.signals.inherit(false),
        clear_tid: 0,
        set_tid: 0,
        latch: None,
        credentials: Slot::of(credentials)?,
        personality,
    };
    let task = new.make(task.process()).map_err(|_| Errno::ENOMEM)?;
    Ok(Prepared { task, plain, forgets_death_signal })
}

/// Returns the personality of the program that the running `task` executes: its own, without what would make
/// it easier to attack a program with rights that its user has not. Memory is never executable because it may
/// be read.
fn personality(task: &Task, is_secure: bool) -> u32 {
    let own = task.thread.personality.load(Ordering::Relaxed) & !READ_IMPLIES_EXEC;
    let withheld = ADDR_NO_RANDOMIZE | MMAP_PAGE_ZERO | ADDR_COMPAT_LAYOUT;
    if is_secure { own & !withheld } else { own }
}

/// Returns the name of a thread that runs the program at `path`.
pub fn name_of(path: &[u8]) -> [u8; NAME_BYTES] {
    let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let mut name = [0; NAME_BYTES];
    copy_prefix(&mut name, prefix(last, NAME_BYTES as u64 - 1));
    name
}
