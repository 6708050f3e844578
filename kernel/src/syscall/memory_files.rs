//! Files without a name, and allocating pages of files.

use abi::Errno;
use abi::file::*;
use abi::inotify::IN_MODIFY;

use super::{Call, Outcome};
use crate::fs::host::MountFile;
use crate::fs::memory_file::MemoryFile;
use crate::fs::node::Node;
use crate::fs::page_cache::PageCache;
use crate::fs::{OpenFile, Room, rights, watches};
use crate::mm::fallible;
use crate::mm::user;
use crate::process::retry;

/// The longest name of a memfd.
const NAME: usize = NAME_MAX - b"memfd:".len();

/// Creates a file without a name. The given name is for `/proc` only.
pub fn memfd_create(call: &mut Call<'_>) -> Outcome {
    let flags = u64::from(call.arg(1) as u32);
    if flags & !(MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let name = user::read_cstr(call.arg(0), NAME + 1).map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        other => other,
    })?;
    let name = fallible::extended(fallible::copied(b"memfd:")?, &name)?;
    let content = MemoryFile::anonymous(flags & MFD_ALLOW_SEALING != 0)?;
    let file = OpenFile::called(Node::nameless(0o777, content)?, name, O_RDWR | O_LARGEFILE)?;
    Ok(call.files().add(file, 0, flags & MFD_CLOEXEC != 0)? as u64)
}

/// Allocates pages for a range of a file, or punches a hole.
pub fn fallocate(call: &mut Call<'_>) -> Outcome {
    let (file, mode) = (call.file(0)?, u64::from(call.arg(1) as u32));
    let (at, len) = (call.arg(2), call.arg(3));
    if (at as i64) < 0 || (len as i64) <= 0 {
        return Err(Errno::EINVAL);
    }
    let content = file.writable()?;
    let pages = match content.pages() {
        Some(pages) if file.node().volume().is_writable() => pages,
        _ if content.is_stream() => return Err(Errno::ESPIPE),
        _ => return Err(Errno::ENODEV),
    };
    rights::drop_set_ids(file.node())?;
    const HOLE: u64 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    match (mode, content.mount_file()) {
        (0, mounted) => {
            let _change = mounted.map(MountFile::begin_change);
            reserve(pages, at, len)?;
            mounted.into_iter().for_each(MountFile::note_all);
        }
        (FALLOC_FL_KEEP_SIZE, _) => pages.check_extension(at, len)?,
        // The host's file would keep the bytes.
        (HOLE, None) => pages.punch(at, len)?,
        _ => return Err(Errno::EOPNOTSUPP),
    }
    file.node().touch();
    watches::on_file(&file, IN_MODIFY);
    Ok(0)
}

/// Allocates pages for a range of a file, once there is room.
fn reserve(pages: &PageCache, at: u64, len: u64) -> Result<(), Errno> {
    let mut room = Room::default();
    loop {
        match retry(|| pages.reserve(at, len)) {
            Err(Errno::ENOSPC) if room.make() => {}
            reserved => return reserved,
        }
    }
}
