//! SysV semaphores.

use alloc::vec::Vec;

use abi::Errno;
use abi::ipc::*;
use abi::time::Timespec;
use abi::zerocopy::{FromZeros, IntoBytes};

use super::{Call, Outcome};
use crate::arch;
use crate::mm::{fallible, user};
use crate::process::ipc::semaphores::{self, Set};
use crate::process::ipc::{READ, Wanted};
use crate::process::retry;

/// Returns the identifier of a set, which is made if that is wanted.
pub fn semget(call: &mut Call<'_>) -> Outcome {
    let (wanted, count) = (Wanted { key: call.int(0), flags: call.arg(2) as u32 }, call.int(1));
    retry(|| semaphores::get(wanted, count)).map(u64::from)
}

/// Carries out operations, all at once.
pub fn semop(call: &mut Call<'_>) -> Outcome {
    operate(call, None)
}

/// Does the same within a time.
pub fn semtimedop(call: &mut Call<'_>) -> Outcome {
    let time: Option<Timespec> = match call.arg(3) {
        0 => None,
        at => Some(user::read(at)?),
    };
    operate(call, time)
}

fn operate(call: &Call<'_>, time: Option<Timespec>) -> Outcome {
    let (id, count) = (call.int(0), call.arg(2) as u32);
    if count > SEMOPM as u32 {
        return Err(Errno::E2BIG);
    }
    let operations: Vec<Sembuf> = read_all(call.arg(1), count as usize)?;
    if operations.is_empty() {
        return Err(Errno::EINVAL);
    }
    let time = time.map(|time| time.to_ns().ok_or(Errno::EINVAL)).transpose()?;
    let deadline = time.map(|time| arch::now_ns().saturating_add(time));
    let set = semaphores::find(id)?;
    let process = call.task.process();
    retry(|| set.operate(fallible::copied(&operations)?, deadline, &process.undoing)).map(|()| 0)
}

/// Reads `count` values at `from`.
fn read_all<T>(from: u64, count: usize) -> Result<Vec<T>, Errno>
where
    T: abi::Pod + abi::zerocopy::KnownLayout + FromZeros,
{
    let mut values = retry(|| fallible::empty(count))?;
    values.resize(count, T::new_zeroed());
    user::copy_in(values.as_mut_slice().as_mut_bytes(), from)?;
    Ok(values)
}

/// Describes, changes and removes sets and their semaphores.
pub fn semctl(call: &mut Call<'_>) -> Outcome {
    let (id, number, command, argument) = (call.int(0), call.int(1), call.arg(2) as u32, call.arg(3));
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    match command {
        IPC_INFO | SEM_INFO => {
            user::write(argument, &semaphores::info(command == SEM_INFO))?;
            Ok(semaphores::highest())
        }
        IPC_STAT => {
            user::write(argument, &semaphores::find(id)?.describe(READ)?)?;
            Ok(0)
        }
        SEM_STAT | SEM_STAT_ANY => {
            let set = semaphores::at(id)?;
            user::write(argument, &set.describe(if command == SEM_STAT { READ } else { 0 })?)?;
            Ok(set.number().into())
        }
        GETVAL | GETPID | GETNCNT | GETZCNT => semaphores::find(id)?.look(number, command),
        GETALL => get_all(&*semaphores::find(id)?, argument),
        SETVAL => {
            let value = u16::try_from(argument as i32).ok().filter(|&value| i32::from(value) <= SEMVMX);
            let value = value.ok_or(Errno::ERANGE)?;
            semaphores::find(id)?.set_value(number, value).map(|()| 0)
        }
        SETALL => {
            let set = semaphores::find(id)?;
            let values: Vec<u16> = read_all(argument, set.count())?;
            if values.iter().any(|&value| i32::from(value) > SEMVMX) {
                return Err(Errno::ERANGE);
            }
            set.set_values(&values).map(|()| 0)
        }
        IPC_SET => {
            let new: SemidDs = user::read(argument)?;
            semaphores::find(id)?.set_owner(&new.perm).map(|()| 0)
        }
        IPC_RMID => semaphores::find(id)?.remove().map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

fn get_all(set: &Set, to: u64) -> Outcome {
    let mut values: Vec<u16> = retry(|| fallible::empty(set.count()))?;
    values.resize(set.count(), 0);
    set.values(&mut values)?;
    user::copy_out(to, values.as_bytes())?;
    Ok(0)
}
