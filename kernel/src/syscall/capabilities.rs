//! Capabilities: capget, capset, and the options of prctl that are about them.

use abi::Errno;
use abi::users::*;
use percore::pin;

use super::{Call, Outcome};
use crate::mm::user;
use crate::process::pid;
use crate::users::{Ambient, Capabilities, is_capability};

const PR_CAP_AMBIENT_IS_SET: u64 = 1;
const PR_CAP_AMBIENT_RAISE: u64 = 2;
const PR_CAP_AMBIENT_LOWER: u64 = 3;
const PR_CAP_AMBIENT_CLEAR_ALL: u64 = 4;

/// Reads the header of the call and returns it with the number of parts that each set has.
///
/// # Errors
/// EFAULT. EINVAL for an unknown version: the one to use is written there.
fn header(at: u64) -> Result<(CapHeader, usize), Errno> {
    let header: CapHeader = user::read(at)?;
    match header.version {
        LINUX_CAPABILITY_VERSION_1 => Ok((header, 1)),
        LINUX_CAPABILITY_VERSION_2 | LINUX_CAPABILITY_VERSION_3 => Ok((header, 2)),
        _ => {
            user::write(at, &LINUX_CAPABILITY_VERSION_3)?;
            Err(Errno::EINVAL)
        }
    }
}

/// Writes the capabilities of a thread.
pub fn capget(call: &mut Call<'_>) -> Outcome {
    let (header, parts) = match header(call.arg(0)) {
        // A program asks for the version so.
        Err(Errno::EINVAL) if call.arg(1) == 0 => return Ok(0),
        header => header?,
    };
    if call.arg(1) == 0 {
        return Ok(0);
    }
    let sets = sets_of(call, header.pid)?;
    let part = |set: u64, index: usize| (set >> (index * 32)) as u32;
    let data = [0, 1].map(|index| CapData {
        effective: part(sets.effective, index),
        permitted: part(sets.permitted, index),
        inheritable: part(sets.inheritable, index),
    });
    for (index, part) in data.iter().take(parts).enumerate() {
        user::write(call.arg(1).wrapping_add((index * size_of::<CapData>()) as u64), part)?;
    }
    Ok(0)
}

/// Returns the capabilities of the thread with this number, or of the caller if it is 0.
fn sets_of(call: &Call<'_>, tid: i32) -> Result<Capabilities, Errno> {
    match u32::try_from(tid).map_err(|_| Errno::EINVAL)? {
        0 => Ok(call.task.thread.credentials.peek(&pin()).capabilities),
        tid => {
            let thread = pid::owner(tid).and_then(|process| process.thread(tid)).ok_or(Errno::ESRCH)?;
            let sets = thread.thread.credentials.peek(&pin()).capabilities;
            Ok(sets)
        }
    }
}

/// Sets the caller's capabilities.
pub fn capset(call: &mut Call<'_>) -> Outcome {
    let (header, parts) = header(call.arg(0))?;
    if header.pid != 0 && header.pid as u32 != call.task.tid() {
        return Err(Errno::EPERM);
    }
    let mut sets = [0; 3];
    for index in 0..parts {
        let data: CapData = user::read(call.arg(1).wrapping_add((index * size_of::<CapData>()) as u64))?;
        for (set, part) in sets.iter_mut().zip([data.effective, data.permitted, data.inheritable]) {
            *set |= u64::from(part) << (index * 32);
        }
    }
    let [effective, permitted, inheritable] = sets;
    call.change_credentials(|new| new.set_capabilities(effective, permitted, inheritable))
}

/// Returns `value` as a bit for the program.
fn yes(value: bool) -> Outcome {
    Ok(value.into())
}

/// Returns whether the permitted capabilities stay when all users stop being root.
pub fn keeps(call: &Call<'_>) -> Outcome {
    yes(call.task.thread.credentials.peek(&pin()).securebits & SECBIT_KEEP_CAPS != 0)
}

/// Sets whether they stay.
pub fn keep(call: &Call<'_>) -> Outcome {
    match call.arg(1) {
        wanted @ 0..=1 => call.change_credentials(|new| new.keep_capabilities(wanted == 1)),
        _ => Err(Errno::EINVAL),
    }
}

/// Returns the secure bits.
pub fn securebits(call: &Call<'_>) -> Outcome {
    Ok(call.task.thread.credentials.peek(&pin()).securebits.into())
}

/// Sets the secure bits.
pub fn set_securebits(call: &Call<'_>) -> Outcome {
    call.change_credentials(|new| new.set_securebits(call.arg(1)))
}

/// Returns whether the bounding set has a capability.
pub fn is_bounding(call: &Call<'_>) -> Outcome {
    match call.arg(1) {
        number if is_capability(number) => {
            yes(call.task.thread.credentials.peek(&pin()).capabilities.bounding & 1 << number != 0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Removes a capability from the bounding set.
pub fn drop_bounding(call: &Call<'_>) -> Outcome {
    call.change_credentials(|new| new.drop_bounding(call.arg(1)))
}

/// Reads or changes the ambient set.
pub fn ambient(call: &Call<'_>) -> Outcome {
    let (operation, number, rest) = (call.arg(1), call.arg(2), call.arg(3) | call.arg(4));
    if operation == PR_CAP_AMBIENT_CLEAR_ALL && number | rest == 0 {
        return call.change_credentials(|new| {
            new.capabilities.ambient = 0;
            Ok(())
        });
    }
    let change = |change| call.change_credentials(|new| new.change_ambient(change, number));
    match operation {
        _ if rest != 0 || !is_capability(number) => Err(Errno::EINVAL),
        PR_CAP_AMBIENT_IS_SET => {
            yes(call.task.thread.credentials.peek(&pin()).capabilities.ambient & 1 << number != 0)
        }
        PR_CAP_AMBIENT_RAISE => change(Ambient::Raise),
        PR_CAP_AMBIENT_LOWER => change(Ambient::Lower),
        _ => Err(Errno::EINVAL),
    }
}

/// Sets that no `execve` gives the thread privileges, for good.
pub fn set_no_new_privs(call: &Call<'_>) -> Outcome {
    if call.arg(1) != 1 || call.arg(2) | call.arg(3) | call.arg(4) != 0 {
        return Err(Errno::EINVAL);
    }
    call.change_credentials(|new| {
        new.no_new_privs = true;
        Ok(())
    })
}

/// Returns whether that is set.
pub fn no_new_privs(call: &Call<'_>) -> Outcome {
    if call.arg(1) | call.arg(2) | call.arg(3) | call.arg(4) != 0 {
        return Err(Errno::EINVAL);
    }
    yes(call.task.thread.credentials.peek(&pin()).no_new_privs)
}
