//! Names: creating, removing and renaming them, and the current directory.

use alloc::vec::Vec;

use abi::Errno;
use abi::file::{AT_EMPTY_PATH, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, RENAME_NOREPLACE};
use percore::pin;

use super::{Call, Outcome};
use crate::bytes::prefix;
use crate::fs::node::{self, Body, Node};
use crate::fs::path::{self, Found};
use crate::fs::tree;
use crate::mm::{fallible, user};
use crate::process::retry;

pub fn mkdir(call: &mut Call<'_>) -> Outcome {
    let path = call.path(0)?;
    retry(|| make_directory(call, &call.find(&path, &pin(), false)?, call.arg(1)))
}

pub fn mkdirat(call: &mut Call<'_>) -> Outcome {
    let path = call.path(1)?;
    retry(|| make_directory(call, &call.find_at(0, &path, &pin(), false)?, call.arg(2)))
}

fn make_directory(call: &Call<'_>, at: &Found<'_>, mode: u64) -> Outcome {
    tree::make_directory(at, call.fs_context().masked(mode as u32 & 0o1777)).map(|()| 0)
}

pub fn rmdir(call: &mut Call<'_>) -> Outcome {
    tree::remove_directory(&call.find(&call.path(0)?, &pin(), false)?)?;
    tree::free_directories();
    Ok(0)
}

pub fn unlink(call: &mut Call<'_>) -> Outcome {
    tree::unlink(&call.find(&call.path(0)?, &pin(), false)?).map(|()| 0)
}

pub fn unlinkat(call: &mut Call<'_>) -> Outcome {
    let (path, pin) = (call.path(1), pin());
    let found = path.and_then(|path| call.find_at(0, &path, &pin, false));
    match call.arg(2) as u32 {
        0 => tree::unlink(&found?)?,
        AT_REMOVEDIR => tree::remove_directory(&found?)?,
        _ => return Err(Errno::EINVAL),
    }
    tree::free_directories();
    Ok(0)
}

pub fn rename(call: &mut Call<'_>) -> Outcome {
    let (from, to, pin) = (call.path(0)?, call.path(1), pin());
    let from = call.find(&from, &pin, false)?;
    move_name(&from, &call.find(&to?, &pin, false)?, 0)
}

pub fn renameat(call: &mut Call<'_>) -> Outcome {
    move_name_at(call, 0)
}

pub fn renameat2(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(4) as u32;
    if flags & !RENAME_NOREPLACE != 0 {
        return Err(Errno::EINVAL);
    }
    move_name_at(call, flags)
}

fn move_name_at(call: &Call<'_>, flags: u32) -> Outcome {
    let (from, to, pin) = (call.path(1)?, call.path(3), pin());
    let from = call.find_at(0, &from, &pin, false)?;
    move_name(&from, &call.find_at(2, &to?, &pin, false)?, flags)
}

fn move_name(from: &Found<'_>, to: &Found<'_>, flags: u32) -> Outcome {
    tree::rename(from, to, flags)?;
    tree::free_directories();
    Ok(0)
}

pub fn link(call: &mut Call<'_>) -> Outcome {
    let (from, to, pin) = (call.path(0)?, call.path(1), pin());
    let from = call.find(&from, &pin, false)?;
    tree::hard_link(from.existing()?, &call.find(&to?, &pin, false)?).map(|()| 0)
}

pub fn linkat(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(4) as u32;
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let (from, to, pin) = (call.path(1)?, call.path(3), pin());
    let node = call.node_at(0, &from, &pin, flags & AT_SYMLINK_FOLLOW != 0, flags)?;
    tree::hard_link(&node, &call.find_at(2, &to?, &pin, false)?).map(|()| 0)
}

pub fn symlink(call: &mut Call<'_>) -> Outcome {
    let (target, path, pin) = (call.path(0), call.path(1)?, pin());
    make_link(&target, &call.find(&path, &pin, false)?)
}

pub fn symlinkat(call: &mut Call<'_>) -> Outcome {
    let (target, path, pin) = (call.path(0), call.path(2)?, pin());
    make_link(&target, &call.find_at(1, &path, &pin, false)?)
}

fn make_link(target: &Result<Vec<u8>, Errno>, at: &Found<'_>) -> Outcome {
    match &**target.as_ref().map_err(|&error| error)? {
        b"" => Err(Errno::ENOENT),
        target => tree::make_link(at, target).map(|()| 0),
    }
}

pub fn readlink(call: &mut Call<'_>) -> Outcome {
    let target = target(call.find(&call.path(0)?, &pin(), false)?.existing()?, call.int(2))?;
    write_target(call.arg(1), &target)
}

pub fn readlinkat(call: &mut Call<'_>) -> Outcome {
    let target = target(call.find_at(0, &call.path(1)?, &pin(), false)?.existing()?, call.int(3))?;
    write_target(call.arg(2), &target)
}

/// Returns a copy of the first `size` bytes of where a link leads.
fn target(node: &Node, size: i32) -> Result<Vec<u8>, Errno> {
    let size = usize::try_from(size).ok().filter(|&size| size > 0).ok_or(Errno::EINVAL)?;
    match node.body() {
        Body::Link(link) => fallible::copied(prefix(node::target(link), size as u64)),
        Body::Descriptor(open) => {
            let mut path = open.path()?;
            path.truncate(size);
            Ok(path)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn write_target(to: u64, target: &[u8]) -> Outcome {
    user::copy_out(to, target)?;
    Ok(target.len() as u64)
}

pub fn getcwd(call: &mut Call<'_>) -> Outcome {
    let mut path = path::of(&call.fs_context().directory())?;
    path.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    path.push(0);
    if (path.len() as u64) > call.arg(1) {
        return Err(Errno::ERANGE);
    }
    user::copy_out(call.arg(0), &path)?;
    Ok(path.len() as u64)
}

pub fn chdir(call: &mut Call<'_>) -> Outcome {
    let node = call.find(&call.path(0)?, &pin(), true)?.existing()?.clone();
    call.fs_context().set_directory(node).map(|()| 0)
}

pub fn fchdir(call: &mut Call<'_>) -> Outcome {
    let node = call.file(0)?.node().clone();
    call.fs_context().set_directory(node).map(|()| 0)
}
