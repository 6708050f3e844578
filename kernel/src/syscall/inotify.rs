//! `inotify`.

use abi::Errno;
use abi::file::{O_CLOEXEC, O_NONBLOCK};
use abi::inotify::*;
use percore::pin;

use super::{Call, Outcome};
use crate::fs::{inotify, rights, watches};

/// All bits that a watch may have.
const BITS: u32 = IN_ALL_EVENTS
    | IN_UNMOUNT
    | IN_Q_OVERFLOW
    | IN_IGNORED
    | IN_ONLYDIR
    | IN_DONT_FOLLOW
    | IN_EXCL_UNLINK
    | IN_MASK_CREATE
    | IN_MASK_ADD
    | IN_ISDIR
    | IN_ONESHOT;

pub fn inotify_init(call: &mut Call<'_>) -> Outcome {
    open(call, 0)
}

pub fn inotify_init1(call: &mut Call<'_>) -> Outcome {
    open(call, call.arg(0) as u32)
}

fn open(call: &Call<'_>, flags: u32) -> Outcome {
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let file = inotify::open(flags & O_NONBLOCK)?;
    Ok(call.files().add(file, 0, flags & O_CLOEXEC != 0)? as u64)
}

pub fn inotify_add_watch(call: &mut Call<'_>) -> Outcome {
    let mask = call.arg(2) as u32;
    if mask & BITS == 0 {
        return Err(Errno::EINVAL);
    }
    let file = call.file_in_use(0)?;
    if mask & IN_MASK_ADD != 0 && mask & IN_MASK_CREATE != 0 {
        return Err(Errno::EINVAL);
    }
    let queue = inotify::queue(&file)?;
    let path = call.path(1)?;
    let node = call.find(&path, &pin(), mask & IN_DONT_FOLLOW == 0)?.existing()?.clone();
    if mask & IN_ONLYDIR != 0 && !node.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    rights::permit(&node, rights::READ)?;
    Ok(watches::add(queue, &node, mask & BITS)? as u64)
}

pub fn inotify_rm_watch(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    watches::remove(inotify::queue(&file)?, call.int(1)).map(|()| 0)
}
