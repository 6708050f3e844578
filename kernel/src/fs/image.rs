//! The boot image: its files are read in place from the archive that the boot loader left in memory.

use alloc::sync::Arc;
use core::fmt;

use abi::Errno;
use abi::cpio::{self, BadArchive, Entry};
use abi::file::{NAME_MAX, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use percore::pin;

use super::clean;
use super::content::{Content, WriteAt};
use super::memory_file::MemoryFile;
use super::node::{Node, NodeRef, Volume};
use super::page_cache::PageCache;
use super::{path, tree};
use crate::bytes::{copy_prefix, tail};
use crate::mm::fallible;

/// Prefix of the names that are for the kernel and not part of the tree.
const PRIVATE: &[u8] = b".radixvm/";

/// The reason why an image cannot be used.
#[derive(Debug)]
pub enum BadImage {
    /// It is not a well-formed archive.
    Archive(BadArchive),
    /// An entry cannot be part of a tree.
    Entry(&'static [u8], Errno),
    /// There is no memory for the tree's own parts.
    Memory(Errno),
}

impl fmt::Display for BadImage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Archive(bad) => write!(out, "the boot image is damaged: {bad}"),
            Self::Entry(name, error) => {
                write!(out, "the boot image's entry {} cannot be used: {error}", name.escape_ascii())
            }
            Self::Memory(error) => write!(out, "the boot image does not fit into memory: {error}"),
        }
    }
}

impl From<Errno> for BadImage {
    fn from(error: Errno) -> Self {
        Self::Memory(error)
    }
}

/// A file of the image. Reads copy its bytes from the archive, and mappings show copies of them.
struct ImageFile {
    bytes: &'static [u8],
    pages: Arc<PageCache>,
}

impl ImageFile {
    fn new(bytes: &'static [u8]) -> Result<Self, Errno> {
        let pages = fallible::arc(PageCache::of_image(bytes))?;
        clean::add(&pages)?;
        Ok(Self { bytes, pages })
    }
}

impl Content for ImageFile {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        Ok(copy_prefix(into, tail(self.bytes, at)))
    }

    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EROFS)
    }

    fn bytes(&self) -> Option<&'static [u8]> {
        Some(self.bytes)
    }

    fn pages(&self) -> Option<&Arc<PageCache>> {
        Some(&self.pages)
    }
}

/// Returns the contents of the entry at `path`.
pub fn private(archive: &'static [u8], path: &[u8]) -> Option<&'static [u8]> {
    let mut entries = cpio::entries(archive).map_while(Result::ok);
    entries.find(|entry| trimmed(entry.name) == path).map(|entry| entry.data)
}

/// Puts every file of the archive below `root`. Directories that the archive does not name are made. A
/// directory that exists already stays. Devices are skipped, because the kernel has its own.
pub fn unpack(archive: &'static [u8], root: &NodeRef) -> Result<(), BadImage> {
    for entry in cpio::entries(archive) {
        let entry = entry.map_err(BadImage::Archive)?;
        let name = trimmed(entry.name);
        let wanted = matches!(entry.mode & S_IFMT, S_IFDIR | S_IFREG | S_IFLNK);
        if wanted && !name.is_empty() && !name.starts_with(PRIVATE) && name != b".radixvm" {
            add(archive, root, &entry, name).map_err(|error| BadImage::Entry(entry.name, error))?;
        }
    }
    Ok(())
}

/// Removes the `/` and `./` that archivers put in front of a name.
fn trimmed(mut name: &[u8]) -> &[u8] {
    while let Some(rest) = name.strip_prefix(b"/").or(name.strip_prefix(b"./")) {
        name = rest;
    }
    if name == b"." { b"" } else { name }
}

fn add(archive: &'static [u8], root: &NodeRef, entry: &Entry<'static>, name: &[u8]) -> Result<(), Errno> {
    let mut directory = root.clone();
    let mut parts = name.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        if part.contains(&0) || matches!(part, b"." | b"..") || part.len() > NAME_MAX {
            return Err(Errno::EINVAL);
        }
        if parts.peek().is_none() && entry.mode & S_IFMT != S_IFDIR {
            return add_leaf(archive, &directory, part, entry);
        }
        directory = enter(root, &directory, part)?;
    }
    directory.set_permissions(entry.mode);
    directory.set_changed(u64::from(entry.mtime) * 1_000_000_000);
    Ok(())
}

/// Returns the directory called `name` in `directory`, which is made if there is none. Links of the host are
/// followed.
fn enter(root: &NodeRef, directory: &NodeRef, name: &[u8]) -> Result<NodeRef, Errno> {
    match path::find(&pin(), root, directory, name, true)?.node {
        Some(found) if found.is_directory() => Ok(found.into_owned()),
        Some(_) => Err(Errno::ENOTDIR),
        None => {
            let made = into_static_if_fixed(Node::directory(directory.volume(), 0o755)?)?;
            tree::attach(directory, name, &made)?;
            Ok(made)
        }
    }
}

fn add_leaf(
    archive: &'static [u8],
    directory: &NodeRef,
    name: &[u8],
    entry: &Entry<'static>,
) -> Result<(), Errno> {
    let data = contents(archive, entry);
    let node = match directory.volume() {
        volume if entry.mode & S_IFMT == S_IFLNK => Node::link(volume, data)?,
        Volume::Memory => Node::file(Volume::Memory, entry.mode, MemoryFile::with(data)?)?,
        volume => Node::file(volume, entry.mode, ImageFile::new(data)?)?,
    };
    node.set_changed(u64::from(entry.mtime) * 1_000_000_000);
    tree::put(directory, name, &into_static_if_fixed(node)?)
}

/// Makes the node static unless it is in a writable volume, from which it may be removed.
fn into_static_if_fixed(node: NodeRef) -> Result<NodeRef, Errno> {
    match node.volume() {
        Volume::Memory => Ok(node),
        _ => node.into_static(),
    }
}

/// Returns the contents of an entry. Of several hard links only the last carries them.
fn contents(archive: &'static [u8], entry: &Entry<'static>) -> &'static [u8] {
    if !entry.data.is_empty() || entry.links < 2 {
        return entry.data;
    }
    let mut links = cpio::entries(archive).map_while(Result::ok).filter(|other| other.ino == entry.ino);
    links.find_map(|other| (!other.data.is_empty()).then_some(other.data)).unwrap_or_default()
}
