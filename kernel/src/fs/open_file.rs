//! An open file, the result of `open`. All duplicates of a descriptor share it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use abi::Errno;
use abi::file::{
    O_ACCMODE, O_APPEND, O_ASYNC, O_CLOEXEC, O_CREAT, O_DIRECT, O_EXCL, O_NOATIME, O_NOCTTY, O_NONBLOCK,
    O_PATH, O_RDONLY, O_TRUNC, O_WRONLY, S_IFIFO, S_IFSOCK,
};
use sync::SpinLock;

use super::content::Content;
use super::folder;
use super::holders::Holders;
use super::locks::{self, Kind, Owner};
use super::node::{Body, NodeRef};
use super::page_cache::PageCache;
use super::path;
use super::socket::{self, Messages};
use super::watches;
use crate::bytes::{copy_prefix, tail};
use crate::mm::fallible::{self, Text};
use crate::mm::lending::Borrowed;
use crate::mm::static_or_arc::StaticOrArc;

/// Flags that matter during `open` only.
const OPENING: u32 = O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC;
/// The kinds of locks that an open file has.
const LOCKERS: [Kind; 2] = [Kind::OpenFile, Kind::Flock];
/// Flags that `F_SETFL` may change.
const CHANGEABLE: u32 = O_APPEND | O_NONBLOCK | O_ASYNC | O_DIRECT | O_NOATIME;

/// The directory where a file was found, and its name there.
type Place = (NodeRef, Vec<u8>);

/// A position, on a cache line of its own.
#[repr(align(64))]
pub struct Position(SpinLock<u64>);

impl Deref for Position {
    type Target = SpinLock<u64>;
    #[inline(always)]
    fn deref(&self) -> &SpinLock<u64> {
        &self.0
    }
}

/// An open file. Its fields lie on other cache lines than the count of its references. Mappings and forks
/// change that count, and reads of other processes, which share the open file, need the fields.
pub struct OpenFile {
    node: NodeRef,
    place: Option<Place>,
    /// `O_*`. Relaxed: the flags order nothing.
    flags: AtomicU32,
    /// The position of the next read or write. It is locked during a transfer, so that threads do not read
    /// the same bytes twice. Calls that name an offset use the open file meanwhile.
    pub position: Position,
    /// Whether its contents count what keeps them open. It is kept here because every call asks.
    has_holders: bool,
    /// Whether it is a socket for messages.
    has_messages: bool,
    /// Whether it is of a mounted directory, and its changes are written back.
    is_mounted: bool,
    /// Whether the [watches](super::watches) of its node count it.
    has_joined: bool,
    /// Set for good when it takes a lock. Relaxed: calls that close a descriptor and run at the same time as
    /// the lock may miss it, as if they had come before.
    has_locked: AtomicBool,
    /// Relaxed: a watch that is added while a descriptor is closed may be told or not.
    closing: AtomicU8,
}

/// The last descriptor that was closed was so while its node had a watch, or a drop followed at once.
const CLOSED_TOLD: u8 = 0;
/// The last descriptor that was closed was so while its node had no watch.
const CLOSED_UNWATCHED: u8 = 1;
/// It was mapped, so the closing of its descriptors is not its end.
const MAPPED: u8 = 2;

impl OpenFile {
    /// Opens `node`, which has no path, with `flags`.
    pub fn new(node: NodeRef, flags: u32) -> Result<StaticOrArc<Self>, Errno> {
        Self::with(node, None, flags)
    }

    /// Opens `node`, which was found at `place`, with `flags`.
    pub fn found(node: NodeRef, place: Place, flags: u32) -> Result<StaticOrArc<Self>, Errno> {
        Self::with(node, Some(place), flags)
    }

    /// Opens a file that is in no directory and is to be called `name`.
    pub fn called(node: NodeRef, name: Vec<u8>, flags: u32) -> Result<StaticOrArc<Self>, Errno> {
        Self::with(node, Some((super::root(), name)), flags)
    }

    fn with(node: NodeRef, place: Option<Place>, flags: u32) -> Result<StaticOrArc<Self>, Errno> {
        let node = match node.body() {
            Body::Generated(make) | Body::Device(make, _) if flags & O_PATH == 0 => {
                folder::opened(&node, &**make)?
            }
            _ => node,
        };
        let has_joined = flags & O_PATH == 0 && watches::join(&node);
        let flags = AtomicU32::new(flags & !OPENING);
        let has_holders = node.content().is_some_and(|content| content.holders().is_some());
        let is_mounted = node.content().is_some_and(|content| content.mount_file().is_some());
        let has_messages = node.content().is_some_and(|content| socket::messages(content).is_some());
        let (position, has_locked) = (Position(SpinLock::new(0)), AtomicBool::new(false));
        let file = Self {
            node,
            place,
            flags,
            position,
            has_holders,
            has_messages,
            is_mounted,
            has_joined,
            has_locked,
            closing: AtomicU8::new(CLOSED_TOLD),
        };
        fallible::arc(file).map(StaticOrArc::from)
    }

    /// Counts a descriptor or a call that keeps it open. Returns false if it was closed before.
    #[inline]
    fn join(&self) -> bool {
        !self.has_holders || self.node.content().and_then(Content::holders).is_none_or(Holders::join)
    }

    /// Returns whether a call of this kind may count itself. All may if the contents count none.
    #[inline]
    pub(super) fn counts_for(&self, access: Transfer) -> bool {
        !self.has_holders
            || match access {
                Transfer::Read => self.is_readable(),
                Transfer::Write => self.is_writable(),
            }
    }

    /// Counts a descriptor or a call less, and tells the other end if it was the last.
    #[inline]
    pub(super) fn leave(&self) {
        if self.has_holders {
            self.leave_end();
        }
    }

    /// Tells its contents that the running process closes a descriptor.
    #[inline]
    pub(super) fn tell_descriptor_closed(&self) {
        if self.has_holders
            && let Some(content) = self.node.content()
        {
            content.descriptor_closed();
        }
    }

    #[cold]
    fn leave_end(&self) {
        if let Some(content) = self.node.content()
            && content.holders().is_some_and(Holders::leave)
        {
            content.closed();
        }
    }

    /// Notes that a descriptor of it is closed, and whether its memory `stays` for threads that may be
    /// reading the slot.
    #[inline]
    pub(super) fn note_closed(&self, stays: bool) {
        let before = self.closing.load(Ordering::Relaxed);
        let is_watched = self.node.watched() != 0;
        let now = if is_watched { CLOSED_TOLD } else { CLOSED_UNWATCHED };
        if before != MAPPED && before != now && (stays || is_watched) {
            self.closing.store(now, Ordering::Relaxed);
        }
    }

    /// Notes that it is about to be mapped.
    pub fn note_mapped(&self) {
        if self.closing.load(Ordering::Relaxed) != MAPPED {
            self.closing.store(MAPPED, Ordering::Relaxed);
        }
    }

    /// Returns whether the last of its descriptors was closed while its node had no watch.
    pub fn is_closed_unwatched(&self) -> bool {
        self.closing.load(Ordering::Relaxed) == CLOSED_UNWATCHED
    }

    /// Returns the owner of locks that it is.
    fn owner(&self, kind: Kind) -> Owner {
        Owner { kind, address: core::ptr::from_ref(self).addr(), pid: 0 }
    }

    /// Returns the owner of locks that it is.
    pub fn locker(&self, kind: Kind) -> Owner {
        self.owner(kind)
    }

    /// Notes that it is about to take a lock.
    pub fn note_locked(&self) {
        self.has_locked.store(true, Ordering::Relaxed);
    }

    /// Returns whether it may have locks, so that others wait for its end.
    pub fn has_locked(&self) -> bool {
        let may_have = self.has_locked.load(Ordering::Relaxed);
        may_have && LOCKERS.iter().any(|kind| locks::has_any(&self.node, &self.owner(*kind)))
    }

    /// Returns it as a socket for messages, if it is one.
    #[inline]
    pub fn messages(&self) -> Option<&dyn Messages> {
        if self.has_messages { self.node.content().and_then(socket::messages) } else { None }
    }

    /// Returns whether its changes are written back to the host.
    pub fn is_mounted(&self) -> bool {
        self.is_mounted
    }

    /// Writes its changes back to the host, where a descriptor is closed.
    ///
    /// # Errors
    /// Those of [`MountFile::write_back`](super::host::MountFile::write_back).
    #[inline]
    pub fn write_back(&self) -> Result<(), Errno> {
        if self.is_mounted && self.is_writable() { self.node.write_back() } else { Ok(()) }
    }

    /// Returns whether its last descriptor is gone, as far as its contents count them.
    pub fn is_closed(&self) -> bool {
        self.has_holders && self.node.content().and_then(Content::holders).is_some_and(Holders::is_closed)
    }

    /// Returns how many descriptors and calls keep it open, if its contents count them.
    pub(super) fn count_holders(&self) -> usize {
        self.node.content().and_then(Content::holders).map_or(0, Holders::count)
    }

    /// Returns the directory where it was found, and its name there.
    pub fn found_at(&self) -> Option<(&NodeRef, &[u8])> {
        self.place.as_ref().map(|(directory, name)| (directory, &name[..]))
    }

    /// Returns the node that is open.
    pub fn node(&self) -> &NodeRef {
        &self.node
    }

    /// Returns its path, with ` (deleted)` if it has none any more. For a node that never had one, such as a
    /// pipe, returns its kind and number.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn path(&self) -> Result<Vec<u8>, Errno> {
        match self.place() {
            Ok(path) if self.node.links() > 0 => Ok(path),
            Ok(path) => fallible::extended(path, b" (deleted)"),
            Err(Errno::ENOMEM) => Err(Errno::ENOMEM),
            Err(_) => self.kind_and_number(),
        }
    }

    fn place(&self) -> Result<Vec<u8>, Errno> {
        match &self.place {
            _ if self.node.is_directory() => path::of(&self.node),
            Some((parent, name)) => path::joined(parent, name),
            None => Err(Errno::ENOENT),
        }
    }

    fn kind_and_number(&self) -> Result<Vec<u8>, Errno> {
        let mut text = Text::default();
        let written = match (self.node.kind(), self.node.content().and_then(Content::label)) {
            (_, Some(label)) => write!(text, "anon_inode:{label}"),
            (S_IFIFO, _) => write!(text, "pipe:[{}]", self.node.stat().ino),
            (S_IFSOCK, _) => write!(text, "socket:[{}]", self.node.stat().ino),
            _ => write!(text, "file:[{}]", self.node.stat().ino),
        };
        written.map_err(|_| Errno::ENOMEM)?;
        Ok(text.0)
    }

    /// Returns its `O_*` flags as `F_GETFL` reports them.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets the flags that `F_SETFL` may change.
    pub fn set_flags(&self, flags: u32) {
        let kept = self.flags() & !CHANGEABLE;
        self.flags.store(kept | flags & CHANGEABLE, Ordering::Relaxed);
    }

    /// Returns whether it is only a place in the tree of names (O_PATH).
    pub fn is_place(&self) -> bool {
        self.flags() & O_PATH != 0
    }

    /// Returns whether calls may wait.
    pub fn may_wait(&self) -> bool {
        self.flags() & O_NONBLOCK == 0
    }

    /// Returns whether writes go to the end.
    pub fn appends(&self) -> bool {
        self.flags() & O_APPEND != 0
    }

    /// Returns whether it was opened for reading.
    pub fn is_readable(&self) -> bool {
        !self.is_place() && self.flags() & O_ACCMODE != O_WRONLY
    }

    /// Returns whether it was opened for writing.
    pub fn is_writable(&self) -> bool {
        !self.is_place() && self.flags() & O_ACCMODE != O_RDONLY
    }

    /// Returns its contents for reading.
    ///
    /// # Errors
    /// EBADF unless it was opened for reading, EISDIR for a directory.
    pub fn readable(&self) -> Result<&dyn Content, Errno> {
        if self.is_readable() { self.content() } else { Err(Errno::EBADF) }
    }

    /// Returns its contents for writing.
    ///
    /// # Errors
    /// EBADF unless it was opened for writing, EISDIR for a directory.
    pub fn writable(&self) -> Result<&dyn Content, Errno> {
        if self.is_writable() { self.content() } else { Err(Errno::EBADF) }
    }

    /// Returns its contents, however it was opened.
    ///
    /// # Errors
    /// EISDIR for a directory.
    pub fn content(&self) -> Result<&dyn Content, Errno> {
        self.node.content().ok_or(Errno::EISDIR)
    }

    /// Returns its pages, if they can be mapped.
    pub fn pages(&self) -> Option<&Arc<PageCache>> {
        self.node.content()?.pages()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.node.watched() != 0 {
            watches::leave(self, self.has_joined);
        }
        if *self.has_locked.get_mut() {
            LOCKERS.iter().for_each(|kind| locks::remove_all(&self.node, &self.owner(*kind)));
        }
    }
}

/// An open file for a descriptor, which keeps it open.
pub struct Opened(Option<StaticOrArc<OpenFile>>);

impl Opened {
    /// Keeps `file` open, or returns `None` if it was closed before.
    pub fn new(file: StaticOrArc<OpenFile>) -> Option<Self> {
        file.join().then(|| Self(Some(file)))
    }

    /// Wraps a file that is kept open by the caller.
    pub(super) fn kept(file: StaticOrArc<OpenFile>) -> Self {
        Self(Some(file))
    }

    /// Returns the file, unless it was taken.
    pub fn get(&self) -> Option<&OpenFile> {
        self.0.as_deref()
    }

    /// Returns the file with its count, unless it was taken.
    pub(super) fn file(&self) -> Option<&StaticOrArc<OpenFile>> {
        self.0.as_ref()
    }

    /// Returns the file, unless it was taken. The caller keeps it open, until it calls [`OpenFile::leave`].
    pub(super) fn take(mut self) -> Option<StaticOrArc<OpenFile>> {
        self.take_kept()
    }

    /// Does the same, and leaves nothing here.
    pub(super) fn take_kept(&mut self) -> Option<StaticOrArc<OpenFile>> {
        self.0.take()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            file.note_closed(false);
            file.leave();
        }
    }
}

/// The direction in which a call transfers bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// An open file that a call uses, and that does not close meanwhile.
pub struct InUse(Borrowed);

impl InUse {
    /// Keeps `file` open, or returns `None` if it was closed before.
    #[inline]
    pub fn new(file: Borrowed) -> Option<Self> {
        file.join().then(|| Self(file))
    }
}

impl Deref for InUse {
    type Target = OpenFile;
    #[inline(always)]
    fn deref(&self) -> &OpenFile {
        &self.0
    }
}

impl Drop for InUse {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The contents of a file that are generated by `open`.
pub struct Snapshot(pub Text);

impl Content for Snapshot {
    fn len(&self) -> u64 {
        0
    }

    fn read(&self, at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        Ok(copy_prefix(into, tail(&self.0.0, at)))
    }

    fn write(&self, _at: super::content::WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EROFS)
    }

    fn waiting(&self, at: u64) -> u64 {
        tail(&self.0.0, at).len() as u64
    }
}
