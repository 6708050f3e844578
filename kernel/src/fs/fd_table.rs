//! A process's descriptors, current directory and umask.
//!
//! Threads share them, under spin locks that are held for a look or a change only. Files are dropped after the
//! lock: closing one may wake somebody.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use abi::Errno;
use abi::file::{AT_FDCWD, O_RDONLY, O_WRONLY};
use sync::SpinLock;

use super::node::Node;
use super::open_file::OpenFile;
use super::path::{self, Found};
use super::{console, fallible};

/// RLIMIT_NOFILE: descriptors are below this.
pub const MAX_FILES: u64 = 1024;
const END: usize = MAX_FILES as usize;

#[derive(Clone)]
struct Descriptor {
    file: Arc<OpenFile>,
    close_on_exec: bool,
}

type Slots = Vec<Option<Descriptor>>;

/// See the module.
pub struct FdTable {
    slots: SpinLock<Slots>,
    root: Arc<Node>,
    directory: SpinLock<Arc<Node>>,
    /// Relaxed: it orders nothing.
    umask: AtomicU32,
}

impl FdTable {
    /// A table with standard input, output and error, in the root directory.
    pub fn new_stdio() -> Result<Self, Errno> {
        let root = super::root();
        let [input, output, errors] = console::nodes()?;
        let mut slots = Vec::new();
        for (node, flags) in [(input, O_RDONLY), (output, O_WRONLY), (errors, O_WRONLY)] {
            let file = OpenFile::new(node, flags)?;
            fallible::push(&mut slots, Some(Descriptor { file, close_on_exec: false }))?;
        }
        Ok(Self {
            slots: SpinLock::new(slots),
            directory: SpinLock::new(root.clone()),
            root,
            umask: AtomicU32::new(0o022),
        })
    }

    /// The file behind descriptor `fd`.
    pub fn get(&self, fd: i32) -> Result<Arc<OpenFile>, Errno> {
        self.with(fd, |descriptor| descriptor.file.clone())
    }

    fn with<R>(&self, fd: i32, f: impl FnOnce(&mut Descriptor) -> R) -> Result<R, Errno> {
        let mut slots = self.slots.lock();
        let slot = usize::try_from(fd).ok().and_then(|fd| slots.get_mut(fd)).ok_or(Errno::EBADF)?;
        slot.as_mut().map(f).ok_or(Errno::EBADF)
    }

    /// Puts `file` at the lowest free descriptor from `lowest` on.
    pub fn add(&self, file: Arc<OpenFile>, lowest: usize, close_on_exec: bool) -> Result<i32, Errno> {
        let mut slots = self.slots.lock();
        let free = (lowest..END).find(|&fd| slots.get(fd).is_none_or(Option::is_none));
        let fd = free.ok_or(Errno::EMFILE)?;
        grow(&mut slots, fd)?;
        slots[fd] = Some(Descriptor { file, close_on_exec });
        Ok(fd as i32)
    }

    /// Puts `file` at exactly `fd`, closing what is there.
    pub fn put(&self, file: Arc<OpenFile>, fd: usize, close_on_exec: bool) -> Result<i32, Errno> {
        let mut slots = self.slots.lock();
        if fd >= END {
            return Err(Errno::EBADF);
        }
        grow(&mut slots, fd)?;
        let closed = slots[fd].replace(Descriptor { file, close_on_exec });
        drop(slots);
        drop(closed);
        Ok(fd as i32)
    }

    /// Closes `fd`.
    pub fn close(&self, fd: i32) -> Result<(), Errno> {
        let mut slots = self.slots.lock();
        let slot = usize::try_from(fd).ok().and_then(|fd| slots.get_mut(fd)).ok_or(Errno::EBADF)?;
        let closed = slot.take();
        drop(slots);
        closed.map(drop).ok_or(Errno::EBADF)
    }

    /// Closes everything.
    pub fn close_all(&self) {
        let closed = core::mem::take(&mut *self.slots.lock());
        drop(closed);
    }

    /// Closes every descriptor of the range, both ends included.
    pub fn close_range(&self, first: u32, last: u32) {
        let end = (last as usize).min(END);
        // One at a time, because a file is dropped without the lock.
        for fd in first as usize..=end {
            let _absent = self.close(fd as i32);
        }
    }

    /// Sets close-on-exec for every descriptor of the range, both ends included.
    pub fn mark_range(&self, first: u32, last: u32) {
        let end = (last as usize).min(END);
        for fd in first as usize..=end {
            let _absent = self.set_close_on_exec(fd as i32, true);
        }
    }

    /// Whether `fd` closes on exec.
    pub fn close_on_exec(&self, fd: i32) -> Result<bool, Errno> {
        self.with(fd, |descriptor| descriptor.close_on_exec)
    }

    /// Sets whether `fd` closes on exec.
    pub fn set_close_on_exec(&self, fd: i32, value: bool) -> Result<(), Errno> {
        self.with(fd, |descriptor| descriptor.close_on_exec = value)
    }

    /// The lowest descriptor in use that is not below `from`.
    pub fn next_open(&self, from: usize) -> Option<usize> {
        let slots = self.slots.lock();
        (from..slots.len()).find(|&fd| slots[fd].is_some())
    }

    /// The current directory.
    pub fn directory(&self) -> Arc<Node> {
        self.directory.lock().clone()
    }

    /// Changes the current directory.
    pub fn set_directory(&self, node: Arc<Node>) -> Result<(), Errno> {
        if !node.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let _old = core::mem::replace(&mut *self.directory.lock(), node);
        Ok(())
    }

    /// What `path` names, counted from directory `from` (a descriptor or `AT_FDCWD`).
    pub fn find(&self, from: i32, path: &[u8], follow: bool) -> Result<Found, Errno> {
        let start = match from {
            _ if path.first() == Some(&b'/') => self.root.clone(),
            AT_FDCWD => self.directory(),
            fd => self.get(fd)?.node().clone(),
        };
        path::find(&self.root, &start, path, follow)
    }

    /// Sets the umask; says what it was.
    pub fn set_umask(&self, mask: u32) -> u32 {
        self.umask.swap(mask & 0o777, Ordering::Relaxed)
    }

    /// `permissions` without what the umask takes.
    pub fn masked(&self, permissions: u32) -> u32 {
        permissions & !self.umask.load(Ordering::Relaxed)
    }
}

fn grow(slots: &mut Slots, fd: usize) -> Result<(), Errno> {
    if slots.len() <= fd {
        slots.try_reserve(fd + 1 - slots.len()).map_err(|_| Errno::ENOMEM)?;
        slots.resize_with(fd + 1, || None);
    }
    Ok(())
}
