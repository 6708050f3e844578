//! How a thread becomes a tracee.

use alloc::sync::Arc;

use abi::Errno;
use abi::signal::{SI_KERNEL, SIGSTOP};
use abi::users::CAP_SYS_PTRACE;

use super::{Phase, Tracee, Tracer, count_task};
use crate::process::signal::{self, Origin};
use crate::process::{Process, pid, remote};
use crate::sched::{self, Task, attention};
use crate::users::Basis;

/// Makes the parent of the running `task` its tracer. Any thread of the parent may trace it. Without a parent
/// there is no tracer, which is no error.
///
/// # Errors
/// EPERM if it is traced already, or the parent lacks capabilities that it has. ENOMEM.
pub fn trace_me(task: &Task) -> Result<(), Errno> {
    let process = task.process();
    if super::of(task).is_some() {
        return Err(Errno::EPERM);
    }
    let Some(parent) = process.parent() else { return Ok(()) };
    if let Some(thread) = parent.any_thread() {
        remote::permit_other(&thread, |own, parents| parents.may_be_tracer_of(own))?;
    }
    let tracer = Tracer { tid: 0, process: Arc::downgrade(&parent), is_privileged: is_privileged() };
    let tracee = Tracee::new((task.tid(), process), tracer, false, 0)?;
    link(&parent, &tracee, None, process, |_| Ok(()))
}

/// Returns whether the running thread may trace threads of all users. As on Linux, a program that it executes
/// itself keeps its rights then, too, if its parent traces it.
fn is_privileged() -> bool {
    sched::with_credentials(|own| own.can(CAP_SYS_PTRACE))
}

/// Makes the running `task` the tracer of the thread `tid`, and stops that.
///
/// # Errors
/// ESRCH if there is none. EPERM if it is a thread of the same process, is traced, or has ended. ENOMEM.
pub fn attach(task: &Task, tid: u32) -> Result<(), Errno> {
    let process = trace(task, tid, false, 0)?;
    let _gone = signal::send_to_thread(&process, tid, SIGSTOP, Origin::new(SI_KERNEL, 0));
    Ok(())
}

/// Does the same and lets it go on.
///
/// # Errors
/// As above.
pub fn seize(task: &Task, tid: u32, options: u32) -> Result<(), Errno> {
    trace(task, tid, true, options).map(drop)
}

fn trace(task: &Task, tid: u32, is_seized: bool, options: u32) -> Result<Arc<Process>, Errno> {
    let process = pid::owner(tid).ok_or(Errno::ESRCH)?;
    if Arc::ptr_eq(&process, task.process()) || process.ending().is_some() {
        return Err(Errno::EPERM);
    }
    // Asked for here, too: a tracee is counted where all cores look, and a refused one is none.
    remote::permit_thread(&*process.thread(tid).ok_or(Errno::EPERM)?, Basis::Real)?;
    let tracer =
        Tracer { tid: task.tid(), process: Arc::downgrade(task.process()), is_privileged: is_privileged() };
    let tracee = Tracee::new((tid, &process), tracer, is_seized, options)?;
    // Before the tracee is in the list: the thread looks there when it leaves.
    task.attention.raise(attention::TRACER);
    link(task.process(), &tracee, None, &process, |thread| remote::permit_thread(thread, Basis::Real))?;
    if process.is_stopped() {
        // It is parked. It is to stop for its tracer instead.
        let _gone = process.with_thread(tid, |task| Task::notify(task, attention::STOPPED));
    }
    Ok(process)
}

/// Puts `tracee`, a thread of `process`, into the list of its tracer, and into the place of its task. If it
/// is the child of a tracee, that is `beside` it there: a thread that leaves lets go all of the list.
/// `permit` is asked about the thread under the lock of the threads: the thread gets no rights of another
/// program between that and the link.
///
/// # Errors
/// EPERM if it is traced, or is no thread of the process any more. ENOMEM, ESRCH if the tracer has ended.
/// Those of `permit`.
pub(super) fn link(
    tracer: &Process,
    tracee: &Arc<Tracee>,
    beside: Option<&Tracee>,
    process: &Process,
    permit: impl FnOnce(&Task) -> Result<(), Errno>,
) -> Result<(), Errno> {
    count_task(process, 1);
    let linked = tracer.add_tracee(tracee, beside, || {
        process.with_thread(tracee.tid(), |task| {
            permit(task)?;
            let mut place = task.thread.tracee.lock();
            let is_taken = |other: &Arc<Tracee>| other.state.lock().phase != Phase::Gone;
            if place.as_ref().is_some_and(is_taken) {
                return Err(Errno::EPERM);
            }
            if let Some(gone) = &*place {
                // It may be in the middle of a step.
                tracee.state.lock().steps = gone.state.lock().steps;
            }
            task.attention.raise(attention::TRACED);
            Ok(place.replace(tracee.clone()))
        })
    });
    match linked {
        Ok(None) => Ok(()),
        Ok(Some(_gone)) => {
            count_task(process, -1);
            Ok(())
        }
        Err(error) => {
            count_task(process, -1);
            Err(if error == Errno::ESRCH { Errno::EPERM } else { error })
        }
    }
}
