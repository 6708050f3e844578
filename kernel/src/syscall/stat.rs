//! Properties of files, entries of directories, sizes of volumes.

use alloc::vec::Vec;

use abi::Errno;
use abi::file::{
    AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, AT_SYMLINK_NOFOLLOW, DIRENT64_HEAD, NAME_MAX,
    STATX_BASIC_STATS, STATX_RESERVED, Stat, Statfs, Statx, StatxTimestamp,
};
use abi::inotify::IN_ACCESS;
use abi::time::Timespec;
use percore::pin;
use vm::Access;

use super::{Call, Outcome};
use crate::fs::node::{Listed, Volume};
use crate::fs::page_cache::PAGE;
use crate::fs::{OpenFile, watches};
use crate::mm::{epoch, fallible, user};
use crate::process::under_lock_over;

pub fn stat(call: &mut Call<'_>) -> Outcome {
    let stat = call.find(&call.path(0)?, &pin(), true)?.existing()?.stat();
    write_stat(&stat, call.arg(1))
}

pub fn lstat(call: &mut Call<'_>) -> Outcome {
    let stat = call.find(&call.path(0)?, &pin(), false)?.existing()?.stat();
    write_stat(&stat, call.arg(1))
}

pub fn fstat(call: &mut Call<'_>) -> Outcome {
    write_stat(&call.file(0)?.node().stat(), call.arg(1))
}

pub fn newfstatat(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(3) as u32;
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT) != 0 {
        return Err(Errno::EINVAL);
    }
    let stat = call.node_at(0, &call.path(1)?, &pin(), flags & AT_SYMLINK_NOFOLLOW == 0, flags)?.stat();
    write_stat(&stat, call.arg(2))
}

fn write_stat(stat: &Stat, to: u64) -> Outcome {
    user::write(to, stat).map(|()| 0)
}

pub fn statx(call: &mut Call<'_>) -> Outcome {
    let (flags, mask) = (call.arg(2) as u32, call.arg(3) as u32);
    let known = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_STATX_SYNC_TYPE;
    if flags & !known != 0 || flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE || mask & STATX_RESERVED != 0 {
        return Err(Errno::EINVAL);
    }
    let stat = call.node_at(0, &call.path(1)?, &pin(), flags & AT_SYMLINK_NOFOLLOW == 0, flags)?.stat();
    user::write(call.arg(4), &extended(&stat)).map(|()| 0)
}

fn extended(stat: &Stat) -> Statx {
    let time = timestamp(stat.mtime);
    Statx {
        mask: STATX_BASIC_STATS,
        blksize: stat.blksize as u32,
        nlink: stat.nlink as u32,
        uid: stat.uid,
        gid: stat.gid,
        mode: stat.mode as u16,
        ino: stat.ino,
        size: stat.size as u64,
        blocks: stat.blocks as u64,
        atime: time,
        ctime: time,
        mtime: time,
        rdev: [stat.rdev as u32 >> 8, stat.rdev as u32 & 0xff],
        dev: [0, stat.dev as u32],
        ..Statx::default()
    }
}

fn timestamp(time: Timespec) -> StatxTimestamp {
    StatxTimestamp { seconds: time.seconds, nanoseconds: time.nanoseconds as u32, reserved: 0 }
}

pub fn statfs(call: &mut Call<'_>) -> Outcome {
    let volume = call.find(&call.path(0)?, &pin(), true)?.existing()?.volume();
    write_volume(volume, call.arg(1))
}

pub fn fstatfs(call: &mut Call<'_>) -> Outcome {
    write_volume(call.file(0)?.node().volume(), call.arg(1))
}

fn write_volume(volume: Volume, to: u64) -> Outcome {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const READ_ONLY: i64 = 1;
    let writable = volume.is_writable();
    if writable {
        epoch::free_removed();
        epoch::free_nameless();
    }
    let (blocks, used) = if writable { crate::fs::budget() } else { (0, 0) };
    let free = blocks.saturating_sub(used);
    let statfs = Statfs {
        kind: TMPFS_MAGIC,
        bsize: PAGE as i64,
        blocks,
        bfree: free,
        bavail: free,
        fsid: [volume.number().into(), 0],
        namelen: NAME_MAX as i64,
        frsize: PAGE as i64,
        flags: if writable { 0 } else { READ_ONLY },
        ..Statfs::default()
    };
    user::write(to, &statfs).map(|()| 0)
}

pub fn getdents64(call: &mut Call<'_>) -> Outcome {
    /// The bytes that one call writes at most.
    const MOST: usize = 32 << 10;
    let file = call.file(0)?;
    if !file.node().is_directory() {
        return Err(Errno::ENOTDIR);
    }
    // A negative count has no room for any name.
    let count = usize::try_from(call.int(2)).unwrap_or(0).min(MOST);
    let mut listing = Listing { bytes: fallible::empty(count)?, full: false };
    let at = call.arg(1);
    let span = |listing: &Listing| at..at.saturating_add(listing.bytes.len().max(1) as u64);
    let listed = under_lock_over(&mut listing, Access::Write, span, |listing| list(&file, listing, at))?;
    watches::on_file(&file, IN_ACCESS);
    Ok(listed)
}

/// Writes the entries from the file's position on to `to`.
fn list(file: &OpenFile, listing: &mut Listing, to: u64) -> Outcome {
    listing.bytes.clear();
    let mut position = file.position.lock();
    let mut next = *position;
    file.node().list(next, &mut |listed| {
        let fits = listing.add(&listed);
        if fits {
            next = listed.position;
        }
        fits
    })?;
    if listing.full && listing.bytes.is_empty() {
        return Err(Errno::EINVAL);
    }
    user::copy_out(to, &listing.bytes)?;
    *position = next;
    Ok(listing.bytes.len() as u64)
}

struct Listing {
    bytes: Vec<u8>,
    /// Set if an entry did not fit.
    full: bool,
}

impl Listing {
    /// Adds a `struct linux_dirent64` if there is room, and returns whether there was.
    fn add(&mut self, listed: &Listed<'_>) -> bool {
        let len = (DIRENT64_HEAD + listed.name.len() + 1).next_multiple_of(8);
        self.full = self.bytes.capacity() - self.bytes.len() < len;
        if self.full {
            return false;
        }
        let end = self.bytes.len() + len;
        self.bytes.extend_from_slice(&listed.ino.to_ne_bytes());
        self.bytes.extend_from_slice(&listed.position.to_ne_bytes());
        self.bytes.extend_from_slice(&(len as u16).to_ne_bytes());
        // DT_* are the type bits of the mode.
        self.bytes.push((listed.kind >> 12) as u8);
        self.bytes.extend_from_slice(listed.name);
        self.bytes.resize(end, 0);
        true
    }
}
