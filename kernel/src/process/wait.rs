//! Waiting for children.

use alloc::sync::Arc;

use abi::Errno;
use abi::signal::SIGCHLD;
use sync::atomic::Ordering;

use super::parent::State;
use super::stop::News;
use super::usage::Usage;
use super::{Ending, Process};

/// The children to wait for.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// Any child.
    Any,
    /// The child with this number.
    Process(u32),
    /// A child of this group.
    Group(u32),
}

/// Kinds of children, by the signal that they send when they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SIGCHLD.
    Usual,
    /// Any other signal, or none.
    Clone,
    /// Either.
    Any,
}

/// The condition that a call waits for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The children.
    pub who: Who,
    /// Their kind.
    pub kind: Kind,
    /// Set to wait for children that end.
    pub ended: bool,
    /// Set to wait for children that stop.
    pub stopped: bool,
    /// Set to wait for children that continue.
    pub continued: bool,
    /// Set to leave the child unreaped and its news unread (WNOWAIT).
    pub stay: bool,
}

/// A child that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its number.
    pub pid: u32,
    /// The change of its state.
    pub state: State,
    /// The resources that it and the children that it waited for used.
    pub usage: Usage,
}

impl Wanted {
    fn concerns(&self, child: &Process) -> bool {
        let is_usual = child.relations.exit_signal.load(Ordering::Relaxed) == SIGCHLD;
        let kind = match self.kind {
            Kind::Usual => is_usual,
            Kind::Clone => !is_usual,
            Kind::Any => true,
        };
        kind && match self.who {
            Who::Any => true,
            Who::Process(pid) => child.pid() == pid,
            Who::Group(group) => child.group() == group,
        }
    }

    fn wants(&self, state: State) -> bool {
        match state {
            State::Ended(_) => self.ended,
            State::Changed(News::Stopped(_)) => self.stopped,
            State::Changed(News::Continued) => self.continued,
        }
    }
}

impl Process {
    /// Waits for a child. Only looks if `may_wait` is false, and returns `None` if there is none.
    ///
    /// # Errors
    /// ECHILD if there is no child that it can wait for, EINTR.
    pub fn wait_for(&self, wanted: &Wanted, may_wait: bool) -> Result<Option<Found>, Errno> {
        match self.look_for(wanted) {
            Some(found) => found.map(Some),
            None if may_wait => self.relations.changed.wait_until(|| self.look_for(wanted))?.map(Some),
            None => Ok(None),
        }
    }

    /// Returns a child with a wanted change of state, or `None` if there is none yet. If several threads look
    /// at the same time, one gets it.
    ///
    /// # Errors
    /// ECHILD if there is no child that can have such a change.
    fn look_for(&self, wanted: &Wanted) -> Option<Result<Found, Errno>> {
        loop {
            let mut is_parent = false;
            let found = self.find_child(|child| {
                is_parent |= wanted.concerns(child);
                wanted.concerns(child).then(|| found(child, wanted)).flatten()
            });
            match found {
                Some((child, found)) if self.take(&child, &found, wanted) => return Some(Ok(found)),
                Some(_) => {}
                None if is_parent => return None,
                None => return Some(Err(Errno::ECHILD)),
            }
        }
    }

    /// Takes `child`, and returns whether no other thread has reaped it before.
    fn take(&self, child: &Process, found: &Found, wanted: &Wanted) -> bool {
        wanted.stay || !matches!(found.state, State::Ended(_)) || self.reap(child)
    }
}

fn found(child: &Arc<Process>, wanted: &Wanted) -> Option<(Arc<Process>, Found)> {
    let state = child.state(|state| wanted.wants(state), wanted.stay)?;
    Some((child.clone(), Found { pid: child.pid(), state, usage: child.whole_usage() }))
}

impl Ending {
    /// Returns it as `wait4` encodes it.
    pub fn wait_status(self) -> u32 {
        match self {
            Self::Status(status) => u32::from(status) << 8,
            Self::Signal(signal) => signal,
        }
    }
}

impl State {
    /// Returns it as `wait4` encodes it.
    pub fn wait_status(self) -> u32 {
        match self {
            Self::Ended(ending) => ending.wait_status(),
            Self::Changed(News::Stopped(signal)) => signal << 8 | 0x7f,
            Self::Changed(News::Continued) => 0xffff,
        }
    }
}
