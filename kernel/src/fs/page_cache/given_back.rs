//! Pages that a file gives back because the file under it has the same bytes by now.

use core::sync::atomic::Ordering;

use super::frames::PIECE;
use super::{Kind, PageCache};
use crate::mm::page_tree;
use crate::sched;

impl PageCache {
    /// Calls `f` with `changing` locked.
    pub fn while_locked<R>(&self, f: impl FnOnce() -> R) -> R {
        let _state = self.changing.lock();
        f()
    }

    /// Gives the pages back of a file that begins as another one, which has all its bytes by now. It goes on
    /// as long as `is_same` says so with `changing` locked, under which all changes of such a file are made.
    /// Returns whether there were any pages. The caller holds no lock.
    ///
    /// A page that is gone shows the other file's bytes. So the whole file is covered first, and then pages
    /// may go one after the other.
    pub fn give_back(&self, is_same: impl Fn() -> bool) -> bool {
        let Kind::Over(over) = &self.kind else { return false };
        let is_covered = {
            let state = self.changing.lock();
            let is_covered = state.is_idle() && is_same() && over.under.len() == self.len();
            if is_covered {
                over.bytes.store(self.len(), Ordering::Relaxed);
            }
            is_covered
        };
        let (mut gave, mut from) = (false, 0);
        while let Some(first) = self.first_page(from).filter(|_| is_covered) {
            let to = self.pages.extent(first..page_tree::END, PIECE);
            let state = self.changing.lock();
            if !state.is_idle() || !is_same() {
                break;
            }
            gave |= self.drop_clean(first..to) > 0;
            // A fault that had copied a page before puts it there. The first time has waited for its end.
            self.drop_clean(first..to);
            drop(state);
            from = to;
            sched::pause();
        }
        gave
    }
}
