//! Positions in files and their lengths.

use abi::Errno;
use abi::file::*;
use abi::inotify::IN_MODIFY;
use percore::pin;

use super::{Call, Outcome};
use crate::fs::content::Content;
use crate::fs::node::{Node, NodeRef};
use crate::fs::{host, inotify, rights, tree, watches};
use crate::process::retry;
use crate::process::signal::signalfd;

pub fn lseek(call: &mut Call<'_>) -> Outcome {
    let file = call.file(0)?;
    let (offset, whence) = (call.arg(1) as i64, u64::from(call.arg(2) as u32));
    // As in Linux, a bad `whence` is refused before the kind of the file.
    if !matches!(whence, SEEK_SET | SEEK_CUR | SEEK_END | SEEK_DATA | SEEK_HOLE) {
        return Err(Errno::EINVAL);
    }
    let content = file.node().content();
    if content.is_some_and(Content::is_stream) {
        // Files of signals and of events stay where they are.
        let stays = signalfd::of(&file).is_ok() || inotify::queue(&file).is_ok();
        return if stays { Ok(0) } else { Err(Errno::ESPIPE) };
    }
    // Read only for those that depend on it: a write that extends the file changes it.
    let len = match whence {
        SEEK_SET | SEEK_CUR => 0,
        _ => content.map_or(0, Content::len) as i64,
    };
    let inside = (0..len).contains(&offset);
    let found = match whence {
        SEEK_DATA | SEEK_HOLE if inside => Some(seek(file.node(), offset, whence == SEEK_DATA)?),
        SEEK_DATA | SEEK_HOLE => return Err(Errno::ENXIO),
        _ => None,
    };
    let mut position = file.position.lock();
    let target = match whence {
        SEEK_SET => Some(offset),
        SEEK_CUR => offset.checked_add(*position as i64),
        SEEK_END => offset.checked_add(len),
        _ => found,
    };
    *position = target.and_then(|target| u64::try_from(target).ok()).ok_or(Errno::EINVAL)?;
    Ok(*position)
}

/// Returns the next data or hole from `offset` on, which is below the end. Contents without pages are all
/// data.
fn seek(node: &Node, offset: i64, data: bool) -> Result<i64, Errno> {
    match node.content().and_then(Content::pages) {
        Some(pages) => pages.seek(offset as u64, data).map(|at| at as i64),
        None if data => Ok(offset),
        None => Ok(node.content().map_or(0, Content::len) as i64),
    }
}

pub fn ftruncate(call: &mut Call<'_>) -> Outcome {
    let file = call.file(0)?;
    if !file.is_writable() {
        return Err(Errno::EINVAL);
    }
    set_len(file.node(), call.arg(1))?;
    watches::on_file(&file, IN_MODIFY);
    Ok(0)
}

pub fn truncate(call: &mut Call<'_>) -> Outcome {
    // Counted, because a long file is truncated in pieces.
    let path = call.path(0)?;
    let node = loop {
        match writable(call, &path) {
            // Another thread has given the name to another file.
            Err(Errno::ESTALE) => {}
            node => break node?,
        }
    };
    set_len(&node, call.arg(1))?;
    if node.watched() != 0 {
        watches::on_found(&call.find(&path, &pin(), true)?, IN_MODIFY);
    }
    // No descriptor is closed that would do it.
    node.write_back().map(|()| 0)
}

fn writable(call: &Call<'_>, path: &[u8]) -> Result<NodeRef, Errno> {
    let pin = pin();
    let found = call.find(path, &pin, true)?;
    match found.existing()? {
        node if node.is_directory() => Err(Errno::EISDIR),
        node => rights::permit(node, rights::WRITE)
            .and_then(|()| node.prepare_open())
            .and_then(|()| tree::writable(&found)),
    }
}

fn set_len(node: &Node, len: u64) -> Outcome {
    let content = node.content().filter(|content| content.kind() == S_IFREG).ok_or(Errno::EINVAL)?;
    if len > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    rights::drop_set_ids(node)?;
    retry(|| content.set_len(len))?;
    node.touch();
    Ok(0)
}

/// Writes a file of a mounted directory back to the host and its disk. All others are in memory only.
pub fn fsync(call: &mut Call<'_>) -> Outcome {
    let file = call.file(0)?.counted();
    match file.node().content() {
        Some(content) if content.is_stream() => Err(Errno::EINVAL),
        Some(content) => content.mount_file().map_or(Ok(0), |file| file.fsync().map(|()| 0)),
        None => Ok(0),
    }
}

pub fn fdatasync(call: &mut Call<'_>) -> Outcome {
    fsync(call)
}

/// Begins to write a range of a file back, or waits for that. A file of a mounted directory is written back
/// as a whole, all others are in memory only.
pub fn sync_file_range(call: &mut Call<'_>) -> Outcome {
    let (offset, bytes, flags) = (call.arg(1) as i64, call.arg(2) as i64, call.arg(3));
    let file = call.file(0)?.counted();
    let is_range = offset >= 0 && offset.checked_add(bytes).is_some_and(|end| end >= offset);
    if !is_range || u64::from(flags as u32) & !SYNC_FILE_RANGE_ALL != 0 {
        return Err(Errno::EINVAL);
    }
    match file.node().kind() {
        S_IFREG => file.node().write_back().map(|()| 0),
        S_IFDIR | S_IFLNK => Ok(0),
        _ => Err(Errno::ESPIPE),
    }
}

pub fn syncfs(call: &mut Call<'_>) -> Outcome {
    call.file(0)?;
    let mut failed = Ok(0);
    host::write_back(false, &mut |_, error| failed = Err(error))?;
    failed
}

/// Writes back all files of mounted directories. It tells no error, as in Linux.
pub fn sync(_call: &mut Call<'_>) -> Outcome {
    let _untold = host::write_back(false, &mut |_, _| {});
    Ok(0)
}

/// Takes advice about a file. Only `POSIX_FADV_DONTNEED` has an effect: it drops pages that can be made
/// again.
pub fn fadvise64(call: &mut Call<'_>) -> Outcome {
    const KINDS: u64 = 6;
    let file = call.file(0)?;
    let (content, advice) = (file.node().content(), call.arg(3));
    if content.is_some_and(Content::is_stream) {
        return Err(Errno::ESPIPE);
    }
    if (call.arg(2) as i64) < 0 || advice >= KINDS {
        return Err(Errno::EINVAL);
    }
    if let Some(pages) = content.and_then(Content::pages).filter(|_| advice == POSIX_FADV_DONTNEED) {
        pages.discard(call.arg(1), call.arg(2));
    }
    Ok(0)
}
