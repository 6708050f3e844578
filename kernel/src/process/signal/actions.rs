//! The actions for each signal. Threads share them, and so do processes after `clone` with CLONE_SIGHAND.

use alloc::sync::Arc;
use core::mem::replace;

use abi::Errno;
use abi::process::{CLONE_CLEAR_SIGHAND, CLONE_SIGHAND};
use abi::signal::{NSIG, SIG_DFL, SIG_IGN, Sigaction};
use sync::atomic::{AtomicBool, AtomicU64};
use sync::{CachePadded, SpinLock};

use super::{Pending, ProcessSignals};
use crate::mm::fallible;

type Table = [Sigaction; NSIG as usize];

/// One action for each signal.
pub struct Actions(SpinLock<Table>);

/// Returns the index of `signal`, which counts from 1.
pub(super) fn place(signal: u32) -> usize {
    (signal as usize).wrapping_sub(1)
}

impl Actions {
    fn with(table: Table) -> Result<Arc<Self>, Errno> {
        fallible::arc(Self(SpinLock::new(table)))
    }

    /// Returns the action for `signal`.
    pub fn get(&self, signal: u32) -> Sigaction {
        self.0.lock().get(place(signal)).copied().unwrap_or_default()
    }

    /// Sets the action for `signal` and returns the old one.
    pub fn replace(&self, signal: u32, action: Sigaction) -> Sigaction {
        self.0.lock().get_mut(place(signal)).map_or_else(Sigaction::default, |old| replace(old, action))
    }

    fn table(&self) -> Table {
        *self.0.lock()
    }

    /// Returns a copy without handlers.
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
    /// Creates the default for all signals, with none pending.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self::of(Actions::with([Sigaction::default(); NSIG as usize])?))
    }

    fn of(actions: Arc<Actions>) -> Self {
        Self {
            actions: SpinLock::new(actions),
            pending: CachePadded::new(Pending::new()),
            are_polled: AtomicBool::new(false),
            added: AtomicU64::new(0),
        }
    }

    /// Returns the actions of a child that is made with `flags`.
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

    /// Returns the actions of another program that this process will run: handled signals have their default
    /// again.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn for_new_program(&self) -> Result<Arc<Actions>, Errno> {
        self.actions.lock().clone().unhandled()
    }

    /// Replaces the actions.
    pub fn replace_actions(&self, actions: Arc<Actions>) {
        let _old = replace(&mut *self.actions.lock(), actions);
    }
}
