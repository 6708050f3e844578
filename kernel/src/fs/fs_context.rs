//! The file system context of a process: its root, its current directory and its umask (Linux's `fs_struct`).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use abi::Errno;
use sync::SpinLock;

use super::node::Node;
use super::path::{self, Found};
use crate::mm::fallible;
use crate::mm::refcache_arc::RefcacheArc;
use crate::mm::static_or_arc::StaticOrArc;

/// The context. Threads share it, and so do processes after `clone` with CLONE_FS.
pub struct FsContext {
    root: RefcacheArc<StaticOrArc<Node>>,
    directory: SpinLock<RefcacheArc<StaticOrArc<Node>>>,
    /// Relaxed: it orders nothing.
    umask: AtomicU32,
}

impl FsContext {
    /// Returns the context of the first process, in the root directory.
    pub fn new() -> Result<Arc<Self>, Errno> {
        let root = RefcacheArc::new(super::root())?;
        fallible::arc(Self { directory: SpinLock::new(root.clone()), root, umask: AtomicU32::new(0o022) })
    }

    /// Returns a copy that changes independently.
    pub fn copy(&self) -> Result<Arc<Self>, Errno> {
        fallible::arc(Self {
            root: self.root.clone(),
            directory: SpinLock::new(self.directory.lock().clone()),
            umask: AtomicU32::new(self.umask.load(Ordering::Relaxed)),
        })
    }

    /// Returns the current directory.
    pub fn directory(&self) -> StaticOrArc<Node> {
        StaticOrArc::clone(&self.directory.lock())
    }

    /// Changes the current directory.
    pub fn set_directory(&self, node: StaticOrArc<Node>) -> Result<(), Errno> {
        if !node.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let node = RefcacheArc::new(node)?;
        let _old = core::mem::replace(&mut *self.directory.lock(), node);
        Ok(())
    }

    /// Looks `path` up, from `start` unless it is absolute.
    pub fn find(&self, start: &StaticOrArc<Node>, path: &[u8], follow: bool) -> Result<Found, Errno> {
        path::find(&self.root, start, path, follow)
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
