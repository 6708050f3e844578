//! Access to the memory of another process: of a tracee, for its tracer, and by `/proc/PID/mem`.
//!
//! Pages are read and written whatever their rights. A write to a private page that others share, or that
//! shows a file, makes a copy first, so it changes this process alone.
//!
//! A `read` of `/proc/PID/mem` holds the lock of the file's position. It does not wait then for a task that
//! copies the memory (EBUSY): the call waits without that lock, and tries again.

use alloc::sync::Arc;

use abi::Errno;
use abi::users::CAP_SYS_PTRACE;
use percore::pin;
use vm::{Access, FaultError, FrameNum, PAGE_SIZE, VirtAddr};

use super::fault::with_room;
use super::{Memory, Process, Reclaim, wait_for_oom};
use crate::bytes::{prefix, prefix_mut};
use crate::mm::frame_io;
use crate::mm::user::USER_END;
use crate::sched::{self, Task};
use crate::users::{Basis, Credentials};

/// Returns an error unless the running thread may read and change the memory of `process`. A process that has
/// ended has none.
///
/// # Errors
/// EPERM.
pub fn permit(process: &Process, by: Basis) -> Result<(), Errno> {
    process.any_thread().map_or(Ok(()), |thread| permit_thread(&thread, by))
}

/// Returns an error unless the running thread may read and change the memory of `thread`.
///
/// # Errors
/// EPERM.
pub fn permit_thread(thread: &Task, by: Basis) -> Result<(), Errno> {
    let is_own = sched::with_current(|task| Arc::ptr_eq(thread.process(), task.process()));
    let may = is_own
        || sched::with_credentials(|own| {
            let pin = pin();
            let memory = &thread.shared().memory;
            own.can(CAP_SYS_PTRACE)
                || own.may_trace(thread.thread.credentials.peek(&pin), by) && memory.is_dumpable()
        });
    if may { Ok(()) } else { Err(Errno::EPERM) }
}

/// Returns the memory of `thread` if the running thread may read and change it, whatever program the process
/// of `thread` runs meanwhile.
///
/// # Errors
/// EPERM.
pub fn memory_of(thread: &Task, by: Basis) -> Result<Arc<Memory>, Errno> {
    permit_thread(thread, by).map(|()| thread.shared().memory.clone())
}

/// Returns an error unless `may` says so of the running thread's credentials and those of `thread`.
///
/// # Errors
/// EPERM.
pub fn permit_other(
    thread: &Task,
    may: impl FnOnce(&Credentials, &Credentials) -> bool,
) -> Result<(), Errno> {
    let pin = pin();
    let may = sched::with_credentials(|own| may(own, thread.thread.credentials.peek(&pin)));
    if may { Ok(()) } else { Err(Errno::EPERM) }
}

/// Calls `fault`, which handles a fault at `at` in another memory, and again after reclaim if that found
/// something. The caller holds no lock.
///
/// # Errors
/// EFAULT.
pub fn resolve(at: u64, mut fault: impl FnMut() -> Result<(), FaultError>) -> Result<(), Errno> {
    let mut reclaim = Reclaim::new();
    loop {
        match with_room(&mut fault) {
            Ok(()) => return Ok(()),
            Err(FaultError::OutOfMemory) if reclaim.try_reclaim() => {}
            Err(FaultError::OutOfMemory) if sched::with_current(|task| wait_for_oom(task, at)) => {
                reclaim = Reclaim::new();
            }
            Err(_) => return Err(Errno::EFAULT),
        }
    }
}

/// Reads from `at` on, at most to the end of the page, and returns the number of bytes.
///
/// # Errors
/// EFAULT, EBUSY if the caller holds a lock and the memory is being copied.
pub fn read(memory: &Memory, at: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let into = prefix_mut(into, rest_of_page(at));
    with_frame(memory, at, Access::Read, &mut |frame| frame_io::read(frame, offset(at), into))?;
    Ok(into.len())
}

/// Writes from `at` on, at most to the end of the page, and returns the number of bytes.
///
/// # Errors
/// EFAULT, EBUSY if the caller holds a lock and the memory is being copied.
pub fn write(memory: &Memory, at: u64, from: &[u8]) -> Result<usize, Errno> {
    let from = prefix(from, rest_of_page(at));
    with_frame(memory, at, Access::Write, &mut |frame| frame_io::write(frame, offset(at), from))?;
    Ok(from.len())
}

fn rest_of_page(at: u64) -> u64 {
    PAGE_SIZE - at % PAGE_SIZE
}

/// Returns the place of an address in its page.
pub fn offset(at: u64) -> usize {
    (at % PAGE_SIZE) as usize
}

fn with_frame(
    memory: &Memory,
    at: u64,
    access: Access,
    visit: &mut dyn FnMut(FrameNum),
) -> Result<(), Errno> {
    if at >= USER_END {
        return Err(Errno::EFAULT);
    }
    let page = VirtAddr::new(at).page();
    let mut is_copied = Ok(());
    let shown = resolve(at, || {
        // A copy of the memory may assume that no other task changes it.
        let shown = memory.heap.while_not_copied(|| memory.space.debug_frame(&pin(), page, access, visit));
        shown.unwrap_or_else(|busy| {
            is_copied = Err(busy);
            Err(FaultError::NotMapped)
        })
    });
    is_copied.and(shown)
}
