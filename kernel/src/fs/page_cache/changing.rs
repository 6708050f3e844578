//! Who changes a file's length, or makes holes, and who waits for that.
//!
//! The lock `changing` is held for a look and a few words, or one page. What takes long goes on without it, and is noted
//! under it:
//!
//! | under way | with others of its kind? | who waits |
//! |---|---|---|
//! | *removal*: a truncation, or a hole being punched | yes | who raises the end, who reserves, who seals |
//! | *reservation* of room, beyond the end too | no | they, and who removes |
//!
//! ```text
//!   truncate lock   end lowered, removals + 1   unlock   pages go, translations go   lock   removals - 1   unlock
//!   extend   lock   removals > 0   unlock   lock   removals > 0   unlock ................................   lock   end raised
//! ```
//! 1. Nothing beyond the end is taken in while a removal may still take it out, or take its translations back. So what is
//!    written after the end was raised stays.
//! 2. While room is reserved the end stays where it is, and so do the pages beyond it. So if there is room for all, all is
//!    there when the end is raised.
//! 3. A seal comes after every removal that it forbids.
//! 4. Who removes or reserves waits for none of the file's locks with anything held, and does it in pieces: so the others
//!    wait for a bounded time, and give way meanwhile. A write that has its file's position locked lets go of that first.
//!
//! All of this is read and written under the lock, which orders it.

use core::sync::atomic::Ordering;

use abi::Errno;
use percore::pin;
use sync::SpinGuard;

use super::length::reach;
use super::seals::Seals;
use super::{PAGE, PageCache, pages};
use crate::sched;

/// What lies under the lock.
pub struct Changing {
    pub seals: Seals,
    removals: u32,
    is_reserving: bool,
}

impl Changing {
    /// Nothing is under way.
    pub const fn new(seals: Seals) -> Self {
        Self { seals, removals: 0, is_reserving: false }
    }

    /// Whether nothing is under way.
    pub fn is_calm(&self) -> bool {
        self.removals == 0 && self.lets_remove()
    }

    /// Whether pages may go.
    pub fn lets_remove(&self) -> bool {
        !self.is_reserving
    }
}

/// A removal under way, until it is dropped.
pub struct Removal<'f>(&'f PageCache);

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        self.0.changing.lock().removals -= 1;
    }
}

impl PageCache {
    /// Locks the file if that `suits` now.
    ///
    /// # Errors
    /// EBUSY otherwise.
    pub(super) fn lock_if(
        &self,
        suits: impl Fn(&Changing) -> bool,
    ) -> Result<SpinGuard<'_, Changing>, Errno> {
        let state = self.changing.lock();
        if suits(&state) { Ok(state) } else { Err(Errno::EBUSY) }
    }

    /// Locks the file, at a time that `suits`. The caller holds no lock: others run meanwhile, who may be those that it waits
    /// for.
    pub(super) fn lock_when(&self, suits: impl Fn(&Changing) -> bool) -> SpinGuard<'_, Changing> {
        loop {
            match self.lock_if(&suits) {
                Ok(state) => return state,
                Err(_) => sched::give_way(),
            }
        }
    }

    /// Goes on without the lock, which was taken when pages may go.
    pub(super) fn removal(&self, mut state: SpinGuard<'_, Changing>) -> Removal<'_> {
        state.removals += 1;
        Removal(self)
    }

    /// Gives every page of `len` bytes from `at` on a frame, and lets the file reach there. If there is no room for all, those
    /// beyond the end go again: they are nobody's to give back later.
    pub fn reserve(&self, at: u64, len: u64) -> Result<(), Errno> {
        let end = reach(at, len)?;
        let mut state = self.lock_when(Changing::is_calm);
        let old = self.len();
        state.seals.allow_len(old, end.max(old))?;
        if end > old {
            self.clear_rubbish(old, end, end);
        }
        state.is_reserving = true;
        drop(state);
        let filled = self.fill(at / PAGE as u64, pages(end), pages(old));
        let mut state = self.changing.lock();
        state.is_reserving = false;
        filled?;
        self.len.store(end.max(old), Ordering::Release);
        Ok(())
    }

    /// Gives the pages from `first` up to `end` frames; or, if there is no room for all, none of those from `own` on.
    fn fill(&self, first: u64, end: u64, own: u64) -> Result<(), Errno> {
        let filled = (first..end).try_for_each(|page| match sched::pause() {
            true => self.get_or_make(&pin(), page).map(drop),
            false => Err(Errno::EINTR),
        });
        if filled.is_err() {
            self.drop_pages(own, end.max(own));
        }
        filled
    }
}
