//! One file, directory or link, whatever its names are.

mod names;

pub use names::Listed;

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::Errno;
use abi::file::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, Stat};
use abi::time::Timespec;
use percore::{AllCores, MAX_CORES};
use sync::{CachePadded, FreezeLock, SpinLock};

use super::content::Content;
use super::directory::Entries;
use super::fallible;
use super::open_file::OpenFile;
use super::page_cache::PAGE;
use super::proc::{self, Folder};
use super::static_or_arc::{StaticOrArc, StaticOrWeak};
use crate::arch;

/// Where a node lives; its number is `st_dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volume {
    /// The files handed over, read-only.
    Image = 1,
    /// Memory, writable.
    Memory = 2,
    /// Devices, pipes, `/proc`.
    System = 3,
}

/// What a node is.
pub enum Body {
    /// A directory.
    Directory {
        /// What is in it.
        names: FreezeLock<Entries>,
        /// The directory that it is in.
        parent: FreezeLock<StaticOrWeak<Node>>,
        /// The same once it was removed: `..` still leads there.
        kept: SpinLock<Option<StaticOrArc<Node>>>,
    },
    /// A directory whose names are made when somebody looks.
    Folder(Box<dyn Folder>),
    /// A symbolic link.
    Link(Box<[u8]>),
    /// A name in `/proc/PID/fd`: a link that leads to an open file.
    Descriptor(StaticOrArc<OpenFile>),
    /// Anything with contents.
    File(Box<dyn Content>),
    /// A file whose contents are made anew by every open.
    Generated(Box<proc::Maker>),
}

/// See the module.
pub struct Node {
    ino: u64,
    volume: Volume,
    permissions: AtomicU32,
    changed_ns: AtomicU64,
    links: AtomicU32,
    body: Body,
}

/// How many nodes each core has made, so that cores which make some meet nowhere. Relaxed everywhere in this file: numbers,
/// times and permissions order nothing.
static MADE: AllCores<AtomicU64> = AllCores::new([const { CachePadded::new(AtomicU64::new(0)) }; MAX_CORES]);

/// An inode number that nobody else has.
fn new_ino() -> u64 {
    let core = percore::pin().core();
    MADE.of(core).fetch_add(1, Ordering::Relaxed) * MAX_CORES as u64 + core.index() as u64 + 1
}

impl Node {
    /// A node that has no name yet.
    pub fn new(volume: Volume, permissions: u32, body: Body) -> Result<StaticOrArc<Self>, Errno> {
        fallible::arc(Self {
            ino: new_ino(),
            volume,
            permissions: AtomicU32::new(permissions & 0o7777),
            changed_ns: AtomicU64::new(arch::wall_ns()),
            links: AtomicU32::new(if matches!(body, Body::Directory { .. }) { 2 } else { 1 }),
            body,
        })
        .map(StaticOrArc::from)
    }

    /// A directory without names.
    pub fn directory(volume: Volume, permissions: u32) -> Result<StaticOrArc<Self>, Errno> {
        let body = Body::Directory {
            names: FreezeLock::new(Entries::new()),
            parent: FreezeLock::new(StaticOrWeak::new()),
            kept: SpinLock::new(None),
        };
        Self::new(volume, permissions, body)
    }

    /// A symbolic link.
    pub fn link(volume: Volume, target: &[u8]) -> Result<StaticOrArc<Self>, Errno> {
        Self::new(volume, 0o777, Body::Link(fallible::copied(target)?.into_boxed_slice()))
    }

    /// A file with these contents.
    pub fn file(
        volume: Volume,
        permissions: u32,
        content: impl Content + 'static,
    ) -> Result<StaticOrArc<Self>, Errno> {
        let content: Box<dyn Content> = fallible::boxed(content)?;
        Self::new(volume, permissions, Body::File(content))
    }

    /// What it is.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Where it lives.
    pub fn volume(&self) -> Volume {
        self.volume
    }

    /// `S_IF*`.
    pub fn kind(&self) -> u32 {
        match &self.body {
            Body::Directory { .. } | Body::Folder(_) => S_IFDIR,
            Body::Link(_) | Body::Descriptor(_) => S_IFLNK,
            Body::File(content) => content.kind(),
            Body::Generated(_) => S_IFREG,
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind() == S_IFDIR
    }

    /// Whether its contents, or its names, may change.
    pub fn is_writable(&self) -> bool {
        self.volume == Volume::Memory || !matches!(self.kind() & S_IFMT, S_IFDIR | S_IFREG | S_IFLNK)
    }

    /// Permission bits.
    pub fn permissions(&self) -> u32 {
        self.permissions.load(Ordering::Relaxed)
    }

    /// Sets the permission bits.
    pub fn set_permissions(&self, permissions: u32) {
        self.permissions.store(permissions & 0o7777, Ordering::Relaxed);
    }

    /// EROFS unless it may change.
    pub fn must_be_writable(&self) -> Result<(), Errno> {
        if self.is_writable() { Ok(()) } else { Err(Errno::EROFS) }
    }

    /// Says that it changed at `ns`.
    pub fn set_changed(&self, ns: u64) {
        self.changed_ns.store(ns, Ordering::Relaxed);
    }

    /// Says that it changed just now.
    pub fn touch(&self) {
        self.set_changed(arch::wall_ns());
    }

    /// Hard links; 0 once its last name is gone.
    pub fn links(&self) -> u32 {
        self.links.load(Ordering::Relaxed)
    }

    /// Counts a name more.
    pub fn add_link(&self) {
        self.links.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a name less.
    pub fn remove_link(&self) {
        self.links.fetch_sub(1, Ordering::Relaxed);
    }

    /// Says that it has no names any more.
    pub fn forget_links(&self) {
        self.links.store(0, Ordering::Relaxed);
    }

    /// What `stat` says.
    pub fn stat(&self) -> Stat {
        let size = self.size();
        let changed = Timespec::from_ns(self.changed_ns.load(Ordering::Relaxed));
        let (major, minor) = self.content().map_or((0, 0), Content::device);
        Stat {
            dev: self.volume as u64,
            ino: self.ino,
            nlink: self.links().into(),
            mode: self.kind() | self.permissions(),
            rdev: u64::from(major << 8 | minor),
            size: size as i64,
            blksize: PAGE as i64,
            blocks: size.div_ceil(512) as i64,
            atime: changed,
            mtime: changed,
            ctime: changed,
            ..Stat::default()
        }
    }

    /// Its contents, if it has any.
    pub fn content(&self) -> Option<&dyn Content> {
        match &self.body {
            Body::File(content) => Some(&**content),
            _ => None,
        }
    }

    fn size(&self) -> u64 {
        match &self.body {
            Body::File(content) => content.len(),
            Body::Link(target) => target.len() as u64,
            Body::Directory { .. } | Body::Folder(_) | Body::Descriptor(_) | Body::Generated(_) => 0,
        }
    }
}
