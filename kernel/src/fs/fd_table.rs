//! A process's descriptors.
//!
//! Threads share them, and processes may, under a spin lock that is held for a look or a change only. Files are
//! dropped after the lock: closing one may wake somebody. Who shares a table counts itself in, because it is closed
//! when the last one leaves, though others may still hold a reference for a while.
//!
//! A call that may still fail once it knows a descriptor's number reserves it: nobody finds, closes or replaces it until
//! the file is there, so nothing has to be undone by number.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use abi::Errno;
use abi::file::{O_RDONLY, O_WRONLY};
use sync::SpinLock;

use super::open_file::OpenFile;
use super::{console, fallible};

/// RLIMIT_NOFILE: descriptors are below this.
pub const MAX_FILES: u64 = 1024;
const END: usize = MAX_FILES as usize;

#[derive(Clone)]
struct Descriptor {
    file: Arc<OpenFile>,
    close_on_exec: bool,
}

#[derive(Clone)]
enum Slot {
    Free,
    /// A call's that goes on ([`Reserved`]).
    Reserved,
    Open(Descriptor),
}

impl Slot {
    fn is_open(&self) -> bool {
        matches!(self, Slot::Open(_))
    }
}

type Slots = Vec<Slot>;

/// See the module.
pub struct FdTable {
    slots: SpinLock<Slots>,
    /// Threads that use it.
    users: AtomicUsize,
}

/// A number that a call will give to a file, unless it is dropped.
pub struct Reserved<'t> {
    table: &'t FdTable,
    fd: usize,
}

impl Reserved<'_> {
    /// The number.
    pub fn number(&self) -> i32 {
        self.fd as i32
    }

    /// Puts `file` there. Says where that is.
    pub fn fill(self, file: Arc<OpenFile>, close_on_exec: bool) -> i32 {
        self.set(Slot::Open(Descriptor { file, close_on_exec }));
        let number = self.number();
        core::mem::forget(self);
        number
    }

    /// The table is not closed meanwhile: the thread that reserved uses it.
    fn set(&self, slot: Slot) {
        self.table.slots.lock()[self.fd] = slot;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.set(Slot::Free);
    }
}

impl FdTable {
    /// A table with standard input, output and error.
    pub fn new_stdio() -> Result<Arc<Self>, Errno> {
        let [input, output, errors] = console::nodes()?;
        let mut slots = Vec::new();
        for (node, flags) in [(input, O_RDONLY), (output, O_WRONLY), (errors, O_WRONLY)] {
            let file = OpenFile::new(node, flags)?;
            fallible::push(&mut slots, Slot::Open(Descriptor { file, close_on_exec: false }))?;
        }
        Self::with(slots)
    }

    fn with(slots: Slots) -> Result<Arc<Self>, Errno> {
        fallible::arc(Self { slots: SpinLock::new(slots), users: AtomicUsize::new(0) })
    }

    /// A table with the same open files.
    pub fn copy(&self) -> Result<Arc<Self>, Errno> {
        let slots = self.slots.lock();
        let used = slots.iter().rposition(Slot::is_open).map_or(0, |last| last + 1);
        let mut copy = fallible::empty(used)?;
        copy.extend(slots[..used].iter().map(|slot| if slot.is_open() { slot.clone() } else { Slot::Free }));
        drop(slots);
        Self::with(copy)
    }

    /// Another thread uses it.
    pub fn join(&self) {
        // Relaxed: who joins got it from who is in.
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread uses it no more. The last one closes all.
    pub fn leave(&self) {
        // AcqRel: what the others did to the table comes before the end.
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close_all();
        }
    }

    /// Whether several threads use it.
    pub fn is_shared(&self) -> bool {
        // Relaxed: a thread that asks of its own table and finds itself alone stays alone.
        self.users.load(Ordering::Relaxed) > 1
    }

    /// The file behind descriptor `fd`.
    pub fn get(&self, fd: i32) -> Result<Arc<OpenFile>, Errno> {
        self.look_at(fd, |descriptor| descriptor.file.clone())
    }

    fn look_at<R>(&self, fd: i32, f: impl FnOnce(&mut Descriptor) -> R) -> Result<R, Errno> {
        let mut slots = self.slots.lock();
        let slot = usize::try_from(fd).ok().and_then(|fd| slots.get_mut(fd)).ok_or(Errno::EBADF)?;
        match slot {
            Slot::Open(descriptor) => Ok(f(descriptor)),
            Slot::Free | Slot::Reserved => Err(Errno::EBADF),
        }
    }

    /// The lowest free descriptor from `lowest` on.
    ///
    /// # Errors
    /// EMFILE, ENOMEM.
    pub fn reserve(&self, lowest: usize) -> Result<Reserved<'_>, Errno> {
        let mut slots = self.slots.lock();
        let is_free = |&fd: &usize| matches!(slots.get(fd), None | Some(Slot::Free));
        let fd = (lowest..END).find(is_free).ok_or(Errno::EMFILE)?;
        grow(&mut slots, fd)?;
        slots[fd] = Slot::Reserved;
        Ok(Reserved { table: self, fd })
    }

    /// Puts `file` at the lowest free descriptor from `lowest` on.
    pub fn add(&self, file: Arc<OpenFile>, lowest: usize, close_on_exec: bool) -> Result<i32, Errno> {
        Ok(self.reserve(lowest)?.fill(file, close_on_exec))
    }

    /// Puts `file` at exactly `fd`, closing what is there.
    ///
    /// # Errors
    /// EBADF beyond the limit; EBUSY if a call is about to put another one there; ENOMEM.
    pub fn put(&self, file: Arc<OpenFile>, fd: usize, close_on_exec: bool) -> Result<i32, Errno> {
        let mut slots = self.slots.lock();
        if fd >= END {
            return Err(Errno::EBADF);
        }
        grow(&mut slots, fd)?;
        if matches!(slots[fd], Slot::Reserved) {
            return Err(Errno::EBUSY);
        }
        let closed = core::mem::replace(&mut slots[fd], Slot::Open(Descriptor { file, close_on_exec }));
        drop(slots);
        drop(closed);
        Ok(fd as i32)
    }

    /// Closes `fd`.
    pub fn close(&self, fd: i32) -> Result<(), Errno> {
        let mut slots = self.slots.lock();
        let slot = usize::try_from(fd).ok().and_then(|fd| slots.get_mut(fd));
        let open = slot.filter(|slot| slot.is_open()).ok_or(Errno::EBADF)?;
        let closed = core::mem::replace(open, Slot::Free);
        drop(slots);
        drop(closed);
        Ok(())
    }

    /// Closes everything.
    fn close_all(&self) {
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

    /// Closes every descriptor that closes on exec. By a thread that has the table for itself.
    pub fn close_on_exec_all(&self) {
        let closes = |slot: &Slot| matches!(slot, Slot::Open(descriptor) if descriptor.close_on_exec);
        let next = |from: usize| self.slots.lock()[from..].iter().position(closes).map(|at| from + at);
        let mut from = 0;
        while let Some(fd) = next(from) {
            let _closed = self.close(fd as i32);
            from = fd + 1;
        }
    }

    /// Whether `fd` closes on exec.
    pub fn close_on_exec(&self, fd: i32) -> Result<bool, Errno> {
        self.look_at(fd, |descriptor| descriptor.close_on_exec)
    }

    /// Sets whether `fd` closes on exec.
    pub fn set_close_on_exec(&self, fd: i32, value: bool) -> Result<(), Errno> {
        self.look_at(fd, |descriptor| descriptor.close_on_exec = value)
    }

    /// The lowest descriptor in use that is not below `from`.
    pub fn next_open(&self, from: usize) -> Option<usize> {
        let slots = self.slots.lock();
        (from..slots.len()).find(|&fd| slots[fd].is_open())
    }
}

fn grow(slots: &mut Slots, fd: usize) -> Result<(), Errno> {
    if slots.len() <= fd {
        slots.try_reserve(fd + 1 - slots.len()).map_err(|_| Errno::ENOMEM)?;
        slots.resize_with(fd + 1, || Slot::Free);
    }
    Ok(())
}
