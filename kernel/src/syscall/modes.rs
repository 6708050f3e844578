//! Permissions, owners and times. The program is root, so only read-only files refuse it anything.

use abi::Errno;
use abi::file::{AT_EACCESS, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, F_OK, R_OK, W_OK, X_OK};
use abi::time::Timespec;
use percore::pin;

use super::{Call, Outcome};
use crate::arch;
use crate::fs::node::Node;
use crate::mm::user;

pub fn access(call: &mut Call<'_>) -> Outcome {
    may(call.find(&call.path(0)?, &pin(), true)?.existing()?, call.arg(1) as u32)
}

pub fn faccessat(call: &mut Call<'_>) -> Outcome {
    may(call.find_at(0, &call.path(1)?, &pin(), true)?.existing()?, call.arg(2) as u32)
}

pub fn faccessat2(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(3) as u32;
    if flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let (path, pin) = (call.path(1)?, pin());
    let node = call.node_at(0, &path, &pin, flags & AT_SYMLINK_NOFOLLOW == 0, flags)?;
    may(&node, call.arg(2) as u32)
}

fn may(node: &Node, wanted: u32) -> Outcome {
    if wanted & !(F_OK | R_OK | W_OK | X_OK) != 0 {
        return Err(Errno::EINVAL);
    }
    if wanted & W_OK != 0 {
        node.must_be_writable()?;
    }
    if wanted & X_OK != 0 && !node.is_directory() && node.permissions() & 0o111 == 0 {
        return Err(Errno::EACCES);
    }
    Ok(0)
}

pub fn umask(call: &mut Call<'_>) -> Outcome {
    Ok(call.fs_context().set_umask(call.arg(0) as u32).into())
}

pub fn chmod(call: &mut Call<'_>) -> Outcome {
    set_mode(call.find(&call.path(0)?, &pin(), true)?.existing()?, call.arg(1))
}

pub fn fchmod(call: &mut Call<'_>) -> Outcome {
    set_mode(call.file(0)?.node(), call.arg(1))
}

pub fn fchmodat(call: &mut Call<'_>) -> Outcome {
    set_mode(call.find_at(0, &call.path(1)?, &pin(), true)?.existing()?, call.arg(2))
}

fn set_mode(node: &Node, mode: u64) -> Outcome {
    node.must_be_writable()?;
    node.change_permissions(mode as u32).map(|()| 0)
}

pub fn chown(call: &mut Call<'_>) -> Outcome {
    set_owner(call.find(&call.path(0)?, &pin(), true)?.existing()?, call.arg(1), call.arg(2))
}

pub fn lchown(call: &mut Call<'_>) -> Outcome {
    set_owner(call.find(&call.path(0)?, &pin(), false)?.existing()?, call.arg(1), call.arg(2))
}

pub fn fchown(call: &mut Call<'_>) -> Outcome {
    set_owner(call.file(0)?.node(), call.arg(1), call.arg(2))
}

pub fn fchownat(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(4) as u32;
    let (path, pin) = (call.path(1)?, pin());
    let node = call.node_at(0, &path, &pin, flags & AT_SYMLINK_NOFOLLOW == 0, flags)?;
    set_owner(&node, call.arg(2), call.arg(3))
}

/// Sets the owner. Every file belongs to root, and no call can change that.
fn set_owner(node: &Node, owner: u64, group: u64) -> Outcome {
    node.must_be_writable()?;
    let stays = |id: u64| matches!(id as u32, 0 | u32::MAX);
    if stays(owner) && stays(group) { Ok(0) } else { Err(Errno::EPERM) }
}

/// Sets the time of the last change, which is the only time that a file has.
pub fn utimensat(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(3) as u32;
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let node = match call.arg(1) {
        0 => call.file(0)?.node().clone(),
        _ => call.node_at(0, &call.path(1)?, &pin(), flags & AT_SYMLINK_NOFOLLOW == 0, flags)?.into_owned(),
    };
    let changed = match call.arg(2) {
        0 => Some(arch::wall_ns()),
        times => change_time(user::read::<[Timespec; 2]>(times)?[1])?,
    };
    node.must_be_writable()?;
    changed.map_or(Ok(()), |ns| node.change_time(ns)).map(|()| 0)
}

fn change_time(time: Timespec) -> Result<Option<u64>, Errno> {
    const UTIME_NOW: i64 = (1 << 30) - 1;
    const UTIME_OMIT: i64 = (1 << 30) - 2;
    match time.nanoseconds {
        UTIME_NOW => Ok(Some(arch::wall_ns())),
        UTIME_OMIT => Ok(None),
        _ => time.to_ns().map(Some).ok_or(Errno::EINVAL),
    }
}
