//! A reader of cpio archives in the "newc" format, in place: names and contents are borrowed from the
//! archive.
//!
//! An archive comes from outside and is not trusted: a truncated header, an invalid number or a length that
//! leads beyond the end is a [`BadArchive`] that says where and what.
//!
//! ```text
//! "070701"  13 fields of 8 hexadecimal digits  name NUL  padding to 4  contents  padding to 4  "070701" ...
//! ```
//! The entry called `TRAILER!!!` is the end. Anything behind it is ignored.

use core::fmt;

const MAGIC: [&[u8]; 2] = [b"070701", b"070702"];
const TRAILER: &[u8] = b"TRAILER!!!";
const FIELDS: usize = 13;
const HEAD: usize = 6 + FIELDS * 8;

/// One file, directory or link of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The path as it was stored, without the NUL.
    pub name: &'a [u8],
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Inode number in the archive, which hard links share.
    pub ino: u32,
    /// Hard links.
    pub links: u32,
    /// Last change, in seconds.
    pub mtime: u32,
    /// Contents, or the target of a symbolic link.
    pub data: &'a [u8],
}

/// The error in an archive, and its byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadArchive {
    /// Offset of the entry that is bad.
    pub at: usize,
    /// Description of the error.
    pub what: &'static str,
}

impl fmt::Display for BadArchive {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the entry at byte {}: {}", self.at, self.what)
    }
}

impl core::error::Error for BadArchive {}

/// Returns the entries of `archive` up to its trailer. After an error there are no more.
pub fn entries(archive: &[u8]) -> Entries<'_> {
    Entries { archive, at: 0, ended: false }
}

/// See [`entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    archive: &'a [u8],
    at: usize,
    ended: bool,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, BadArchive>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let found = self.parse();
        self.ended = !matches!(found, Ok(Some(_)));
        found.map_err(|what| BadArchive { at: self.at, what }).transpose()
    }
}

impl<'a> Entries<'a> {
    fn parse(&mut self) -> Result<Option<Entry<'a>>, &'static str> {
        let head = self.slice(self.at, HEAD).ok_or("the header is cut off")?;
        if !MAGIC.contains(&&head[..6]) {
            return Err("it does not begin like a cpio entry");
        }
        let fields = fields(&head[6..]).ok_or("a field of the header is not a hexadecimal number")?;
        let [ino, mode, _, _, links, mtime, size, _, _, _, _, name_size, _] = fields;
        let name_at = self.at + HEAD;
        let name = self.slice(name_at, name_size as usize).ok_or("the name is cut off")?;
        let (0, name) = name.split_last().map(|(end, name)| (*end, name)).ok_or("the name is empty")? else {
            return Err("the name does not end with NUL");
        };
        if name == TRAILER {
            return Ok(None);
        }
        let data_at = aligned(name_at + name_size as usize);
        let data = self.slice(data_at, size as usize).ok_or("the contents are cut off")?;
        self.at = aligned(data_at + data.len());
        Ok(Some(Entry { name, mode, ino, links, mtime, data }))
    }

    fn slice(&self, at: usize, len: usize) -> Option<&'a [u8]> {
        self.archive.get(at..at.checked_add(len)?)
    }
}

/// Offsets are at most a length plus 2^32, far from overflow.
fn aligned(at: usize) -> usize {
    at.next_multiple_of(4)
}

fn fields(digits: &[u8]) -> Option<[u32; FIELDS]> {
    let mut fields = [0; FIELDS];
    for (field, digits) in fields.iter_mut().zip(digits.chunks_exact(8)) {
        *field = digits.iter().try_fold(0, |sum, &digit| Some(sum << 4 | (digit as char).to_digit(16)?))?;
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::format;
    use std::vec::Vec;

    fn add(archive: &mut Vec<u8>, name: &str, mode: u32, data: &[u8]) {
        let head = [7, mode, 0, 0, 1, 1234, data.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        archive.extend(b"070701");
        head.iter().for_each(|field| archive.extend(format!("{field:08x}").bytes()));
        archive.extend(name.bytes().chain([0]));
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend(data);
        archive.resize(archive.len().next_multiple_of(4), 0);
    }

    fn sample() -> Vec<u8> {
        let mut archive = Vec::new();
        add(&mut archive, "etc", 0o040755, b"");
        add(&mut archive, "etc/motd", 0o100644, b"hello");
        add(&mut archive, "TRAILER!!!", 0, b"");
        archive.extend([0; 512]);
        archive
    }

    #[test]
    fn entries_borrow_names_and_contents() {
        let archive = sample();
        let found: Vec<_> = entries(&archive).map(Result::unwrap).collect();
        assert_eq!(found.len(), 2);
        let motd = Entry { name: b"etc/motd", mode: 0o100644, ino: 7, links: 1, mtime: 1234, data: b"hello" };
        assert_eq!(found[1], motd);
        assert!(archive.as_ptr_range().contains(&found[1].data.as_ptr()));
    }

    #[test]
    fn every_cut_is_an_error_and_the_last_thing_said() {
        let archive = sample();
        let trailer = archive.windows(11).position(|bytes| bytes == b"TRAILER!!!\0").unwrap();
        for end in 0..trailer + 11 {
            let found: Vec<_> = entries(&archive[..end]).collect();
            let complete = found.iter().filter(|entry| entry.is_ok()).count();
            assert_eq!(found.len(), complete + 1, "cut at {end}");
            assert!(found.last().unwrap().is_err(), "cut at {end}");
        }
    }

    #[test]
    fn no_single_wrong_byte_panics_or_escapes_the_archive() {
        let archive = sample();
        for at in 0..archive.len() {
            for wrong in [0, b'f', b'0', b'-', 0xff] {
                let mut archive = archive.clone();
                archive[at] = wrong;
                let inside = archive.as_ptr_range();
                for entry in entries(&archive).map_while(Result::ok) {
                    assert!(inside.contains(&entry.name.as_ptr()));
                    assert!(entry.data.len() <= archive.len());
                }
            }
        }
    }

    #[test]
    fn signs_are_not_digits() {
        let mut archive = sample();
        archive[6] = b'+';
        assert_eq!(
            entries(&archive).next(),
            Some(Err(BadArchive { at: 0, what: "a field of the header is not a hexadecimal number" }))
        );
    }
}
