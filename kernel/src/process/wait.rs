//! Waiting for children.

use alloc::sync::Arc;

use abi::Errno;
use abi::signal::SIGCHLD;
use sync::atomic::Ordering;

use super::parent::State;
use super::stop::News;
use super::usage::Usage;
use super::{Ending, Process};

/// Whom to wait for.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// Any child.
    Anybody,
    /// The child with this number.
    Process(u32),
    /// A child of this group.
    Group(u32),
}

/// Children by what they tell their parent when they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SIGCHLD.
    Usual,
    /// Anything else.
    Clone,
    /// Either.
    Any,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Whom.
    pub who: Who,
    /// Which kind of them.
    pub kind: Kind,
    /// Whether for those that end,
    pub ended: bool,
    /// stop,
    pub stopped: bool,
    /// or go on.
    pub continued: bool,
    /// Whether the child is left as it is.
    pub stay: bool,
}

/// What was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The child.
    pub pid: u32,
    /// What it did.
    pub state: State,
    /// What it, and whom it waited for, used.
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
            Who::Anybody => true,
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
    /// Waits for a child, or, unless it `may_wait`, only looks.
    ///
    /// # Errors
    /// ECHILD if there is none to wait for, EINTR.
    pub fn wait_for(&self, wanted: &Wanted, may_wait: bool) -> Result<Option<Found>, Errno> {
        match self.look_for(wanted) {
            Some(found) => found.map(Some),
            None if may_wait => self.relations.changed.wait_until(|| self.look_for(wanted))?.map(Some),
            None => Ok(None),
        }
    }

    /// A child that did what is wanted; ECHILD if there is none that ever can. Of threads that look at the same time
    /// one gets it.
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

    /// Whether it was ours to take.
    fn take(&self, child: &Process, found: &Found, wanted: &Wanted) -> bool {
        wanted.stay || !matches!(found.state, State::Ended(_)) || self.reap(child)
    }
}

fn found(child: &Arc<Process>, wanted: &Wanted) -> Option<(Arc<Process>, Found)> {
    let state = child.state(|state| wanted.wants(state), wanted.stay)?;
    Some((child.clone(), Found { pid: child.pid(), state, usage: child.whole_usage() }))
}

impl Ending {
    /// As `wait4` tells it.
    pub fn wait_status(self) -> u32 {
        match self {
            Self::Status(status) => u32::from(status) << 8,
            Self::Signal(signal) => signal,
        }
    }
}

impl State {
    /// As `wait4` tells it.
    pub fn wait_status(self) -> u32 {
        match self {
            Self::Ended(ending) => ending.wait_status(),
            Self::Changed(News::Stopped(signal)) => signal << 8 | 0x7f,
            Self::Changed(News::Continued) => 0xffff,
        }
    }
}
