//! Opening and closing.

use abi::Errno;
use abi::file::{
    AT_FDCWD, CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE, O_ACCMODE, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL,
    O_LARGEFILE, O_NOATIME, O_NOFOLLOW, O_PATH, O_RDONLY, O_TMPFILE, O_TRUNC, O_WRONLY, S_IFCHR, S_IFDIR,
    S_IFLNK, S_IFREG, S_IFSOCK,
};
use abi::inotify::{IN_MODIFY, IN_OPEN};
use percore::pin;

use super::{Call, Outcome};
use crate::fs::node::{Node, NodeRef};
use crate::fs::path::Found;
use crate::fs::{OpenFile, rights, tree, watches};
use crate::process::terminal;

pub fn open(call: &mut Call<'_>) -> Outcome {
    open_from(call, AT_FDCWD, 0, call.arg(1) as u32, call.arg(2) as u32)
}

pub fn creat(call: &mut Call<'_>) -> Outcome {
    open_from(call, AT_FDCWD, 0, O_CREAT | O_WRONLY | O_TRUNC, call.arg(1) as u32)
}

pub fn openat(call: &mut Call<'_>) -> Outcome {
    open_from(call, call.int(0), 1, call.arg(2) as u32, call.arg(3) as u32)
}

fn open_from(call: &Call<'_>, directory: i32, path: usize, flags: u32, mode: u32) -> Outcome {
    // With O_PATH the other flags mean nothing. Without it, every file may be large.
    let flags = match flags & O_PATH {
        0 => flags | O_LARGEFILE,
        _ => flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
    };
    let path = call.path(path)?;
    let mode = call.fs_context().masked(mode & 0o7777);
    // If another thread makes the file at the same moment, it is opened as if it had existed before.
    let pin = pin();
    let (node, place) = loop {
        let found = call.find_from(directory, &path, &pin, follows(flags))?;
        match node_for(&found, flags, mode).and_then(|node| prepared(node, flags)) {
            Err(Errno::EEXIST) if flags & O_EXCL == 0 => {}
            // Another thread has given the name to another file.
            Err(Errno::ESTALE) => {}
            Err(Errno::ENOENT) if found.existing().is_ok_and(|node| node.mounted().is_some()) => {
                tree::forget_gone(&found)?;
            }
            outcome => break (outcome?, found.into_place()),
        }
    };
    let is_emptied = flags & O_TRUNC != 0 && wants_to_write(flags) && empty(&node)?;
    let file = match flags & O_TMPFILE {
        O_TMPFILE => OpenFile::new(node, flags)?,
        _ => OpenFile::found(node, place, flags)?,
    };
    if is_emptied {
        watches::on_file(&file, IN_MODIFY);
    }
    watches::on_file(&file, IN_OPEN);
    if file.node().kind() == S_IFCHR {
        terminal::opened(call.task, &file, flags);
    }
    Ok(call.files().add(file, 0, flags & O_CLOEXEC != 0)? as u64)
}

/// Checks that a node may be opened, and prepares it.
fn prepared(node: NodeRef, flags: u32) -> Result<NodeRef, Errno> {
    permit(&node, flags)?;
    if flags & O_PATH == 0 {
        node.prepare_open()?;
    }
    Ok(node)
}

/// Returns whether a symbolic link at the end of the path is followed.
fn follows(flags: u32) -> bool {
    flags & O_NOFOLLOW == 0 && flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL
}

fn wants_to_write(flags: u32) -> bool {
    flags & O_ACCMODE != O_RDONLY && flags & O_PATH == 0
}

fn node_for(found: &Found<'_>, flags: u32, mode: u32) -> Result<NodeRef, Errno> {
    match found.node.as_deref() {
        Some(node) if flags & O_TMPFILE == O_TMPFILE => nameless(node, flags, mode),
        Some(_) if flags & (O_CREAT | O_EXCL | O_PATH) == O_CREAT | O_EXCL => Err(Errno::EEXIST),
        Some(node) if wants_to_write(flags) && node.kind() == S_IFREG => {
            permit_open(node, flags)?;
            node.prepare_open()?;
            tree::writable(found)
        }
        Some(node) => {
            permit_open(node, flags)?;
            Ok(node.clone())
        }
        None if flags & (O_CREAT | O_PATH) == O_CREAT => tree::make_file(found, mode),
        None => Err(Errno::ENOENT),
    }
}

fn nameless(directory: &NodeRef, flags: u32, mode: u32) -> Result<NodeRef, Errno> {
    match directory.is_directory() {
        _ if !wants_to_write(flags) => Err(Errno::EINVAL),
        true => tree::nameless_file(directory, mode),
        false => Err(Errno::ENOTDIR),
    }
}

/// Checks that an existing node may be opened with `flags`.
fn permit(node: &Node, flags: u32) -> Result<(), Errno> {
    match node.kind() {
        S_IFDIR if wants_to_write(flags) || flags & (O_CREAT | O_PATH) == O_CREAT => Err(Errno::EISDIR),
        S_IFDIR => Ok(()),
        _ if flags & O_DIRECTORY != 0 && flags & O_TMPFILE != O_TMPFILE => Err(Errno::ENOTDIR),
        S_IFLNK if flags & O_PATH == 0 => Err(Errno::ELOOP),
        S_IFSOCK if flags & O_PATH == 0 => Err(Errno::ENXIO),
        _ => Ok(()),
    }
}

/// Checks that the running thread may open an existing node with `flags`.
fn permit_open(node: &Node, flags: u32) -> Result<(), Errno> {
    permit(node, flags)?;
    if flags & O_PATH != 0 || node.kind() == S_IFSOCK {
        return Ok(());
    }
    rights::permit(node, wanted_rights(flags))?;
    if flags & O_NOATIME != 0 { rights::must_own(node) } else { Ok(()) }
}

/// Returns the rights that an open with `flags` needs.
fn wanted_rights(flags: u32) -> u32 {
    let by_mode = match flags & O_ACCMODE {
        O_RDONLY => rights::READ,
        O_WRONLY => rights::WRITE,
        _ => rights::READ | rights::WRITE,
    };
    if flags & O_TRUNC != 0 { by_mode | rights::WRITE } else { by_mode }
}

/// Truncates a regular file, and returns whether it is one.
fn empty(node: &Node) -> Result<bool, Errno> {
    match node.content() {
        Some(content) if content.kind() == S_IFREG => {
            rights::drop_set_ids(node)?;
            node.touch();
            content.set_len(0).map(|()| true)
        }
        _ => Ok(false),
    }
}

pub fn close(call: &mut Call<'_>) -> Outcome {
    call.files().close(call.int(0)).map(|()| 0)
}

pub fn close_range(call: &mut Call<'_>) -> Outcome {
    let (first, last, flags) = (call.arg(0) as u32, call.arg(1) as u32, call.arg(2) as u32);
    if first > last || flags & !(CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE) != 0 {
        return Err(Errno::EINVAL);
    }
    match flags & CLOSE_RANGE_CLOEXEC {
        0 => call.files().close_range(first, last),
        _ => call.files().mark_range(first, last),
    }
    Ok(0)
}
