//! Permissions, owners and times.

use alloc::vec::Vec;

use abi::Errno;
use abi::file::{AT_EACCESS, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, F_OK, R_OK, W_OK, X_OK};
use abi::inotify::IN_ATTRIB;
use abi::time::Timespec;
use percore::pin;

use super::{Call, Outcome};
use crate::arch;
use crate::fs::node::Node;
use crate::fs::path::Found;
use crate::fs::{rights, watches};
use crate::mm::user;

pub fn access(call: &mut Call<'_>) -> Outcome {
    let path = call.path(0)?;
    as_real_user(call, || may(call.find(&path, &pin(), true)?.existing()?, call.arg(1) as u32))
}

pub fn faccessat(call: &mut Call<'_>) -> Outcome {
    let path = call.path(1)?;
    as_real_user(call, || may(call.find_at(0, &path, &pin(), true)?.existing()?, call.arg(2) as u32))
}

pub fn faccessat2(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(3) as u32;
    if flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = call.path(1)?;
    let check = || {
        let pin = pin();
        let node = call.node_at(0, &path, &pin, flags & AT_SYMLINK_NOFOLLOW == 0, flags)?;
        may(&node, call.arg(2) as u32)
    };
    if flags & AT_EACCESS != 0 { check() } else { as_real_user(call, check) }
}

/// Calls `check`, which does not sleep, with the rights of the real user and group.
fn as_real_user(call: &Call<'_>, check: impl FnOnce() -> Outcome) -> Outcome {
    let slot = &call.task.thread.credentials;
    match slot.peek(&pin()).of_real_user() {
        None => check(),
        Some(real) => slot.act_with(real, check)?,
    }
}

fn may(node: &Node, wanted: u32) -> Outcome {
    if wanted & !(F_OK | R_OK | W_OK | X_OK) != 0 {
        return Err(Errno::EINVAL);
    }
    if wanted & W_OK != 0 {
        node.must_be_writable()?;
    }
    // The numbers are those of the rights.
    rights::permit(node, wanted).map(|()| 0)
}

pub fn umask(call: &mut Call<'_>) -> Outcome {
    Ok(call.fs_context().set_umask(call.arg(0) as u32).into())
}

pub fn chmod(call: &mut Call<'_>) -> Outcome {
    set_mode_of(&call.find(&call.path(0)?, &pin(), true)?, call.arg(1))
}

pub fn fchmod(call: &mut Call<'_>) -> Outcome {
    let file = call.file(0)?;
    set_mode(file.node(), call.arg(1))?;
    watches::on_file(&file, IN_ATTRIB);
    Ok(0)
}

pub fn fchmodat(call: &mut Call<'_>) -> Outcome {
    set_mode_of(&call.find_at(0, &call.path(1)?, &pin(), true)?, call.arg(2))
}

fn set_mode_of(found: &Found<'_>, mode: u64) -> Outcome {
    set_mode(found.existing()?, mode)?;
    watches::on_found(found, IN_ATTRIB);
    Ok(0)
}

fn set_mode(node: &Node, mode: u64) -> Outcome {
    node.must_be_writable()?;
    rights::change_permissions(node, mode as u32).map(|()| 0)
}

pub fn chown(call: &mut Call<'_>) -> Outcome {
    set_owner_of(&call.find(&call.path(0)?, &pin(), true)?, call)
}

pub fn lchown(call: &mut Call<'_>) -> Outcome {
    set_owner_of(&call.find(&call.path(0)?, &pin(), false)?, call)
}

pub fn fchown(call: &mut Call<'_>) -> Outcome {
    let file = call.file(0)?;
    set_owner(file.node(), call.arg(1), call.arg(2))?;
    watches::on_file(&file, IN_ATTRIB);
    Ok(0)
}

fn set_owner_of(found: &Found<'_>, call: &Call<'_>) -> Outcome {
    set_owner(found.existing()?, call.arg(1), call.arg(2))?;
    watches::on_found(found, IN_ATTRIB);
    Ok(0)
}

pub fn fchownat(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(4) as u32;
    let (path, pin) = (call.path(1)?, pin());
    let node = call.node_at(0, &path, &pin, flags & AT_SYMLINK_NOFOLLOW == 0, flags)?;
    set_owner(&node, call.arg(2), call.arg(3))?;
    tell(call, &node, &path, flags)
}

/// Tells watches that the attributes of `node` have changed, which is that of argument 0 or of a path from
/// there on.
fn tell(call: &Call<'_>, node: &Node, path: &[u8], flags: u32) -> Outcome {
    if node.watched() == 0 {
        return Ok(0);
    }
    let pin = pin();
    if path.is_empty() {
        watches::on_file(call.files().peek(&pin, call.int(0))?, IN_ATTRIB);
    } else {
        watches::on_found(&call.find_at(0, path, &pin, flags & AT_SYMLINK_NOFOLLOW == 0)?, IN_ATTRIB);
    }
    Ok(0)
}

fn set_owner(node: &Node, owner: u64, group: u64) -> Outcome {
    node.must_be_writable()?;
    rights::change_owner(node, owner as u32, group as u32).map(|()| 0)
}

/// Sets the time of the last change, which is the only time that a file has.
pub fn utimensat(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(3) as u32;
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let (path, node) = match call.arg(1) {
        0 => (Vec::new(), call.file(0)?.node().clone()),
        _ => {
            let (path, pin) = (call.path(1)?, pin());
            let node = call.node_at(0, &path, &pin, flags & AT_SYMLINK_NOFOLLOW == 0, flags)?.into_owned();
            (path, node)
        }
    };
    let times = match call.arg(2) {
        0 => [NOW; 2],
        times => user::read::<[Timespec; 2]>(times)?,
    };
    let changed = change_time(times[1])?;
    let [accessed, modified] = times.map(|time| time.nanoseconds);
    if (accessed, modified) == (UTIME_OMIT, UTIME_OMIT) {
        return Ok(0);
    }
    node.must_be_writable()?;
    match (accessed, modified) {
        (UTIME_NOW, UTIME_NOW) if rights::is_owner(&node) => {}
        (UTIME_NOW, UTIME_NOW) => rights::permit(&node, rights::WRITE)?,
        _ => rights::must_own(&node)?,
    }
    changed.map_or(Ok(()), |ns| node.change_time(ns))?;
    tell(call, &node, &path, flags)
}

const UTIME_NOW: i64 = (1 << 30) - 1;
const UTIME_OMIT: i64 = (1 << 30) - 2;
/// The current time as an argument.
const NOW: Timespec = Timespec { seconds: 0, nanoseconds: UTIME_NOW };

fn change_time(time: Timespec) -> Result<Option<u64>, Errno> {
    match time.nanoseconds {
        UTIME_NOW => Ok(Some(arch::wall_ns())),
        UTIME_OMIT => Ok(None),
        _ => time.to_ns().map(Some).ok_or(Errno::EINVAL),
    }
}
