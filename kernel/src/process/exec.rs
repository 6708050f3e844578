//! Running another program: a new task with new memory takes the place of the running one.
//!
//! 1. Everything that can fail is done first, in the new memory and the new task. An error leaves the caller
//!    unchanged.
//! 2. Then the process's other threads end. From here on the call fails only if the process ends.
//! 3. The new task replaces the old one in the list of threads in one step under the list's lock. A sender of
//!    a signal finds the one or the other, and a signal to the thread alone is added under that lock too. The
//!    old task exits without notifying anyone. The new one takes over its pending signals and notifications.

use alloc::sync::Arc;

use abi::Errno;
use percore::pin;
use sync::atomic::Ordering;

use super::arguments::Strings;
use super::load::load;
use super::reclaim::retry;
use super::script::{HEAD, Script};
use super::thread::{NAME_BYTES, NewThread, Shared, leave_memory};
use crate::arch::{FpuState, TrapFrame};
use crate::bytes::{copy_prefix, prefix};
use crate::fs::{Executable, FdTable};
use crate::mm::fallible;
use crate::sched::{self, Task, attention};

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
    let new = prepare(task, &file, name, strings)?;
    let signals = process.signals.for_new_program()?;
    process.end_others(task)?;
    leave_memory(task);
    process.replace_thread(task, &new)?;
    new.shared().files.join();
    let (old, files) = (&task.shared().files, &new.shared().files);
    if !Arc::ptr_eq(old, files) && !old.is_shared() {
        files.take_locks_of(old);
    }
    task.shared().files.leave();
    new.shared().files.close_on_exec_all();
    process.signals.replace_actions(signals);
    process.timers.clear();
    process.executed.store(true, Ordering::Relaxed);
    process.relations.exit_signal.store(abi::signal::SIGCHLD, Ordering::Relaxed);
    new.thread.signals.take_over(&task.thread.signals);
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

/// Creates the new task, which is not in the process's list yet.
fn prepare(task: &Task, file: &Executable, name: &[u8], strings: Strings) -> Result<Arc<Task>, Errno> {
    let loaded = load(file, name, strings).map_err(|error| error.0)?;
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
    };
    new.make(task.process()).map_err(|_| Errno::ENOMEM)
}

/// Returns the name of a thread that runs the program at `path`.
pub fn name_of(path: &[u8]) -> [u8; NAME_BYTES] {
    let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let mut name = [0; NAME_BYTES];
    copy_prefix(&mut name, prefix(last, NAME_BYTES as u64 - 1));
    name
}
