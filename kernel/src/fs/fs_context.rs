//! The file system context of a process: its root, its current directory and its umask (Linux's `fs_struct`).
//!
//! Calls read the current directory without a lock (`rcu::Word`) and write no shared line for it. `chdir`
//! replaces the word's [`Place`], and the old one is dropped when no core can be reading it any more. Another
//! process may read it too, by `/proc/PID/cwd`, so that holds for a process with one thread as well.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use abi::Errno;
use percore::{Pinned, pin};
use rcu::Word;

use super::node::NodeRef;
use super::path::{self, Found};
use super::rights;
use crate::mm::{fallible, lending};

/// A directory that a process is in. The `Arc` has one holder: the word.
type Place = Arc<NodeRef>;

/// The context. Threads share it, and so do processes after `clone` with CLONE_FS.
pub struct FsContext {
    root: NodeRef,
    /// Never free.
    directory: Word<Place>,
    /// Relaxed: it orders nothing.
    umask: AtomicU32,
    /// The threads that use it. Only such a thread makes another one, so a thread that finds itself alone
    /// stays that. Relaxed: the end of a thread is known by a lock.
    users: AtomicU32,
}

impl FsContext {
    /// Returns the context of the first process, in `directory`, or in the root directory if it is not there.
    pub fn new(directory: &[u8], umask: u32) -> Result<Arc<Self>, Errno> {
        let (root, pin) = (super::root(), pin());
        let found = path::find(&pin, &root, &root, directory, true).ok().and_then(|found| found.node);
        let start = found.filter(|node| node.is_directory()).map_or(root.clone(), Cow::into_owned);
        Self::with(root, start, umask)
    }

    /// Counts a thread that uses it from now on. The caller uses it, or it is new.
    pub fn join(&self) {
        match self.users() {
            0 => self.users.store(1, Ordering::Relaxed),
            _ => _ = self.users.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Counts a thread less. The last one writes nothing.
    pub fn leave(&self) {
        if self.users() > 1 {
            self.users.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of threads that use it.
    pub fn users(&self) -> u32 {
        self.users.load(Ordering::Relaxed)
    }

    /// Returns a copy that changes independently.
    pub fn copy(&self) -> Result<Arc<Self>, Errno> {
        let pin = pin();
        let directory = lending::peek(&pin, &self.directory).unwrap_or(&self.root).clone();
        Self::with(self.root.clone(), directory, self.umask.load(Ordering::Relaxed))
    }

    fn with(root: NodeRef, directory: NodeRef, umask: u32) -> Result<Arc<Self>, Errno> {
        let context =
            Self { root, directory: Word::new(), umask: AtomicU32::new(umask), users: AtomicU32::new(0) };
        let _nothing = context.directory.put(fallible::arc(directory)?, false);
        fallible::arc(context)
    }

    /// Returns the current directory. The caller uses it only until the core sleeps or is quiescent.
    #[inline]
    pub fn peek_directory<'a>(&'a self, pin: &'a Pinned) -> &'a NodeRef {
        lending::peek(pin, &self.directory).unwrap_or(&self.root)
    }

    /// Returns the current directory, counted.
    pub fn directory(&self) -> NodeRef {
        self.peek_directory(&pin()).clone()
    }

    /// Changes the current directory.
    ///
    /// # Errors
    /// ENOTDIR, EACCES, ENOMEM.
    pub fn set_directory(&self, node: NodeRef) -> Result<(), Errno> {
        if !node.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        rights::permit(&node, rights::EXECUTE)?;
        let place = fallible::arc(node)?;
        self.directory.put(place, false).into_iter().for_each(|old| lending::discard(old, false));
        Ok(())
    }

    /// Looks `path` up, from `start` unless it is absolute.
    pub fn find<'a>(
        &'a self,
        pin: &'a Pinned,
        start: &'a NodeRef,
        path: &[u8],
        follow: bool,
    ) -> Result<Found<'a>, Errno> {
        path::find(pin, &self.root, start, path, follow)
    }

    /// Sets the umask and returns the old one.
    pub fn set_umask(&self, mask: u32) -> u32 {
        self.umask.swap(mask & 0o777, Ordering::Relaxed)
    }

    /// Returns `permissions` without those that the umask clears.
    pub fn masked(&self, permissions: u32) -> u32 {
        permissions & !self.umask.load(Ordering::Relaxed)
    }
}
