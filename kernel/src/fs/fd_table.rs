//! The descriptors of a process.
//!
//! Threads share the table, and processes may. A look-up takes no lock and writes no shared line: it reads
//! the slot and borrows the file (`mm/lending.rs`). Changes take a spin lock, which is held for one look or
//! change only, but for those of invariant 5. Files are closed after the lock is released, because that may
//! wake a task. The table counts its users. It is closed when the last one leaves, although other tasks may
//! hold a reference to it for a while.
//!
//! A call that may still fail once it knows a descriptor's number reserves the number. No call finds, closes
//! or replaces it until the file is there, so nothing has to be undone by number.
//!
//! ```text
//!   parent's table ──▶ descriptors ◀── child's table           after a fork
//!   parent's table ──▶ descriptors     child's table ──▶ its own copy           after the first change by either
//! ```
//! A child's table shares its parent's descriptors until one of the two changes its own. A fork therefore
//! counts no file, and processes that inherited the same files fork without sharing the cache lines of the
//! files' counts. The fork allocates the room for both copies, because a fork may fail and closing a
//! descriptor may not.
//!
//! A file has two counts:
//!
//! | count | of | when it becomes 0 |
//! |---|---|---|
//! | of its ends (`holders.rs`), only for pipes | slots, each once however many tables share it, and calls that read or write it | the other end is told, at once |
//! | of its memory (`Arc`) | slots, mappings, calls that slept or paused, and slots that threads may have read a moment ago | the memory is freed |
//!
//! Invariants:
//! 1. A slot in use keeps its file open. The slots keep their files until the last of their tables has left,
//!    which `Slots::tables` counts exactly.
//! 2. A thread looks descriptors up in its own table only, of which it is a user. Others take the lock
//!    ([`FdTable::get`]). So if the caller is the table's only user, no core is reading the slots without the
//!    lock, and what it takes out goes at once. Otherwise it goes after a grace period of RCU.
//!    Slots that a table of several threads has left are not changed any more, because its threads may be
//!    reading them.
//! 3. A thread that finds a file whose ends are closed looks again: the number is closed or has another file.
//!    So no call reads or writes a pipe after its other end was told of the close, and a `dup2` onto an open
//!    number is never seen as a number that is not open.
//! 4. Before a table of several threads begins to share its slots, or is copied or grown, its slots are
//!    frozen. They are thawed when the table has them alone again. A table with one thread that shares its
//!    slots sets `may_be_shared` instead.
//! 5. In a table of several threads these change a slot without the lock, if it is not frozen: a close, a
//!    `dup2` onto an open number, and the call that has reserved a number and has its file now. Only calls
//!    with the lock make use of a free slot. So an open that has the lock, and finds all lower numbers in use
//!    after it has found its own free, has the lowest free one of the moment when it found that.
//!    A file that is taken out without the lock goes after a grace period, because a thread with the lock may
//!    be reading the slot.
//!
//! Orderings: those of `rcu::Word`. `users` is AcqRel when a thread leaves and Acquire when another asks
//! whether it is alone: the look-ups of the threads that left have ended.

mod reserved;
mod slots;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use abi::Errno;
use abi::file::{O_RDONLY, O_RDWR, O_WRONLY};
use percore::{Pinned, pin};
use rcu::{Found, Removed, Word};
use sync::{SpinGuard, SpinLock};

pub use self::reserved::Reserved;
use self::slots::{Closed, Slot, Slots, fill, is_marked, is_open, replace_unlocked};
use super::locks::{self, Kind, Owner};
use super::node::NodeRef;
use super::open_file::{InUse, OpenFile, Opened, Transfer};
use super::{console, root};
use crate::mm::epoch;
use crate::mm::fallible;
use crate::mm::lending::{self, Borrowed};
use crate::mm::static_or_arc::StaticOrArc;

/// The largest RLIMIT_NOFILE: every descriptor is below this.
pub const MAX_FILES: u64 = 1024;
const END: usize = MAX_FILES as usize;

/// The table of descriptors. Its lock has another cache line than what look-ups and closes read.
#[repr(C)]
pub struct FdTable {
    /// Its slots, always there. Only a table that has them alone changes them.
    slots: Word<Arc<Slots>>,
    /// The threads that use it.
    users: AtomicUsize,
    /// RLIMIT_NOFILE of the process that set it last: new descriptors are below this. Relaxed.
    limit: AtomicUsize,
    /// Set for good when it takes a POSIX lock. Relaxed: it is read by calls that close a descriptor, and
    /// those that run at the same time as the lock may miss it, as if they had come before.
    has_locked: AtomicBool,
    /// Set as long as the slots may be shared, so that no call changes them without the lock. Written with
    /// `room` locked. It is cleared by a Release after the table got slots of its own, and loaded by an
    /// Acquire before a call looks at the slots.
    may_be_shared: AtomicBool,
    _apart: [u8; APART],
    /// The lock of the other changes. It protects the room for a copy of the slots, which is there as long as
    /// they may be shared. No slot is reserved while they are.
    room: SpinLock<Option<Arc<Slots>>>,
}

/// Bytes before the lock. The two counts of an `Arc` stand before the slots.
const APART: usize =
    64 - 4 * size_of::<usize>() - size_of::<Word<Arc<Slots>>>() - 2 * size_of::<AtomicBool>();

/// The table during a change, with its lock held.
struct Writer<'t> {
    table: &'t FdTable,
    pin: &'t Pinned,
    room: SpinGuard<'t, Option<Arc<Slots>>>,
    /// Slots that were replaced: shared ones, and those that had to grow.
    shared: Option<Removed<Arc<Slots>>>,
    small: Option<Removed<Arc<Slots>>>,
}

impl<'t> Writer<'t> {
    fn slots(&self) -> &'t Slots {
        self.table.slots(self.pin)
    }

    /// Returns slot `fd`, which is made if there is none.
    ///
    /// # Errors
    /// ENOMEM.
    fn grown(&mut self, fd: usize) -> Result<&'t Slot, Errno> {
        if self.slots().get(fd).is_none() {
            let larger = Slots::new(fd + 1)?;
            self.slots().move_to(self.pin, &larger);
            self.small = self.table.slots.put(larger, false);
        }
        self.slots().begin(fd).ok_or(Errno::EBADF)
    }

    /// Replaces the slots by copies of those that satisfy `stays`, if they may be shared.
    fn unshare(&mut self, stays: impl Fn(&Slot) -> bool) {
        let Some(room) = self.room.take() else { return };
        if self.slots().is_exclusive() {
            self.slots().thaw();
        } else {
            room.copy_from(self.pin, self.slots(), stays);
            self.shared = self.table.slots.put(room, false);
        }
        self.table.may_be_shared.store(false, Ordering::Release);
    }

    /// Releases the lock, and then the slots that were replaced.
    fn end(self) {
        let Self { table, pin, room, shared, small } = self;
        drop(room);
        if let Some(slots) = shared {
            if !table.is_alone() {
                slots.note_readers();
            }
            slots.leave(pin);
            lending::discard(slots, table.is_alone());
        }
        if let Some(slots) = small {
            lending::discard(slots, table.is_alone());
        }
    }
}

impl FdTable {
    /// Creates a table with standard input, output and error, which are all the terminal if there is one.
    pub fn new_stdio(terminal: Option<NodeRef>) -> Result<Arc<Self>, Errno> {
        let table = Self::of(Slots::new(0)?, None, END)?;
        if let Some(node) = terminal {
            let place = (root().lookup(b"dev")?, fallible::copied(b"console")?);
            let file = OpenFile::found(node, place, O_RDWR)?.into_static()?;
            for _ in 0..3 {
                table.add(file.clone(), 0, false)?;
            }
            return Ok(table);
        }
        let [input, output, errors] = console::nodes()?;
        for (node, flags) in [(input, O_RDONLY), (output, O_WRONLY), (errors, O_WRONLY)] {
            table.add(OpenFile::new(node, flags)?.into_static()?, 0, false)?;
        }
        Ok(table)
    }

    fn of(slots: Arc<Slots>, room: Option<Arc<Slots>>, limit: usize) -> Result<Arc<Self>, Errno> {
        let table = Self {
            slots: Word::new(),
            users: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            has_locked: AtomicBool::new(false),
            may_be_shared: AtomicBool::new(room.is_some()),
            _apart: [0; APART],
            room: SpinLock::new(room),
        };
        let _nothing = table.slots.put(slots, false);
        fallible::arc(table)
    }

    /// Creates a table with the same open files. The slots are shared, or copied if a thread has reserved
    /// some here.
    pub fn copy(&self) -> Result<Arc<Self>, Errno> {
        let pin = pin();
        let mut room = self.room.lock();
        let slots = self.slots(&pin);
        let used = slots.used();
        let copy = Slots::new(used)?;
        let is_reserved = slots.iter().any(|slot| slot.look() == Found::Reserved);
        if room.is_none() && !is_reserved {
            *room = Some(Slots::new(used)?);
        }
        if !self.is_alone() {
            slots.freeze();
        }
        if is_reserved {
            copy.copy_from(&pin, slots, is_open);
            slots.thaw();
            drop(room);
            return Self::of(copy, None, self.limit());
        }
        // Relaxed: threads that were there before find the slots frozen.
        self.may_be_shared.store(true, Ordering::Relaxed);
        let shared = lending::get(&pin, &self.slots).map(Slots::shared);
        drop(room);
        Self::of(shared.ok_or(Errno::ENOMEM)?, Some(copy), self.limit())
    }

    /// Limits the descriptors that are opened from now on to those below `limit`.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit.min(MAX_FILES) as usize, Ordering::Relaxed);
    }

    /// Returns the limit: new descriptors are below it.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Calls `change` with the table locked, after copying the slots if another table shares them.
    fn change<R>(&self, change: impl FnOnce(&mut Writer<'_>) -> R) -> R {
        self.write(|_| true, change)
    }

    /// Does the same, but copies only the slots that satisfy `stays`.
    fn write<R>(&self, stays: impl Fn(&Slot) -> bool, change: impl FnOnce(&mut Writer<'_>) -> R) -> R {
        let pin = &pin();
        let mut writer = Writer { table: self, pin, room: self.room.lock(), shared: None, small: None };
        writer.unshare(stays);
        let changed = change(&mut writer);
        writer.end();
        changed
    }

    /// Calls `change` with slot `fd` for a change without the lock, or with `None` if that needs the lock.
    fn unlocked<R>(&self, fd: usize, change: impl FnOnce(Option<&Slot>) -> R) -> R {
        let pin = pin();
        let needs_lock = self.is_alone() || self.may_be_shared.load(Ordering::Acquire);
        change(if needs_lock { None } else { self.slots(&pin).get(fd) })
    }

    #[inline(always)]
    fn slots<'p>(&'p self, pin: &'p Pinned) -> &'p Slots {
        lending::peek(pin, &self.slots).unwrap_or_else(|| unreachable!("a table has slots"))
    }

    /// Returns the slot of a number that is in the table. The number may not be open.
    #[inline(always)]
    fn slot<'p>(&'p self, pin: &'p Pinned, fd: i32) -> Result<&'p Slot, Errno> {
        // A negative number is too large.
        self.slots(pin).get(fd as u32 as usize).ok_or(Errno::EBADF)
    }

    /// Counts a thread that begins to use it.
    pub fn join(&self) {
        // Relaxed: the thread got the table from a thread that is counted.
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a thread less, and closes all descriptors if it was the last.
    pub fn leave(&self) {
        // AcqRel: all changes by the other threads come before the end, and their look-ups have ended.
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close_all();
        }
    }

    /// Returns whether several threads use it.
    pub fn is_shared(&self) -> bool {
        !self.is_alone()
    }

    /// Returns whether no other thread looks descriptors up in the table. The caller uses it, or was the last
    /// to leave it.
    fn is_alone(&self) -> bool {
        // Acquire: pairs with `leave`. If a thread asks about its own table and is its only user, it stays
        // the only one.
        self.users.load(Ordering::Acquire) <= 1
    }

    /// Lends the file behind descriptor `fd` to the caller. The caller's thread uses the table.
    ///
    /// # Errors
    /// EBADF if it is not open.
    #[inline]
    pub fn borrow(&self, fd: i32) -> Result<Borrowed, Errno> {
        let pin = pin();
        lending::borrow(&pin, self.slot(&pin, fd)?).ok_or(Errno::EBADF)
    }

    /// Does the same without a loan. The caller uses the file only until the core sleeps or is quiescent.
    ///
    /// # Errors
    /// EBADF if it is not open.
    pub fn peek<'a>(&'a self, pin: &'a Pinned, fd: i32) -> Result<&'a OpenFile, Errno> {
        lending::peek(pin, self.slot(pin, fd)?).ok_or(Errno::EBADF)
    }

    /// Lends it too, and keeps the file open meanwhile.
    ///
    /// # Errors
    /// EBADF if it is not open.
    #[inline]
    pub fn in_use(&self, fd: i32) -> Result<InUse, Errno> {
        loop {
            // A file that is closed by now has left its slot, or is about to: invariant 3.
            if let Some(file) = InUse::new(self.borrow(fd)?) {
                return Ok(file);
            }
        }
    }

    /// Does the same for a call that reads or writes the file. A file that may not be read, or written, is
    /// refused before it is counted.
    ///
    /// # Errors
    /// EBADF if it is not open, or not for this.
    #[inline]
    pub fn in_use_for(&self, fd: i32, access: Transfer) -> Result<InUse, Errno> {
        loop {
            let file = self.borrow(fd)?;
            if !file.counts_for(access) {
                return Err(Errno::EBADF);
            }
            if let Some(file) = InUse::new(file) {
                return Ok(file);
            }
        }
    }

    /// Returns the file behind descriptor `fd` of the caller's table, for one more descriptor.
    ///
    /// # Errors
    /// EBADF if it is not open.
    pub fn opened(&self, fd: i32) -> Result<Opened, Errno> {
        loop {
            if let Some(file) = Opened::new(self.borrow(fd)?.counted()) {
                return Ok(file);
            }
        }
    }

    /// Returns the file behind descriptor `fd` of any table.
    ///
    /// # Errors
    /// EBADF if it is not open.
    pub fn get(&self, fd: i32) -> Result<StaticOrArc<OpenFile>, Errno> {
        let pin = pin();
        let _lock = self.room.lock();
        lending::get(&pin, self.slot(&pin, fd)?).ok_or(Errno::EBADF)
    }

    /// Puts `file` at the lowest free descriptor from `lowest` on and returns that.
    ///
    /// # Errors
    /// EMFILE, ENOMEM, EBADF if it was closed before.
    pub fn add(&self, file: StaticOrArc<OpenFile>, lowest: usize, close_on_exec: bool) -> Result<i32, Errno> {
        self.add_opened(Opened::new(file).ok_or(Errno::EBADF)?, lowest, close_on_exec)
    }

    /// Does the same with a file that is kept open.
    ///
    /// # Errors
    /// EMFILE, ENOMEM.
    pub fn add_opened(&self, file: Opened, lowest: usize, close_on_exec: bool) -> Result<i32, Errno> {
        Ok(self.reserve(lowest)?.fill(file, close_on_exec))
    }

    /// Puts `file` at exactly `fd`, and closes what is there.
    ///
    /// # Errors
    /// EBADF beyond the limit, EBUSY if another call has reserved the number, ENOMEM.
    pub fn put(&self, file: Opened, fd: usize, close_on_exec: bool) -> Result<i32, Errno> {
        if fd >= self.limit() {
            return Err(Errno::EBADF);
        }
        let replaced = self.unlocked(fd, |slot| match slot {
            Some(slot) => replace_unlocked(slot, file, close_on_exec),
            None => Err(file),
        });
        let mut file = match replaced {
            Ok(closed) => {
                // As on Linux, an error in writing the old file back is lost here.
                let _lost = self.release(closed, false);
                return Ok(fd as i32);
            }
            Err(file) => Some(file),
        };
        let closed = self.change(|writer| match writer.grown(fd)? {
            slot if slot.look() == Found::Reserved => Err(Errno::EBUSY),
            // A file that cannot be put there is released when the table is not locked any more.
            slot => Ok(file.take().and_then(|file| fill(slot, file, close_on_exec))),
        })?;
        // Lost here too.
        closed.into_iter().for_each(|closed| _ = self.release(closed, self.is_alone()));
        Ok(fd as i32)
    }

    /// Closes `fd`.
    ///
    /// # Errors
    /// EBADF. It is closed after any other one: those of [`OpenFile::write_back`].
    pub fn close(&self, fd: i32) -> Result<(), Errno> {
        if !is_open(self.slot(&pin(), fd)?) {
            return Err(Errno::EBADF);
        }
        if let Some(Ok(closed)) = self.unlocked(fd as usize, |slot| slot.map(Slot::take_unlocked)) {
            return self.release(closed.ok_or(Errno::EBADF)?, false);
        }
        let closed = self.change(|writer| {
            let slot = writer.slots().get(fd as usize).filter(|slot| is_open(slot));
            slot.and_then(Slot::take)
        });
        self.release(closed.ok_or(Errno::EBADF)?, self.is_alone())
    }

    /// Releases a file whose descriptor is closed: at once if the caller is `alone`.
    ///
    /// # Errors
    /// Those of [`OpenFile::write_back`].
    fn release(&self, closed: Closed, is_alone: bool) -> Result<(), Errno> {
        let written = closed.write_back();
        if self.has_locked.load(Ordering::Relaxed) {
            locks::order();
            locks::remove_all(closed.node(), &self.owner());
        }
        closed.tell_descriptor_closed();
        closed.leave();
        let has_locked = closed.has_locked() || closed.node().watched() != 0;
        closed.note_closed(!is_alone);
        lending::discard(closed, is_alone);
        if has_locked && !is_alone {
            // Its locks go with its last descriptor, and others may wait for them, or for the event of its
            // close. Slots that this table has left may keep the file too.
            epoch::free_removed();
        }
        written
    }

    /// Returns the owner of POSIX locks that it is.
    fn owner(&self) -> Owner {
        Owner { kind: Kind::Posix, address: core::ptr::from_ref(self).addr(), pid: 0 }
    }

    /// Returns the owner of POSIX locks that it is, for a call of process `pid` that takes or removes some.
    pub fn locker(&self, pid: u32) -> Owner {
        Owner { pid, ..self.owner() }
    }

    /// Notes that it is about to take a POSIX lock.
    pub fn note_locked(&self) {
        if !self.has_locked.load(Ordering::Relaxed) {
            self.has_locked.store(true, Ordering::Relaxed);
        }
    }

    /// Takes over the POSIX locks of `old`, which no task uses any more.
    pub fn take_locks_of(&self, old: &FdTable) {
        if old.has_locked.swap(false, Ordering::Relaxed) {
            self.note_locked();
            locks::hand_over(&old.owner(), &self.owner());
        }
    }

    /// Closes everything. The caller has left the table last.
    fn close_all(&self) {
        if self.has_locked.load(Ordering::Relaxed) {
            locks::remove_all_of(&self.owner());
            self.has_locked.store(false, Ordering::Relaxed);
        }
        // Shared slots are not copied only to be closed.
        if self.write(|_| false, |writer| writer.shared.is_some()) {
            return;
        }
        let mut next = self.next_open(0);
        while let Some(fd) = next {
            let _closed = self.close(fd as i32);
            next = self.next_open(fd + 1);
        }
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
        let next = |from: usize| self.next(from, is_marked);
        let mut from = next(0);
        if self.has_locked.load(Ordering::Relaxed) {
            let marked = core::iter::successors(from, |fd| next(fd + 1));
            let files = marked.filter_map(|fd| self.get(fd as i32).ok());
            files.for_each(|file| locks::remove_all(file.node(), &self.owner()));
        }
        if from.is_some() {
            // The copy leaves out the files that are closed next, so that they are not counted first.
            self.write(|slot| !is_marked(slot), |_| ());
        }
        while let Some(fd) = from {
            let _closed = self.close(fd as i32);
            from = next(fd + 1);
        }
    }

    /// Returns whether `fd` closes on exec.
    pub fn close_on_exec(&self, fd: i32) -> Result<bool, Errno> {
        match self.slot(&pin(), fd)?.look() {
            Found::Reference { marked } => Ok(marked),
            Found::Free | Found::Reserved => Err(Errno::EBADF),
        }
    }

    /// Sets or clears close-on-exec of `fd`.
    pub fn set_close_on_exec(&self, fd: i32, value: bool) -> Result<(), Errno> {
        if self.close_on_exec(fd)? == value {
            return Ok(());
        }
        self.change(|writer| match writer.slots().get(fd as usize) {
            Some(slot) if is_open(slot) => {
                slot.set_mark(value);
                Ok(())
            }
            _ => Err(Errno::EBADF),
        })
    }

    /// Returns the lowest open descriptor from `from` on.
    pub fn next_open(&self, from: usize) -> Option<usize> {
        self.next(from, is_open)
    }

    fn next(&self, from: usize, is: impl Fn(&Slot) -> bool) -> Option<usize> {
        let pin = pin();
        let _lock = self.room.lock();
        let slots = self.slots(&pin);
        (from..slots.len()).find(|&fd| slots.get(fd).is_some_and(&is))
    }
}

impl Drop for FdTable {
    fn drop(&mut self) {
        let pin = pin();
        self.slots(&pin).leave(&pin);
    }
}
