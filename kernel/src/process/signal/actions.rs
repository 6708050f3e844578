//! What is done about each signal. Threads share it, and processes may.

use alloc::sync::Arc;
use core::mem::replace;

use abi::Errno;
use abi::process::{CLONE_CLEAR_SIGHAND, CLONE_SIGHAND};
use abi::signal::{NSIG, SIG_DFL, SIG_IGN, Sigaction};
use sync::SpinLock;

use super::{Pending, ProcessSignals};
use crate::fs::fallible;

type Table = [Sigaction; NSIG as usize];

/// One action for each signal.
pub struct Actions(SpinLock<Table>);

/// Where that of `signal` is, from 1 on.
pub(super) fn place(signal: u32) -> usize {
    (signal as usize).wrapping_sub(1)
}

impl Actions {
    fn with(table: Table) -> Result<Arc<Self>, Errno> {
        fallible::arc(Self(SpinLock::new(table)))
    }

    /// That of `signal`.
    pub fn get(&self, signal: u32) -> Sigaction {
        self.0.lock().get(place(signal)).copied().unwrap_or_default()
    }

    /// Sets that of `signal`; what it was.
    pub fn replace(&self, signal: u32, action: Sigaction) -> Sigaction {
        self.0.lock().get_mut(place(signal)).map_or_else(Sigaction::default, |old| replace(old, action))
    }

    fn table(&self) -> Table {
        *self.0.lock()
    }

    /// The same without handlers.
    fn unhandled(&self) -> Result<Arc<Self>, Errno> {
        let mut table = self.table();
        for action in &mut table {
            let handler = if action.handler == SIG_IGN { SIG_IGN } else { SIG_DFL };
            *action = Sigaction { handler, ..Sigaction::default() };
        }
        Self::with(table)
    }
}

impl ProcessSignals {
    /// The default for all; nothing waits.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self::of(Actions::with([Sigaction::default(); NSIG as usize])?))
    }

    fn of(actions: Arc<Actions>) -> Self {
        Self { actions: SpinLock::new(actions), pending: Pending::new() }
    }

    /// Those of a child that is made with `flags`.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn inherit(&self, flags: u64) -> Result<Self, Errno> {
        let actions = self.actions.lock().clone();
        Ok(Self::of(match () {
            () if flags & CLONE_SIGHAND != 0 => actions,
            () if flags & CLONE_CLEAR_SIGHAND != 0 => actions.unhandled()?,
            () => Actions::with(actions.table())?,
        }))
    }

    /// What another program begins with: what was handled has its default again.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn for_new_program(&self) -> Result<Arc<Actions>, Errno> {
        self.actions.lock().clone().unhandled()
    }

    /// From now on `actions` are what is done.
    pub fn replace_actions(&self, actions: Arc<Actions>) {
        let _old = replace(&mut *self.actions.lock(), actions);
    }
}
