//! Messages of the protocol 9P2000.L, by which a guest reads and changes the files of its host.
//!
//! A message is `size[4] type[1] tag[2]` and the fields of its type, all little-endian. `size` counts the
//! whole message. A string is `length[2]` and its bytes. A file is named by a fid, a number that the client
//! chooses (Linux: `include/net/9p/9p.h`; QEMU: `hw/9pfs`).

use crate::Errno;
use crate::file::{S_IFDIR, S_IFLNK, S_IFREG};

/// The version that both sides speak.
pub const VERSION: &[u8] = b"9P2000.L";
/// The tag of a message before the version is agreed.
pub const NO_TAG: u16 = 0xffff;
/// The fid that stands for none, and the user who is not named by number.
pub const NONE: u32 = 0xffff_ffff;
/// Bytes before the fields of a message.
pub const HEAD: usize = 7;
/// Bytes of an answer to [`Kind::Read`] and [`Kind::Readdir`] before the data.
pub const DATA_HEAD: usize = HEAD + 4;
/// The attributes that `getattr` asks for: type and mode, links, owners, times and size.
pub const BASIC: u64 = 0x7ff;

/// The type of a request. The answer has the next number, or [`ERROR`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Opens a fid: `fid[4] flags[4]`.
    Lopen = 12,
    /// Creates a file in the directory of a fid, which then is the open file: `fid[4] name[s] flags[4]
    /// mode[4] group[4]`.
    Lcreate = 14,
    /// Creates a symbolic link: `directory[4] name[s] target[s] group[4]`.
    Symlink = 16,
    /// Reads a symbolic link: `fid[4]`.
    Readlink = 22,
    /// Reads attributes: `fid[4] mask[8]`.
    Getattr = 24,
    /// Changes attributes: `fid[4] valid[4] mode[4] owner[4] group[4] size[8]`, and the times of access and
    /// of change, `seconds[8] ns[8]` each.
    Setattr = 26,
    /// Reads the names of an open directory: `fid[4] position[8] count[4]`.
    Readdir = 40,
    /// Brings an open file to its disk: `fid[4] only_data[4]`.
    Fsync = 50,
    /// Gives a file another name: `directory[4] fid[4] name[s]`.
    Link = 70,
    /// Creates a directory: `directory[4] name[s] mode[4] group[4]`.
    Mkdir = 72,
    /// Moves a name: `from[4] name[s] to[4] name[s]`.
    Renameat = 74,
    /// Removes a name: `directory[4] name[s] flags[4]`.
    Unlinkat = 76,
    /// Agrees on a version: `msize[4] version[s]`.
    Version = 100,
    /// Names the root: `fid[4] afid[4] user[s] tree[s] number[4]`.
    Attach = 104,
    /// Walks names to a new fid: `fid[4] new[4] count[2] names[s]…`.
    Walk = 110,
    /// Reads bytes of an open file: `fid[4] position[8] count[4]`.
    Read = 116,
    /// Writes bytes to an open file: `fid[4] position[8] count[4] data`.
    Write = 118,
    /// Forgets a fid: `fid[4]`.
    Clunk = 120,
}

/// [`Kind::Setattr`]: the permissions are valid.
pub const SET_MODE: u32 = 1;
/// [`Kind::Setattr`]: the size is valid.
pub const SET_SIZE: u32 = 8;
/// [`Kind::Setattr`]: the time of change is valid, and is the given one.
pub const SET_CHANGED: u32 = 0x20 | 0x100;

impl Kind {
    /// Returns whether it changes files of the host.
    pub fn is_change(self) -> bool {
        use Kind::{Fsync, Lcreate, Link, Mkdir, Renameat, Setattr, Symlink, Unlinkat, Write};
        matches!(self, Fsync | Lcreate | Link | Mkdir | Renameat | Setattr | Symlink | Unlinkat | Write)
    }
}

/// The type of an answer that tells an error.
pub const ERROR: u8 = 7;

/// A message under construction in a buffer of the caller's.
#[derive(Debug)]
pub struct Request<'a> {
    buffer: &'a mut [u8],
    len: usize,
    fits: bool,
}

impl<'a> Request<'a> {
    /// Begins a message.
    pub fn new(buffer: &'a mut [u8], kind: Kind, tag: u16) -> Self {
        let mut request = Self { buffer, len: 4, fits: true };
        request.put(&[kind as u8]);
        request.put(&tag.to_le_bytes());
        request
    }

    fn put(&mut self, bytes: &[u8]) {
        match self.buffer.get_mut(self.len..self.len + bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.fits = false,
        }
    }

    /// Adds a field of two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_le_bytes());
        self
    }

    /// Adds a field of four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_le_bytes());
        self
    }

    /// Adds a field of eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_le_bytes());
        self
    }

    /// Adds a string.
    pub fn string(&mut self, value: &[u8]) -> &mut Self {
        match u16::try_from(value.len()) {
            Ok(len) => self.put(&len.to_le_bytes()),
            Err(_) => self.fits = false,
        }
        self.put(value);
        self
    }

    /// Adds data, after their length.
    pub fn data(&mut self, value: &[u8]) -> &mut Self {
        match u32::try_from(value.len()) {
            Ok(len) => self.put(&len.to_le_bytes()),
            Err(_) => self.fits = false,
        }
        self.put(value);
        self
    }

    /// Returns the number of bytes of the finished message, or `None` if the buffer is too small.
    pub fn finish(&mut self) -> Option<usize> {
        let size = u32::try_from(self.len).ok().filter(|_| self.fits)?;
        self.buffer.get_mut(..4)?.copy_from_slice(&size.to_le_bytes());
        Some(self.len)
    }
}

/// The fields of an answer, taken from the front.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a [u8]);

/// The answer is not a message as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl<'a> Fields<'a> {
    /// Returns the fields of the answer to a request of this kind and tag.
    ///
    /// # Errors
    /// [`Damaged`] as the outer error, the host's own error as the inner one.
    pub fn of(message: &'a [u8], kind: Kind, tag: u16) -> Result<Result<Self, Errno>, Damaged> {
        let mut fields = Self(message);
        let size = fields.u32()? as usize;
        let (answer, its_tag) = (fields.u8()?, fields.u16()?);
        if size > message.len() || size < HEAD || its_tag != tag {
            return Err(Damaged);
        }
        fields.0 = message.get(HEAD..size).ok_or(Damaged)?;
        match answer {
            ERROR => {
                let number = u64::from(fields.u32()?);
                Ok(Err(Errno::from_result(number.wrapping_neg()).unwrap_or(Errno::EIO)))
            }
            _ if answer == kind as u8 + 1 => Ok(Ok(fields)),
            _ => Err(Damaged),
        }
    }

    /// Takes this many bytes.
    ///
    /// # Errors
    /// [`Damaged`] if there are fewer.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Damaged> {
        let (now, later) = self.0.split_at_checked(len).ok_or(Damaged)?;
        self.0 = later;
        Ok(now)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        self.bytes(N)?.try_into().map_err(|_| Damaged)
    }

    /// Takes a field of one byte.
    pub fn u8(&mut self) -> Result<u8, Damaged> {
        self.array().map(u8::from_le_bytes)
    }

    /// Takes a field of two bytes.
    pub fn u16(&mut self) -> Result<u16, Damaged> {
        self.array().map(u16::from_le_bytes)
    }

    /// Takes a field of four bytes.
    pub fn u32(&mut self) -> Result<u32, Damaged> {
        self.array().map(u32::from_le_bytes)
    }

    /// Takes a field of eight bytes.
    pub fn u64(&mut self) -> Result<u64, Damaged> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes a string.
    pub fn string(&mut self) -> Result<&'a [u8], Damaged> {
        let len = self.u16()?;
        self.bytes(len.into())
    }

    /// Takes the data of an answer to [`Kind::Read`] or [`Kind::Readdir`].
    pub fn data(&mut self) -> Result<&'a [u8], Damaged> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }

    /// Takes the number of the file out of a qid, `type[1] version[4] path[8]`.
    pub fn qid_path(&mut self) -> Result<u64, Damaged> {
        self.bytes(5)?;
        self.u64()
    }

    /// Returns whether all fields were taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The number of the file.
    pub ino: u64,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of names.
    pub links: u32,
    /// Bytes.
    pub size: u64,
    /// The time of the last change of its contents, in nanoseconds since 1970.
    pub changed_ns: u64,
}

impl Attributes {
    /// Takes them out of an answer to [`Kind::Getattr`].
    ///
    /// # Errors
    /// [`Damaged`] if fields are missing.
    pub fn take(fields: &mut Fields<'_>) -> Result<Self, Damaged> {
        fields.u64()?; // the attributes that are valid
        let ino = fields.qid_path()?;
        let (mode, uid, gid) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let links = u32::try_from(fields.u64()?).unwrap_or(u32::MAX);
        fields.bytes(8)?; // the device that it stands for
        let size = fields.u64()?;
        fields.bytes(8 + 8 + 16)?; // the unit of blocks, blocks, the time of access
        let (seconds, ns) = (fields.u64()?, fields.u64()?);
        let changed_ns = seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        Ok(Self { ino, mode, uid, gid, links, size, changed_ns })
    }
}

/// Returns the `S_IF*` of a qid's type, which tells directories and links only.
fn kind_of_qid(kind: u8) -> u32 {
    match kind {
        0x80 => S_IFDIR,
        0x02 => S_IFLNK,
        _ => S_IFREG,
    }
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The number of the file.
    pub ino: u64,
    /// The position after it.
    pub position: u64,
    /// Its type, `S_IF*`.
    pub kind: u32,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Takes one out of the data of an answer to [`Kind::Readdir`].
    ///
    /// # Errors
    /// [`Damaged`] if the data end in its middle.
    pub fn take(data: &mut Fields<'a>) -> Result<Self, Damaged> {
        let (kind, _version, ino) = (data.u8()?, data.u32()?, data.u64()?);
        let position = data.u64()?;
        // DT_* are the uppermost bits of S_IF*. Not every file system tells them.
        let kind = match u32::from(data.u8()?) << 12 {
            0 => kind_of_qid(kind),
            kind => kind,
        };
        Ok(Self { ino, position, kind, name: data.string()? })
    }
}

impl<'a> From<&'a [u8]> for Fields<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn a_request_has_its_size_in_front_and_must_fit() {
        let mut buffer = [0; 64];
        let walk = |buffer: &mut [u8]| {
            Request::new(buffer, Kind::Walk, 3).u32(1).u32(2).u16(1).string(b"usr").finish()
        };
        assert_eq!(walk(&mut buffer), Some(22));
        assert_eq!(buffer[..22], *b"\x16\0\0\0\x6e\x03\0\x01\0\0\0\x02\0\0\0\x01\0\x03\0usr");
        assert_eq!(walk(&mut buffer[..21]), None);
        assert_eq!(Request::new(&mut buffer, Kind::Walk, 3).string(&[0; 0x1_0000]).finish(), None);
        assert_eq!(Request::new(&mut buffer, Kind::Write, 3).u32(1).u64(2).data(b"xy").finish(), Some(25));
        assert_eq!(buffer[7..25], *b"\x01\0\0\0\x02\0\0\0\0\0\0\0\x02\0\0\0xy");
    }

    /// Makes an answer with these fields.
    fn answer(kind: u8, tag: u16, fields: &[u8]) -> std::vec::Vec<u8> {
        let size = (HEAD + fields.len()) as u32;
        [&size.to_le_bytes()[..], &[kind], &tag.to_le_bytes(), fields].concat()
    }

    #[test]
    fn answers_are_checked() {
        let of = |bytes: &[u8]| Fields::of(bytes, Kind::Lopen, 5).map(|fields| fields.map(|_| ()));
        assert_eq!(of(&answer(13, 5, b"")), Ok(Ok(())));
        assert_eq!(of(&answer(ERROR, 5, &2_u32.to_le_bytes())), Ok(Err(Errno::ENOENT)));
        assert_eq!(of(&answer(ERROR, 5, &u32::MAX.to_le_bytes())), Ok(Err(Errno::EIO)), "no error of Linux");
        assert_eq!(of(&answer(13, 6, b"")), Err(Damaged), "another tag");
        assert_eq!(of(&answer(15, 5, b"")), Err(Damaged), "another kind");
        assert_eq!(of(b"\x08\0\0\0\x0d\x05\0"), Err(Damaged), "longer than it is");
        assert_eq!(of(b"\x03\0\0\0\x0d\x05\0"), Err(Damaged), "shorter than its head");
        assert_eq!(of(b"\x07\0"), Err(Damaged));
    }

    #[test]
    fn attributes_and_entries() {
        let mut fields = std::vec::Vec::new();
        fields.extend_from_slice(&BASIC.to_le_bytes());
        fields.extend_from_slice(&[0; 13]);
        [S_IFREG | 0o644, 1000, 100].iter().for_each(|field: &u32| fields.extend(field.to_le_bytes()));
        [1, 0, 4097, 4096, 16, 7, 8, 9, 10].iter().for_each(|field: &u64| fields.extend(field.to_le_bytes()));
        let expected = Attributes {
            ino: 0,
            mode: S_IFREG | 0o644,
            uid: 1000,
            gid: 100,
            links: 1,
            size: 4097,
            changed_ns: 9_000_000_010,
        };
        assert_eq!(Attributes::take(&mut Fields(&fields)), Ok(expected));
        assert_eq!(Attributes::take(&mut Fields(&fields[..fields.len() - 1])), Err(Damaged));

        let mut data = std::vec::Vec::from([0; 5]);
        [77_u64, 3].iter().for_each(|field| data.extend(field.to_le_bytes()));
        data.extend_from_slice(b"\x04\x03\0usr");
        let mut whole = Fields(&data);
        assert_eq!(Entry::take(&mut whole), Ok(Entry { ino: 77, position: 3, kind: S_IFDIR, name: b"usr" }));
        assert!(whole.is_empty());
        assert_eq!(Entry::take(&mut Fields(&data[..data.len() - 1])), Err(Damaged));
        let (at, kind) = (data.len() - 6, |data: &[u8]| Entry::take(&mut Fields(data)).unwrap().kind);
        data[at] = 0;
        assert_eq!(kind(&data), S_IFREG);
        data[0] = 2;
        assert_eq!(kind(&data), S_IFLNK);
    }
}
