//! The slots of descriptors. A table has its own, or shares them with other tables until one of these changes
//! them.
//!
//! Threads read the slots without the table's lock (`rcu::Word`). The mark of a word is close-on-exec.
//!
//! Descriptors that follow one another lie in different cache lines, because threads use some while others
//! open and close the next. The first sixteen of a small table share no line:
//!
//! ```text
//!   line 0   [ 0 | 16 | 32 | ... | 112 ]
//!   line 1   [ 1 | 17 | 33 | ... | 113 ]
//!   ...
//!   line 15  [ 15 | 31 | 47 | ... | 127 ]
//! ```

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use abi::Errno;
use percore::Pinned;
use rcu::{Found, Removed, Word};

use crate::fs::open_file::{OpenFile, Opened};
use crate::mm::static_or_arc::StaticOrArc;
use crate::mm::{fallible, lending};

/// The slot of a number.
pub(super) type Slot = Word<StaticOrArc<OpenFile>>;

/// A file whose descriptor is closed, and which threads may still be using.
pub(super) type Closed = Removed<StaticOrArc<OpenFile>>;

/// The fewest cache lines that a table has.
const FEWEST: usize = 16;
/// Slots in a cache line.
const IN_LINE: usize = 8;

#[repr(align(64))]
struct Line([Slot; IN_LINE]);

/// The slots, by descriptor.
pub(super) struct Slots {
    /// Their number is a power of two.
    lines: Box<[Line]>,
    /// No descriptor from this one on was ever used. Written with the lock of the only table that has them.
    /// Relaxed: read with the lock of a table that has them.
    end: AtomicUsize,
    /// The exact number of tables that have them. Their files are closed when the last one has left.
    tables: AtomicUsize,
    /// Set if slots were frozen. Relaxed: accessed with the lock of a table that has them.
    is_frozen: AtomicBool,
    /// Set if threads of a table that has left may still be reading them. Relaxed: `tables` orders it.
    is_read: AtomicBool,
}

impl Slots {
    /// Makes at least `len` free slots, for one table.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(len: usize) -> Result<Arc<Self>, Errno> {
        let count = len.div_ceil(IN_LINE).next_power_of_two().max(FEWEST);
        let mut lines = fallible::empty(count)?;
        lines.resize_with(count, || Line([const { Slot::new() }; IN_LINE]));
        let lines = lines.into_boxed_slice();
        let (end, tables) = (AtomicUsize::new(0), AtomicUsize::new(1));
        let (is_frozen, is_read) = (AtomicBool::new(false), AtomicBool::new(false));
        fallible::arc(Self { lines, end, tables, is_frozen, is_read })
    }

    /// Returns the slot of `fd`, or `None` if the table is smaller.
    #[inline(always)]
    pub fn get(&self, fd: usize) -> Option<&Slot> {
        let count = self.lines.len();
        let line = self.lines.get(fd & count.wrapping_sub(1))?;
        line.0.get(fd >> count.trailing_zeros())
    }

    /// Returns the slot of `fd`, which may be used from now on, or `None` if the table is smaller. Called
    /// with the lock of the only table that has them.
    pub fn begin(&self, fd: usize) -> Option<&Slot> {
        let slot = self.get(fd)?;
        if fd >= self.end.load(Ordering::Relaxed) {
            self.end.store(fd + 1, Ordering::Relaxed);
        }
        Some(slot)
    }

    /// Returns the number of descriptors up to the last one that was ever used.
    pub fn len(&self) -> usize {
        self.end.load(Ordering::Relaxed)
    }

    /// Returns the number of descriptors up to the last one in use.
    pub fn used(&self) -> usize {
        let is_used = |&fd: &usize| self.get(fd).is_some_and(|slot| slot.look() != Found::Free);
        (0..self.len()).rev().find(is_used).map_or(0, |last| last + 1)
    }

    /// Returns the slots of all descriptors that were ever used.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        (0..self.len()).filter_map(|fd| self.get(fd))
    }

    /// Returns whether one table has them alone, and no thread of another reads them. Called with the lock of
    /// a table that has them, so that no other table can begin to share them if it is true.
    pub fn is_exclusive(&self) -> bool {
        // Acquire: pairs with the Release in `leave`. The other tables are done with them.
        self.tables.load(Ordering::Acquire) == 1 && !self.is_read.load(Ordering::Relaxed)
    }

    /// Notes that other threads of the caller's table, which is about to leave, may be reading them.
    pub fn note_readers(&self) {
        self.is_read.store(true, Ordering::Relaxed);
    }

    /// Counts one more table, which gets this reference. The caller's table has them.
    pub fn shared(slots: Arc<Self>) -> Arc<Self> {
        // Relaxed: another table's count keeps their files.
        slots.tables.fetch_add(1, Ordering::Relaxed);
        slots
    }

    /// Counts one table less, and closes the files if it was the last. Their memory goes with the slots'.
    pub fn leave(&self, pin: &Pinned) {
        // AcqRel: all that the tables did with the files comes before their close.
        if self.tables.fetch_sub(1, Ordering::AcqRel) == 1 {
            for file in self.iter().filter_map(|slot| lending::peek(pin, slot)) {
                file.note_closed(self.is_read.load(Ordering::Relaxed));
                file.leave();
            }
        }
    }

    /// Copies the files of `slots` that satisfy `stays` into these slots, which are free, not fewer, and not
    /// published.
    pub fn copy_from(&self, pin: &Pinned, slots: &Self, stays: impl Fn(&Slot) -> bool) {
        for (fd, from) in slots.iter().enumerate().filter(|(_, from)| stays(from)) {
            if let Some(file) = lending::get(pin, from).and_then(Opened::new) {
                let _nothing = self.begin(fd).and_then(|to| fill(to, file, is_marked(from)));
            }
        }
    }

    /// Freezes all slots that are not free, so that calls without the table's lock change none, and returns
    /// whether one is reserved.
    pub fn freeze(&self) -> bool {
        self.is_frozen.store(true, Ordering::Relaxed);
        self.iter().fold(false, |reserved, slot| reserved | (slot.freeze() == Found::Reserved))
    }

    /// Ends that.
    pub fn thaw(&self) {
        if self.is_frozen.load(Ordering::Relaxed) {
            self.iter().for_each(Slot::thaw);
            self.is_frozen.store(false, Ordering::Relaxed);
        }
    }

    /// Moves all numbers to `larger`, whose slots are free and not published. These stay frozen. The files
    /// stay in memory for threads that still read these slots, but `larger` keeps them open now.
    pub fn move_to(&self, pin: &Pinned, larger: &Self) {
        for (fd, from) in self.iter().enumerate() {
            let Some(to) = larger.begin(fd) else { continue };
            match from.freeze() {
                Found::Free => {}
                Found::Reserved => _ = to.reserve(),
                Found::Reference { marked } => {
                    let _nothing = lending::get(pin, from).and_then(|file| to.put(file, marked));
                }
            }
        }
    }
}

/// Returns whether the slot has a file.
pub(super) fn is_open(slot: &Slot) -> bool {
    matches!(slot.look(), Found::Reference { .. })
}

/// Returns whether the slot has a file that closes on exec.
pub(super) fn is_marked(slot: &Slot) -> bool {
    slot.look() == Found::Reference { marked: true }
}

/// Replaces the file in a slot without the table's lock, and returns the one that was there.
///
/// # Errors
/// Returns `file` if the slot has none, or is frozen.
pub(super) fn replace_unlocked(slot: &Slot, file: Opened, close_on_exec: bool) -> Result<Closed, Opened> {
    put_unlocked(file, |file| slot.replace_unlocked(file, close_on_exec))
}

/// Puts a file into a slot that the caller has reserved, without the table's lock.
///
/// # Errors
/// Returns `file` if the slot is frozen.
pub(super) fn fill_unlocked(slot: &Slot, file: Opened, close_on_exec: bool) -> Result<(), Opened> {
    put_unlocked(file, |file| slot.fill_unlocked(file, close_on_exec))
}

fn put_unlocked<R>(
    mut file: Opened,
    put: impl FnOnce(StaticOrArc<OpenFile>) -> Result<R, StaticOrArc<OpenFile>>,
) -> Result<R, Opened> {
    match file.take_kept() {
        Some(kept) => put(kept).map_err(Opened::kept),
        None => Err(file),
    }
}

/// Puts a file into a slot and returns the one that was there.
pub(super) fn fill(slot: &Slot, file: Opened, close_on_exec: bool) -> Option<Closed> {
    slot.put(file.take()?, close_on_exec)
}
