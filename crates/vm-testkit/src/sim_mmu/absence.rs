//! Cores that do not run the space.

use std::sync::Mutex;

use percore::Pinned;
use vm::{PageRange, Presence, Tables};

use super::SimMmu;
use crate::cache::Cache;

impl SimMmu {
    /// This core runs something else from now on, and its TLB is empty.
    pub fn leave(&self, pin: &Pinned) {
        let frames = &self.machine.frames;
        self.state.tlbs.mine(pin).lock().unwrap().empty(frames);
        if self.is_here(pin) {
            if let Some(table) = self.own_table(pin) {
                table.lock().unwrap().sleep(frames);
            }
            self.state.presence.mine(pin).leave();
        }
    }

    /// This core runs the space, if it did not.
    pub fn enter(&self, pin: &Pinned) {
        if !self.is_here(pin) {
            self.forget(pin, self.state.presence.mine(pin).enter());
            if let Some(table) = self.own_table(pin) {
                table.lock().unwrap().wake(&self.machine.frames);
            }
        }
    }

    /// Returns the table that only this core walks, if there is one.
    fn own_table(&self, pin: &Pinned) -> Option<&Mutex<Cache>> {
        (self.state.kind != Tables::Shared).then(|| self.state.tables.mine(pin))
    }

    fn is_here(&self, pin: &Pinned) -> bool {
        self.state.presence.mine(pin).is_here()
    }

    /// Clears what the core missed in its table.
    fn forget(&self, pin: &Pinned, missed: Option<PageRange>) {
        missed.into_iter().for_each(|pages| self.state.clear(&self.machine.frames, pin.core(), pages));
    }

    /// Before this core fills in its table.
    pub(super) fn catch_up(&self, pin: &Pinned) {
        if !self.is_here(pin) {
            self.forget(pin, self.state.presence.mine(pin).catch_up());
        }
    }
}

/// Returns a core that runs the space.
pub(super) fn here() -> Presence {
    let presence = Presence::new();
    presence.enter();
    presence
}
