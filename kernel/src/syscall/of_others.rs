//! Calls on what other processes have besides memory: kcmp, pidfd_getfd.

use alloc::sync::Arc;
use core::ptr;

use abi::Errno;
use abi::process::*;
use sync::atomic::{AtomicU64, Ordering};

use super::{Call, Outcome};
use crate::arch;
use crate::process::{pid, pidfd, remote};
use crate::sched::Task;
use crate::users::Basis;

/// Copies a descriptor of the process that a descriptor stands for.
pub fn pidfd_getfd(call: &mut Call<'_>) -> Outcome {
    if call.arg(2) as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let of = call.file(0)?;
    let process = pidfd::process(&of)?;
    let thread = || process.any_thread().ok_or(Errno::ESRCH);
    let mut found = thread()?;
    let file = loop {
        let file = found.shared().files.get(call.int(1));
        remote::permit_thread(&found, Basis::Real)?;
        // The process may have executed a program with other rights, whose file it is, or have ended.
        let now = thread()?;
        if Arc::ptr_eq(&found, &now) {
            break file?;
        }
        found = now;
    };
    Ok(call.files().add(file, 0, true)? as u64)
}

/// Compares a part of two threads: 0 if they share it, otherwise 1 or 2, an order that stays.
pub fn kcmp(call: &mut Call<'_>) -> Outcome {
    let [one, other] = [0, 1].map(|at| pid::thread(call.arg(at) as u32).ok_or(Errno::ESRCH));
    let (one, other) = (one?, other?);
    remote::permit_thread(&one, Basis::Real)?;
    remote::permit_thread(&other, Basis::Real)?;
    if call.int(2) == KCMP_FILE {
        return Ok(compare(file(&one, call.int(3))?, file(&other, call.int(4))?));
    }
    Ok(compare(part(&one, call.int(2))?, part(&other, call.int(2))?))
}

fn file(of: &Task, fd: i32) -> Result<usize, Errno> {
    of.shared().files.get(fd).map(|file| ptr::from_ref(&*file).addr())
}

/// Returns the address of a part of a thread.
fn part(of: &Task, kind: i32) -> Result<usize, Errno> {
    let shared = of.shared();
    match kind {
        KCMP_VM => Ok(Arc::as_ptr(&shared.memory).addr()),
        KCMP_FILES => Ok(Arc::as_ptr(&shared.files).addr()),
        KCMP_FS => Ok(Arc::as_ptr(&shared.fs).addr()),
        KCMP_SIGHAND => Ok(of.process().signals.address()),
        // Reads and writes have no context here, which Linux makes for CLONE_IO.
        KCMP_IO => Ok(0),
        KCMP_SYSVSEM => Ok(ptr::from_ref(&of.process().undoing).addr()),
        _ => Err(Errno::EINVAL),
    }
}

/// Returns 0, 1 or 2, as Linux does, by numbers that do not tell the addresses.
fn compare(one: usize, other: usize) -> u64 {
    let key = key();
    let hidden = |address: usize| (address as u64 ^ key).wrapping_mul(key | 1);
    let (one, other) = (hidden(one), hidden(other));
    u64::from(one < other) | u64::from(one > other) << 1
}

/// Returns a random number that is the same until the machine ends.
fn key() -> u64 {
    static KEY: AtomicU64 = AtomicU64::new(0);
    // Relaxed: nothing but the number.
    match KEY.load(Ordering::Relaxed) {
        0 => {
            let new = arch::random_u64().max(1);
            KEY.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|key| key, |_| new)
        }
        key => key,
    }
}
