//! Names: creating, removing and renaming them, and the current directory.

use abi::Errno;
use abi::file::{AT_EMPTY_PATH, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, RENAME_NOREPLACE};

use super::{Call, Outcome};
use crate::bytes::prefix;
use crate::fs::node::{Body, Node};
use crate::fs::path::{self, Found};
use crate::fs::tree;
use crate::mm::user;

pub fn mkdir(call: &mut Call<'_>) -> Outcome {
    make_directory(call, call.find(0, false)?, call.arg(1))
}

pub fn mkdirat(call: &mut Call<'_>) -> Outcome {
    make_directory(call, call.find_at(0, 1, false)?, call.arg(2))
}

fn make_directory(call: &Call<'_>, at: Found, mode: u64) -> Outcome {
    tree::make_directory(&at, call.fs_context().masked(mode as u32 & 0o1777)).map(|()| 0)
}

pub fn rmdir(call: &mut Call<'_>) -> Outcome {
    tree::remove_directory(&call.find(0, false)?).map(|()| 0)
}

pub fn unlink(call: &mut Call<'_>) -> Outcome {
    tree::unlink(&call.find(0, false)?).map(|()| 0)
}

pub fn unlinkat(call: &mut Call<'_>) -> Outcome {
    let found = call.find_at(0, 1, false);
    match call.arg(2) as u32 {
        0 => tree::unlink(&found?)?,
        AT_REMOVEDIR => tree::remove_directory(&found?)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

pub fn rename(call: &mut Call<'_>) -> Outcome {
    move_name(call.find(0, false)?, call.find(1, false)?, 0)
}

pub fn renameat(call: &mut Call<'_>) -> Outcome {
    move_name(call.find_at(0, 1, false)?, call.find_at(2, 3, false)?, 0)
}

pub fn renameat2(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(4) as u32;
    if flags & !RENAME_NOREPLACE != 0 {
        return Err(Errno::EINVAL);
    }
    move_name(call.find_at(0, 1, false)?, call.find_at(2, 3, false)?, flags)
}

fn move_name(from: Found, to: Found, flags: u32) -> Outcome {
    tree::rename(&from, &to, flags).map(|()| 0)
}

pub fn link(call: &mut Call<'_>) -> Outcome {
    tree::hard_link(call.find(0, false)?.existing()?, &call.find(1, false)?).map(|()| 0)
}

pub fn linkat(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(4) as u32;
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let node = call.node_at(0, 1, flags & AT_SYMLINK_FOLLOW != 0, flags)?;
    tree::hard_link(&node, &call.find_at(2, 3, false)?).map(|()| 0)
}

pub fn symlink(call: &mut Call<'_>) -> Outcome {
    make_link(call, call.find(1, false)?)
}

pub fn symlinkat(call: &mut Call<'_>) -> Outcome {
    make_link(call, call.find_at(1, 2, false)?)
}

fn make_link(call: &Call<'_>, at: Found) -> Outcome {
    match &*call.path(0)? {
        b"" => Err(Errno::ENOENT),
        target => tree::make_link(&at, target).map(|()| 0),
    }
}

pub fn readlink(call: &mut Call<'_>) -> Outcome {
    read_link(call.find(0, false)?.existing()?, call.arg(1), call.int(2))
}

pub fn readlinkat(call: &mut Call<'_>) -> Outcome {
    read_link(call.find_at(0, 1, false)?.existing()?, call.arg(2), call.int(3))
}

fn read_link(node: &Node, to: u64, size: i32) -> Outcome {
    let size = usize::try_from(size).ok().filter(|&size| size > 0).ok_or(Errno::EINVAL)?;
    let described;
    let target = match node.body() {
        Body::Link(target) => &**target,
        Body::Descriptor(open) => {
            described = open.path()?;
            &*described
        }
        _ => return Err(Errno::EINVAL),
    };
    let shown = prefix(target, size as u64);
    user::copy_out(to, shown)?;
    Ok(shown.len() as u64)
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
    let node = call.find(0, true)?.existing()?.clone();
    call.fs_context().set_directory(node).map(|()| 0)
}

pub fn fchdir(call: &mut Call<'_>) -> Outcome {
    let node = call.file(0)?.node().clone();
    call.fs_context().set_directory(node).map(|()| 0)
}
