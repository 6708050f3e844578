//! Changes of a file's length, holes, and reservations of room, and how they wait for each other.
//!
//! The lock `changing` is held for a look and a few words, or one page. Long work runs without it, and is
//! noted under it:
//!
//! | under way | with others of its kind? | operations that wait for it |
//! |---|---|---|
//! | *removal*: a truncation, or punching a hole | yes | extending, reserving, sealing |
//! | *reservation* of room, also beyond the end | no | the same, and removals |
//!
//! ```text
//!   truncate lock   end lowered, removals + 1   unlock   pages go, translations go   lock   removals - 1   unlock
//!   extend   lock   removals > 0   unlock   lock   removals > 0   unlock ................................   lock   end raised
//! ```
//! 1. The end is not raised while a removal may still remove the pages there, or invalidate their
//!    translations. So bytes that are written after the end was raised stay.
//! 2. While room is reserved, the end and the pages beyond it do not change. So if there is room for all
//!    pages, they are all there when the end is raised.
//! 3. A seal comes after every removal that it forbids.
//! 4. Removals and reservations wait for no lock of the file while they hold another lock, and work in
//!    pieces. So the operations that wait for them wait for a bounded time, and let other tasks run
//!    meanwhile. A write that holds the lock of its file's position releases that first.
//!
//! Everything here is read and written under the lock, which orders it.

use abi::Errno;
use percore::pin;
use sync::SpinGuard;

use super::length::end_of;
use super::seals::Seals;
use super::{PAGE, PageCache, pages};
use crate::sched;

/// The state under the lock.
pub struct Changing {
    pub seals: Seals,
    removals: u32,
    is_reserving: bool,
}

impl Changing {
    /// Creates a state in which no change is under way.
    pub const fn new(seals: Seals) -> Self {
        Self { seals, removals: 0, is_reserving: false }
    }

    /// Returns whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.removals == 0 && self.allows_removal()
    }

    /// Returns whether a removal may begin.
    pub fn allows_removal(&self) -> bool {
        !self.is_reserving
    }
}

/// A removal under way. It ends when this is dropped.
pub struct Removal<'f>(&'f PageCache);

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        self.0.changing.lock().removals -= 1;
    }
}

impl PageCache {
    /// Locks the file if its state satisfies `condition`.
    ///
    /// # Errors
    /// EBUSY otherwise.
    pub(super) fn lock_if(
        &self,
        condition: impl Fn(&Changing) -> bool,
    ) -> Result<SpinGuard<'_, Changing>, Errno> {
        let state = self.changing.lock();
        if condition(&state) { Ok(state) } else { Err(Errno::EBUSY) }
    }

    /// Locks the file once its state satisfies `condition`. The caller holds no lock, because the tasks that
    /// it waits for run meanwhile.
    pub(super) fn lock_when(&self, condition: impl Fn(&Changing) -> bool) -> SpinGuard<'_, Changing> {
        loop {
            match self.lock_if(&condition) {
                Ok(state) => return state,
                Err(_) => sched::give_way(),
            }
        }
    }

    /// Begins a removal and releases the lock. The state allowed it.
    pub(super) fn removal(&self, mut state: SpinGuard<'_, Changing>) -> Removal<'_> {
        state.removals += 1;
        Removal(self)
    }

    /// Gives every page of `len` bytes from `at` on a frame, and extends the file to there if it is shorter.
    /// If there is no room for all, the new pages beyond the end are dropped again, because nothing would
    /// free them later.
    ///
    /// # Errors
    /// EFBIG, EPERM if a seal forbids it, ENOSPC, ENOMEM, EINTR if the task is killed.
    pub fn reserve(&self, at: u64, len: u64) -> Result<(), Errno> {
        let end = end_of(at, len)?;
        let mut state = self.lock_when(Changing::is_idle);
        let old = self.len();
        state.seals.allow_len(old, end.max(old))?;
        if end > old {
            self.clear_beyond_end(old, end, end);
        }
        state.is_reserving = true;
        drop(state);
        let filled = self.fill(at / PAGE as u64, pages(end), pages(old));
        let mut state = self.changing.lock();
        state.is_reserving = false;
        filled?;
        self.put_end(end.max(old));
        Ok(())
    }

    /// Gives the pages from `first` up to `end` frames. If there is no room for all, drops those from `own`
    /// on.
    fn fill(&self, first: u64, end: u64, own: u64) -> Result<(), Errno> {
        let filled = (first..end).try_for_each(|page| match sched::pause() {
            true => self.get_or_make(&pin(), page).map(drop),
            false => Err(Errno::EINTR),
        });
        if filled.is_err() {
            self.drop_in_pieces(own, end.max(own));
        }
        filled
    }
}
