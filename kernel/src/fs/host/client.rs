//! Requests to the host, one at a time. Each waits for its answer.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use abi::Errno;
use abi::ninep::{Attributes, BASIC, DATA_HEAD, Damaged, Fields, Kind, NO_TAG, NONE, Request, VERSION};
use sync::{SetOnce, SpinLock};

use crate::arch::{ANSWER_BYTES, Channel};
use crate::mm::fallible;

/// The fid of the root directory.
pub const ROOT: u32 = 0;
/// The tag of all requests, since there is only one at a time.
const TAG: u16 = 0;
/// The bytes of data in one answer: whole pages, and room for what comes before.
pub const DATA_BYTES: u32 = ANSWER_BYTES as u32 - 4096;

static CHANNEL: SetOnce<SpinLock<Channel>> = SetOnce::new();
/// The next fid. Relaxed: only uniqueness matters. Four billion look-ups of new files use them up.
static NEXT_FID: AtomicU32 = AtomicU32::new(ROOT + 1);

/// Opens the channel and names the root. Called once, at boot.
///
/// # Errors
/// ENODEV, EIO.
pub fn connect() -> Result<(), Errno> {
    CHANNEL.set(SpinLock::new(Channel::open().ok_or(Errno::ENODEV)?));
    let version = |request: &mut Request<'_>| {
        request.u32(ANSWER_BYTES as u32).string(VERSION);
    };
    let agreed =
        call(Kind::Version, version, |mut fields| Ok((fields.u32()? as usize, fields.string()? == VERSION)));
    if agreed? != (ANSWER_BYTES, true) {
        return Err(Errno::EIO);
    }
    let attach = |request: &mut Request<'_>| {
        request.u32(ROOT).u32(NONE).string(b"").string(b"").u32(0);
    };
    call(Kind::Attach, attach, |_| Ok(()))
}

/// Returns the error that the guest's program gets for one of the host's. Those that this kernel acts upon
/// would not mean the guest.
fn told(error: Errno) -> Errno {
    match error {
        Errno::ENOMEM | Errno::EBUSY | Errno::EAGAIN | Errno::EINTR | Errno::ENOSPC | Errno::ESTALE => {
            Errno::EIO
        }
        error => error,
    }
}

/// Sends a request with the fields that `fill` adds, and returns what `take` makes of the fields of the
/// answer.
fn call<R>(
    kind: Kind,
    fill: impl FnOnce(&mut Request<'_>),
    take: impl FnOnce(Fields<'_>) -> Result<R, Damaged>,
) -> Result<R, Errno> {
    let mut channel = CHANNEL.get().ok_or(Errno::EIO)?.lock();
    let tag = if kind == Kind::Version { NO_TAG } else { TAG };
    let answer = channel.call(|buffer| {
        let mut request = Request::new(buffer, kind, tag);
        fill(&mut request);
        request.finish()
    });
    let fields = Fields::of(answer.ok_or(Errno::EIO)?, kind, tag).map_err(|Damaged| Errno::EIO)?;
    let fields = fields.map_err(told)?;
    take(fields).map_err(|Damaged| Errno::EIO)
}

/// Returns what adds a fid, the only field of a request.
fn of(fid: u32) -> impl FnOnce(&mut Request<'_>) {
    move |request| {
        request.u32(fid);
    }
}

/// Returns a new fid for the file called `name` in the directory `from`, or for that directory itself.
///
/// # Errors
/// ENOENT, EIO, and the host's.
pub fn walk(from: u32, name: Option<&[u8]>) -> Result<u32, Errno> {
    let (new, names) = (NEXT_FID.fetch_add(1, Ordering::Relaxed), u16::from(name.is_some()));
    let fill = |request: &mut Request<'_>| {
        request.u32(from).u32(new).u16(names);
        name.into_iter().for_each(|name| {
            request.string(name);
        });
    };
    let walked = call(Kind::Walk, fill, |mut fields| fields.u16())?;
    if walked == names { Ok(new) } else { Err(Errno::ENOENT) }
}

/// Returns a file's attributes.
pub fn attributes(fid: u32) -> Result<Attributes, Errno> {
    let fill = |request: &mut Request<'_>| {
        request.u32(fid).u64(BASIC);
    };
    call(Kind::Getattr, fill, |mut fields| Attributes::take(&mut fields))
}

/// Returns where a symbolic link leads.
pub fn link_target(fid: u32) -> Result<Vec<u8>, Errno> {
    call(Kind::Readlink, of(fid), |mut fields| Ok(fallible::copied(fields.string()?)))?
}

/// Opens a file for reading.
pub fn open(fid: u32) -> Result<(), Errno> {
    let fill = |request: &mut Request<'_>| {
        request.u32(fid).u32(0);
    };
    call(Kind::Lopen, fill, |_| Ok(()))
}

/// Returns entries of an open directory from `position` on, none at the end.
pub fn entries(fid: u32, position: u64) -> Result<Vec<u8>, Errno> {
    let fill = |request: &mut Request<'_>| {
        request.u32(fid).u64(position).u32(DATA_BYTES);
    };
    call(Kind::Readdir, fill, |mut fields| Ok(fallible::copied(fields.data()?)))?
}

/// Passes at most `len` bytes, of which there are at most [`DATA_BYTES`], of an open file from `at` on to
/// `take`. It gets fewer at the end of the file. The channel is locked meanwhile.
pub fn read<R>(
    fid: u32,
    at: u64,
    len: u32,
    take: impl FnOnce(&[u8]) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let fill = |request: &mut Request<'_>| {
        request.u32(fid).u64(at).u32(len.min(DATA_BYTES));
    };
    call(Kind::Read, fill, |mut fields| Ok(take(fields.data()?)))?
}

/// Forgets a fid. The host has no use for an error.
pub fn forget(fid: u32) {
    let _unused = call(Kind::Clunk, of(fid), |_| Ok(()));
}

const _: () = assert!(DATA_BYTES as usize + DATA_HEAD <= ANSWER_BYTES);
