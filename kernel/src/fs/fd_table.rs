//! The descriptors of a process.
//!
//! Threads share the table, and processes may, under a spin lock that is held for one look or change only.
//! Files are dropped after the lock is released, because closing one may wake a task. The table counts its
//! users. It is closed when the last one leaves, although other tasks may hold a reference to it for a while.
//!
//! A call that may still fail once it knows a descriptor's number reserves the number. No call finds, closes
//! or replaces it until the file is there, so nothing has to be undone by number.
//!
//!
//! ```text
//!   parent's table ──▶ descriptors ◀── child's table           after a fork
//!   parent's table ──▶ descriptors     child's table ──▶ its own copy           after the first change by either
//! ```
//! A child's table shares its parent's descriptors until one of the two changes its own. A fork therefore
//! counts no file, and processes that inherited the same files fork without sharing the cache lines of the
//! files' counts. A file closes when the last descriptor of it goes, at once, as the other end of a pipe
//! expects. The fork allocates the room for both copies, because a fork may fail and closing a descriptor may
//! not.

mod reserved;
mod slots;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering};

use abi::Errno;
use abi::file::{O_RDONLY, O_WRONLY};
use sync::SpinLock;

pub use self::reserved::Reserved;
use self::slots::{Descriptor, Descriptors, Slot, Slots, exclusive, grow};
use super::console;
use super::open_file::OpenFile;
use crate::mm::fallible;
use crate::mm::static_or_arc::StaticOrArc;

/// RLIMIT_NOFILE: every descriptor is below this.
pub const MAX_FILES: u64 = 1024;
const END: usize = MAX_FILES as usize;

/// The table of descriptors.
pub struct FdTable {
    descriptors: SpinLock<Descriptors>,
    /// The threads that use it.
    users: AtomicUsize,
}

impl FdTable {
    /// Creates a table with standard input, output and error.
    pub fn new_stdio() -> Result<Arc<Self>, Errno> {
        let [input, output, errors] = console::nodes()?;
        let mut slots = Vec::new();
        for (node, flags) in [(input, O_RDONLY), (output, O_WRONLY), (errors, O_WRONLY)] {
            let file = OpenFile::new(node, flags)?.into_static()?;
            fallible::push(&mut slots, Slot::Open(Descriptor { file, close_on_exec: false }))?;
        }
        Self::with(slots)
    }

    fn with(slots: Slots) -> Result<Arc<Self>, Errno> {
        Self::of(Descriptors { slots: fallible::arc(slots)?, room: None })
    }

    fn of(descriptors: Descriptors) -> Result<Arc<Self>, Errno> {
        fallible::arc(Self { descriptors: SpinLock::new(descriptors), users: AtomicUsize::new(0) })
    }

    /// Creates a table with the same open files.
    pub fn copy(&self) -> Result<Arc<Self>, Errno> {
        let copy = self.descriptors.lock().copy()?;
        Self::of(copy)
    }

    /// Calls `change` with the slots, after copying them if another table shares them. The shared slots are
    /// dropped without the lock, because this may be the last reference to them.
    fn change<R>(&self, change: impl FnOnce(&mut Slots) -> R) -> R {
        let mut descriptors = self.descriptors.lock();
        let old = descriptors.unshare(|_| true);
        let changed = change(exclusive(&mut descriptors.slots));
        drop(descriptors);
        drop(old);
        changed
    }

    /// Counts a thread that begins to use it.
    pub fn join(&self) {
        // Relaxed: the thread got the table from a thread that is counted.
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a thread less, and closes all descriptors if it was the last.
    pub fn leave(&self) {
        // AcqRel: all changes by the other threads come before the end.
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close_all();
        }
    }

    /// Returns whether several threads use it.
    pub fn is_shared(&self) -> bool {
        // Relaxed: if a thread asks about its own table and is its only user, it stays the only one.
        self.users.load(Ordering::Relaxed) > 1
    }

    /// Returns the file behind descriptor `fd`.
    ///
    /// # Errors
    /// EBADF if it is not open.
    pub fn get(&self, fd: i32) -> Result<StaticOrArc<OpenFile>, Errno> {
        self.with_descriptor(fd, |descriptor| descriptor.file.clone())
    }

    fn with_descriptor<R>(&self, fd: i32, f: impl FnOnce(&Descriptor) -> R) -> Result<R, Errno> {
        let slots = &self.descriptors.lock().slots;
        let slot = usize::try_from(fd).ok().and_then(|fd| slots.get(fd)).ok_or(Errno::EBADF)?;
        match slot {
            Slot::Open(descriptor) => Ok(f(descriptor)),
            Slot::Free | Slot::Reserved => Err(Errno::EBADF),
        }
    }

    /// Puts `file` at the lowest free descriptor from `lowest` on and returns that.
    pub fn add(&self, file: StaticOrArc<OpenFile>, lowest: usize, close_on_exec: bool) -> Result<i32, Errno> {
        Ok(self.reserve(lowest)?.fill(file, close_on_exec))
    }

    /// Puts `file` at exactly `fd`, and closes what is there.
    ///
    /// # Errors
    /// EBADF beyond the limit, EBUSY if another call has reserved the number, ENOMEM.
    pub fn put(&self, file: StaticOrArc<OpenFile>, fd: usize, close_on_exec: bool) -> Result<i32, Errno> {
        if fd >= END {
            return Err(Errno::EBADF);
        }
        let mut slot = Slot::Open(Descriptor { file, close_on_exec });
        // A file that is closed, or cannot be put there, is dropped when the table is not locked any more.
        self.change(|slots| {
            grow(slots, fd)?;
            match slots.get_mut(fd).ok_or(Errno::EBADF)? {
                Slot::Reserved => return Err(Errno::EBUSY),
                place => mem::swap(place, &mut slot),
            }
            Ok(fd as i32)
        })
    }

    /// Closes `fd`.
    pub fn close(&self, fd: i32) -> Result<(), Errno> {
        self.with_descriptor(fd, |_| ())?;
        let closed = self.change(|slots| {
            let slot = slots.get_mut(fd as usize).filter(|slot| slot.is_open());
            slot.map(|slot| mem::replace(slot, Slot::Free))
        });
        closed.map(drop).ok_or(Errno::EBADF)
    }

    /// Closes everything.
    fn close_all(&self) {
        let mut descriptors = self.descriptors.lock();
        // Shared slots are not copied only to be closed.
        let shared = descriptors.room.take().map(|room| mem::replace(&mut descriptors.slots, room));
        let mine = mem::take(exclusive(&mut descriptors.slots));
        drop(descriptors);
        drop((shared, mine));
    }

    /// Closes every descriptor from `first` to `last`, both included.
    pub fn close_range(&self, first: u32, last: u32) {
        let end = (last as usize).min(END);
        // One at a time, because a file is dropped without the lock.
        for fd in first as usize..=end {
            let _absent = self.close(fd as i32);
        }
    }

    /// Sets close-on-exec for every descriptor from `first` to `last`, both included.
    pub fn mark_range(&self, first: u32, last: u32) {
        let end = (last as usize).min(END);
        for fd in first as usize..=end {
            let _absent = self.set_close_on_exec(fd as i32, true);
        }
    }

    /// Closes every descriptor with close-on-exec. The caller is the only user of the table.
    pub fn close_on_exec_all(&self) {
        let closes = |slot: &Slot| matches!(slot, Slot::Open(descriptor) if descriptor.close_on_exec);
        let next = |from: usize| {
            self.descriptors.lock().slots.iter().skip(from).position(closes).map(|at| from + at)
        };
        let mut from = next(0);
        if from.is_some() {
            // The copy leaves out the files that are closed next, so that they are not counted first.
            let _old = self.descriptors.lock().unshare(|slot| !closes(slot));
        }
        while let Some(fd) = from {
            let _closed = self.close(fd as i32);
            from = next(fd + 1);
        }
    }

    /// Returns whether `fd` closes on exec.
    pub fn close_on_exec(&self, fd: i32) -> Result<bool, Errno> {
        self.with_descriptor(fd, |descriptor| descriptor.close_on_exec)
    }

    /// Sets or clears close-on-exec of `fd`.
    pub fn set_close_on_exec(&self, fd: i32, value: bool) -> Result<(), Errno> {
        if self.close_on_exec(fd)? == value {
            return Ok(());
        }
        self.change(|slots| match slots.get_mut(fd as usize) {
            Some(Slot::Open(descriptor)) => {
                descriptor.close_on_exec = value;
                Ok(())
            }
            _ => Err(Errno::EBADF),
        })
    }

    /// Returns the lowest open descriptor from `from` on.
    pub fn next_open(&self, from: usize) -> Option<usize> {
        let slots = &self.descriptors.lock().slots;
        slots.iter().enumerate().skip(from).find(|(_, slot)| slot.is_open()).map(|(fd, _)| fd)
    }
}
