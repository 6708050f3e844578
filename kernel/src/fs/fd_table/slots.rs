//! The slots of descriptors. A table has its own, or shares them with other tables until one of these changes
//! them.
//!
//! Threads read the slots without the table's lock (`rcu::Word`). The mark of a word is close-on-exec.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Deref;
use core::sync::atomic::{AtomicUsize, Ordering};

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

/// The fewest slots that are allocated: standard input, output and error, and a file.
const FEWEST: usize = 4;

/// The slots, by descriptor.
pub(super) struct Slots {
    words: Box<[Slot]>,
    /// The exact number of tables that have them. Their files are closed when the last one has left.
    tables: AtomicUsize,
}

impl Slots {
    /// Makes at least `len` free slots, for one table.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(len: usize) -> Result<Arc<Self>, Errno> {
        let len = len.next_power_of_two().max(FEWEST);
        let mut words = fallible::empty(len)?;
        words.resize_with(len, Slot::new);
        fallible::arc(Self { words: words.into_boxed_slice(), tables: AtomicUsize::new(1) })
    }

    /// Returns the slots up to the last one in use.
    pub fn used(&self) -> &[Slot] {
        let is_used = |slot: &Slot| slot.look() != Found::Free;
        self.split_at(self.iter().rposition(is_used).map_or(0, |last| last + 1)).0
    }

    /// Returns whether one table has them alone. Called with the lock of a table that has them, so that no
    /// other table can begin to share them if it is true.
    pub fn is_exclusive(&self) -> bool {
        // Acquire: pairs with the Release in `leave`. The other tables are done with them.
        self.tables.load(Ordering::Acquire) == 1
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
            self.iter().filter_map(|slot| lending::peek(pin, slot)).for_each(OpenFile::leave);
        }
    }

    /// Copies the files of `slots` that satisfy `stays` into these slots, which are free and not published.
    pub fn copy_from(&self, pin: &Pinned, slots: &[Slot], stays: impl Fn(&Slot) -> bool) {
        for (from, to) in slots.iter().zip(self.iter()).filter(|(from, _)| stays(from)) {
            if let Some(file) = lending::get(pin, from).and_then(Opened::new) {
                let _nothing = fill(to, file, is_marked(from));
            }
        }
    }

    /// Moves all numbers to `larger`, whose slots are free and not published. The files stay in memory for
    /// threads that still read these slots, but `larger` keeps them open now.
    pub fn move_to(&self, pin: &Pinned, larger: &Self) {
        for (from, to) in self.iter().zip(larger.iter()) {
            match from.look() {
                Found::Free => {}
                Found::Reserved => _ = to.reserve(),
                Found::Reference { marked } => {
                    let _nothing = lending::get(pin, from).and_then(|file| to.put(file, marked));
                }
            }
        }
    }
}

impl Deref for Slots {
    type Target = [Slot];
    #[inline(always)]
    fn deref(&self) -> &[Slot] {
        &self.words
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

/// Puts a file into a slot and returns the one that was there.
pub(super) fn fill(slot: &Slot, file: Opened, close_on_exec: bool) -> Option<Closed> {
    slot.put(file.take()?, close_on_exec)
}
