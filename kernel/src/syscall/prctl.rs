//! prctl: the thread's name, orphans, privileges, and settings without effect here.

use abi::Errno;
use sync::atomic::Ordering;

use super::{Call, Outcome, capabilities};
use crate::mm::user;
use crate::process::signal::checked;

const PR_SET_PDEATHSIG: u64 = 1;
const PR_GET_PDEATHSIG: u64 = 2;
const PR_GET_DUMPABLE: u64 = 3;
const PR_SET_DUMPABLE: u64 = 4;
const PR_GET_KEEPCAPS: u64 = 7;
const PR_SET_KEEPCAPS: u64 = 8;
const PR_SET_NAME: u64 = 15;
const PR_GET_NAME: u64 = 16;
const PR_CAPBSET_READ: u64 = 23;
const PR_CAPBSET_DROP: u64 = 24;
const PR_GET_SECUREBITS: u64 = 27;
const PR_SET_SECUREBITS: u64 = 28;
const PR_SET_CHILD_SUBREAPER: u64 = 36;
const PR_GET_CHILD_SUBREAPER: u64 = 37;
const PR_SET_NO_NEW_PRIVS: u64 = 38;
const PR_GET_NO_NEW_PRIVS: u64 = 39;
const PR_CAP_AMBIENT: u64 = 47;

/// Carries out the option in argument 0.
pub fn prctl(call: &mut Call<'_>) -> Outcome {
    let relations = &call.task.process().relations;
    let memory = &call.task.shared().memory;
    match call.arg(0) as u32 as u64 {
        PR_SET_NAME => set_name(call),
        PR_GET_NAME => {
            let name = *call.task.thread.name.lock();
            user::copy_out(call.arg(1), &name).map(|()| 0)
        }
        PR_SET_PDEATHSIG => {
            let signal = if call.arg(1) == 0 { 0 } else { checked(call.arg(1))? };
            relations.death_signal.store(signal, Ordering::Relaxed);
            Ok(0)
        }
        PR_GET_PDEATHSIG => write_value(call, relations.death_signal.load(Ordering::Relaxed)),
        PR_SET_CHILD_SUBREAPER => {
            relations.adopts.store(call.arg(1) != 0, Ordering::Relaxed);
            Ok(0)
        }
        PR_GET_CHILD_SUBREAPER => write_value(call, relations.adopts.load(Ordering::Relaxed).into()),
        PR_GET_KEEPCAPS => capabilities::keeps(call),
        PR_SET_KEEPCAPS => capabilities::keep(call),
        PR_CAPBSET_READ => capabilities::is_bounding(call),
        PR_CAPBSET_DROP => capabilities::drop_bounding(call),
        PR_GET_SECUREBITS => capabilities::securebits(call),
        PR_SET_SECUREBITS => capabilities::set_securebits(call),
        PR_CAP_AMBIENT => capabilities::ambient(call),
        PR_SET_NO_NEW_PRIVS => capabilities::set_no_new_privs(call),
        PR_GET_NO_NEW_PRIVS => capabilities::no_new_privs(call),
        PR_SET_DUMPABLE if call.arg(1) <= 1 => {
            memory.set_dumpable(call.arg(1) == 1);
            Ok(0)
        }
        PR_GET_DUMPABLE => Ok(memory.is_dumpable().into()),
        _ => Err(Errno::EINVAL),
    }
}

/// Writes `value` to the address in argument 1.
fn write_value(call: &Call<'_>, value: u32) -> Outcome {
    user::write(call.arg(1), &value).map(|()| 0)
}

/// Sets the thread's name: up to 15 bytes and a NUL.
fn set_name(call: &Call<'_>) -> Outcome {
    let mut name = [0; 16];
    for (index, byte) in name.iter_mut().take(15).enumerate() {
        *byte = user::read(call.arg(1).wrapping_add(index as u64))?;
        if *byte == 0 {
            break;
        }
    }
    *call.task.thread.name.lock() = name;
    Ok(0)
}
