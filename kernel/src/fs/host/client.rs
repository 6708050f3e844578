//! Requests to the host, one at a time for each device. Each waits for its answer.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use abi::Errno;
use abi::file::{AT_REMOVEDIR, O_EXCL, O_RDONLY, O_RDWR};
use abi::ninep::{
    Attributes, BASIC, DATA_HEAD, Damaged, Fields, Kind, NO_TAG, NONE, Request, SET_CHANGED, SET_MODE,
    SET_SIZE, VERSION,
};
use sync::{SetOnce, SpinLock};

use crate::arch::{ANSWER_BYTES, CHANNELS, Channel, REQUEST_BYTES};
use crate::mm::fallible;

/// The fid of the root directory of a mount.
pub const ROOT: u32 = 0;
/// The tag of all requests, since there is only one at a time.
const TAG: u16 = 0;
/// The group of new files: the host's own choice.
const GROUP: u32 = NONE;
/// The bytes of data in one answer: whole pages, and room for what comes before.
pub const DATA_BYTES: u32 = ANSWER_BYTES as u32 - 4096;
/// The bytes of data in one request, likewise.
pub const WRITE_BYTES: usize = REQUEST_BYTES - 4096;

static DEVICES: [SetOnce<SpinLock<Channel>>; CHANNELS] = [const { SetOnce::new() }; CHANNELS];
/// The next fid. Relaxed: only uniqueness matters. Four billion look-ups of new files use them up.
static NEXT_FID: AtomicU32 = AtomicU32::new(ROOT + 1);

/// A directory of the host with all below it, that one device shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount(u8);

/// A change of a file's attributes.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// Its permissions.
    Mode(u32),
    /// Its length.
    Size(u64),
    /// The time of its last change, in nanoseconds since 1970.
    Changed(u64),
}

/// Returns the error that the guest's program gets for one of the host's. Those that this kernel acts upon
/// would not mean the guest.
fn told(error: Errno, kind: Kind) -> Errno {
    match error {
        Errno::ENOSPC if kind.is_change() => error,
        Errno::ENOMEM | Errno::EBUSY | Errno::EAGAIN | Errno::EINTR | Errno::ENOSPC | Errno::ESTALE => {
            Errno::EIO
        }
        error => error,
    }
}

/// Returns what adds a fid, the only field of a request.
fn of(fid: u32) -> impl FnOnce(&mut Request<'_>) {
    move |request| {
        request.u32(fid);
    }
}

impl Mount {
    /// The host's root directory, which is only read.
    pub const ROOT: Self = Self(0);

    /// Returns the mount with this number.
    ///
    /// # Errors
    /// ENODEV if there are fewer devices.
    pub fn numbered(number: usize) -> Result<Self, Errno> {
        u8::try_from(number).ok().filter(|_| number < CHANNELS).map(Self).ok_or(Errno::ENODEV)
    }

    /// Returns its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Opens the channel and names the root. Called once for each mount, in their order, at boot.
    ///
    /// # Errors
    /// ENODEV, EIO.
    pub fn connect(self) -> Result<(), Errno> {
        self.device()?.set(SpinLock::new(Channel::open().ok_or(Errno::ENODEV)?));
        let version = |request: &mut Request<'_>| {
            request.u32(ANSWER_BYTES as u32).string(VERSION);
        };
        let agreed = self.call(Kind::Version, version, |mut fields| {
            Ok((fields.u32()? as usize, fields.string()? == VERSION))
        });
        if agreed? != (ANSWER_BYTES, true) {
            return Err(Errno::EIO);
        }
        let attach = |request: &mut Request<'_>| {
            request.u32(ROOT).u32(NONE).string(b"").string(b"").u32(0);
        };
        self.call(Kind::Attach, attach, |_| Ok(()))
    }

    fn device(self) -> Result<&'static SetOnce<SpinLock<Channel>>, Errno> {
        DEVICES.get(usize::from(self.0)).ok_or(Errno::EIO)
    }

    /// Sends a request with the fields that `fill` adds, and returns what `take` makes of the fields of the
    /// answer.
    fn call<R>(
        self,
        kind: Kind,
        fill: impl FnOnce(&mut Request<'_>),
        take: impl FnOnce(Fields<'_>) -> Result<R, Damaged>,
    ) -> Result<R, Errno> {
        let mut channel = self.device()?.get().ok_or(Errno::EIO)?.lock();
        let tag = if kind == Kind::Version { NO_TAG } else { TAG };
        let answer = channel.call(|buffer| {
            let mut request = Request::new(buffer, kind, tag);
            fill(&mut request);
            request.finish()
        });
        let fields = Fields::of(answer.ok_or(Errno::EIO)?, kind, tag).map_err(|Damaged| Errno::EIO)?;
        let fields = fields.map_err(|error| told(error, kind))?;
        take(fields).map_err(|Damaged| Errno::EIO)
    }

    /// Does the same for a request whose answer says nothing but that it was done.
    fn ask(self, kind: Kind, fill: impl FnOnce(&mut Request<'_>)) -> Result<(), Errno> {
        self.call(kind, fill, |_| Ok(()))
    }

    /// Returns a new fid for the file called `name` in the directory `from`, or for that file itself.
    ///
    /// # Errors
    /// ENOENT, EIO, and the host's.
    pub fn walk(self, from: u32, name: Option<&[u8]>) -> Result<u32, Errno> {
        let (new, names) = (NEXT_FID.fetch_add(1, Ordering::Relaxed), u16::from(name.is_some()));
        let fill = |request: &mut Request<'_>| {
            request.u32(from).u32(new).u16(names);
            name.into_iter().for_each(|name| {
                request.string(name);
            });
        };
        let walked = self.call(Kind::Walk, fill, |mut fields| fields.u16())?;
        if walked == names { Ok(new) } else { Err(Errno::ENOENT) }
    }

    /// Returns a file's attributes.
    pub fn attributes(self, fid: u32) -> Result<Attributes, Errno> {
        let fill = |request: &mut Request<'_>| {
            request.u32(fid).u64(BASIC);
        };
        self.call(Kind::Getattr, fill, |mut fields| Attributes::take(&mut fields))
    }

    /// Returns where a symbolic link leads.
    pub fn link_target(self, fid: u32) -> Result<Vec<u8>, Errno> {
        self.call(Kind::Readlink, of(fid), |mut fields| Ok(fallible::copied(fields.string()?)))?
    }

    /// Opens a file for reading.
    pub fn open(self, fid: u32) -> Result<(), Errno> {
        self.open_with(fid, O_RDONLY)
    }

    fn open_with(self, fid: u32, flags: u32) -> Result<(), Errno> {
        self.ask(Kind::Lopen, |request| {
            request.u32(fid).u32(flags);
        })
    }

    /// Returns a new fid for a file, open for writing.
    ///
    /// # Errors
    /// EACCES, EROFS, EIO, and the host's others.
    pub fn open_to_write(self, fid: u32) -> Result<u32, Errno> {
        let new = self.walk(fid, None)?;
        self.open_with(new, O_RDWR).inspect_err(|_| self.forget(new))?;
        Ok(new)
    }

    /// Returns entries of an open directory from `position` on, none at the end.
    pub fn entries(self, fid: u32, position: u64) -> Result<Vec<u8>, Errno> {
        let fill = |request: &mut Request<'_>| {
            request.u32(fid).u64(position).u32(DATA_BYTES);
        };
        self.call(Kind::Readdir, fill, |mut fields| Ok(fallible::copied(fields.data()?)))?
    }

    /// Passes at most `len` bytes, of which there are at most [`DATA_BYTES`], of an open file from `at` on to
    /// `take`. It gets fewer at the end of the file. The channel is locked meanwhile.
    pub fn read<R>(
        self,
        fid: u32,
        at: u64,
        len: u32,
        take: impl FnOnce(&[u8]) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let fill = |request: &mut Request<'_>| {
            request.u32(fid).u64(at).u32(len.min(DATA_BYTES));
        };
        self.call(Kind::Read, fill, |mut fields| Ok(take(fields.data()?)))?
    }

    /// Writes all of `bytes`, at most [`WRITE_BYTES`], to an open file.
    ///
    /// # Errors
    /// ENOSPC, EFBIG, EIO also if the host has written less, and the host's others.
    pub fn write(self, fid: u32, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        let fill = |request: &mut Request<'_>| {
            request.u32(fid).u64(at).data(bytes);
        };
        let written = self.call(Kind::Write, fill, |mut fields| fields.u32())?;
        if written as usize == bytes.len() { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Brings an open file to the host's disk.
    pub fn fsync(self, fid: u32) -> Result<(), Errno> {
        self.ask(Kind::Fsync, |request| {
            request.u32(fid).u32(0);
        })
    }

    /// Creates a file.
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOSPC, EIO, and the host's others.
    pub fn create(self, directory: u32, name: &[u8], mode: u32) -> Result<(), Errno> {
        let new = self.walk(directory, None)?;
        let created = self.ask(Kind::Lcreate, |request| {
            request.u32(new).string(name).u32(O_RDWR | O_EXCL).u32(mode).u32(GROUP);
        });
        // It is the open file now. The host would keep it open.
        self.forget(new);
        created
    }

    /// Creates a directory.
    pub fn make_directory(self, directory: u32, name: &[u8], mode: u32) -> Result<(), Errno> {
        self.ask(Kind::Mkdir, |request| {
            request.u32(directory).string(name).u32(mode).u32(GROUP);
        })
    }

    /// Creates a symbolic link.
    pub fn make_link(self, directory: u32, name: &[u8], target: &[u8]) -> Result<(), Errno> {
        self.ask(Kind::Symlink, |request| {
            request.u32(directory).string(name).string(target).u32(GROUP);
        })
    }

    /// Gives a file another name.
    pub fn hard_link(self, fid: u32, directory: u32, name: &[u8]) -> Result<(), Errno> {
        self.ask(Kind::Link, |request| {
            request.u32(directory).u32(fid).string(name);
        })
    }

    /// Moves a name, and replaces the file that has the other one.
    pub fn rename(self, (from, name): (u32, &[u8]), (to, new): (u32, &[u8])) -> Result<(), Errno> {
        self.ask(Kind::Renameat, |request| {
            request.u32(from).string(name).u32(to).string(new);
        })
    }

    /// Removes a name, that of a directory if `is_directory`.
    pub fn unlink(self, directory: u32, name: &[u8], is_directory: bool) -> Result<(), Errno> {
        self.ask(Kind::Unlinkat, |request| {
            request.u32(directory).string(name).u32(if is_directory { AT_REMOVEDIR } else { 0 });
        })
    }

    /// Changes an attribute of a file.
    pub fn set(self, fid: u32, change: Change) -> Result<(), Errno> {
        const SECOND: u64 = 1_000_000_000;
        let (valid, mode, size, ns) = match change {
            Change::Mode(mode) => (SET_MODE, mode, 0, 0),
            Change::Size(size) => (SET_SIZE, 0, size, 0),
            Change::Changed(ns) => (SET_CHANGED, 0, 0, ns),
        };
        self.ask(Kind::Setattr, |request| {
            request.u32(fid).u32(valid).u32(mode).u32(NONE).u32(NONE).u64(size);
            request.u64(0).u64(0).u64(ns / SECOND).u64(ns % SECOND);
        })
    }

    /// Forgets a fid. The host has no use for an error.
    pub fn forget(self, fid: u32) {
        let _unused = self.ask(Kind::Clunk, of(fid));
    }
}

const _: () = assert!(DATA_BYTES as usize + DATA_HEAD <= ANSWER_BYTES);
