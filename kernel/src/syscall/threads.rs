//! The state of a thread: the word that is cleared at its end, its robust list, its FS base.

use abi::Errno;
use abi::process::{ARCH_GET_FS, ARCH_SET_FS, RobustListHead};
use sync::atomic::Ordering;

use super::clone::check_base;
use super::{Call, Outcome};
use crate::arch;
use crate::mm::user;
use crate::process::{pid, remote};
use crate::sched::Task;
use crate::users::Basis;

/// Sets the address of the word to clear when the thread exits.
pub fn set_tid_address(call: &mut Call<'_>) -> Outcome {
    // Relaxed: only the thread itself reads it.
    call.task.thread.clear_tid.store(call.arg(0), Ordering::Relaxed);
    Ok(call.task.tid().into())
}

/// Sets the head of the list of held robust locks.
pub fn set_robust_list(call: &mut Call<'_>) -> Outcome {
    if call.arg(1) != size_of::<RobustListHead>() as u64 {
        return Err(Errno::EINVAL);
    }
    call.task.thread.robust_list.store(call.arg(0), Ordering::Relaxed);
    Ok(0)
}

/// Writes the head of that list, of any thread.
pub fn get_robust_list(call: &mut Call<'_>) -> Outcome {
    let head = |task: &Task| task.thread.robust_list.load(Ordering::Relaxed);
    let head = match call.arg(0) as u32 {
        0 => head(call.task),
        tid => {
            let thread = pid::thread(tid).ok_or(Errno::ESRCH)?;
            remote::permit_thread(&thread, Basis::Real)?;
            head(&thread)
        }
    };
    user::write(call.arg(2), &(size_of::<RobustListHead>() as u64))?;
    user::write(call.arg(1), &head)?;
    Ok(0)
}

/// Sets or writes the FS base.
pub fn arch_prctl(call: &mut Call<'_>) -> Outcome {
    match call.arg(0) {
        ARCH_SET_FS => arch::set_fs_base(check_base(call.arg(1))?),
        ARCH_GET_FS => user::write(call.arg(1), &arch::fs_base())?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}
