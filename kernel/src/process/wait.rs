//! Waiting for children.

use alloc::sync::Arc;

use abi::Errno;
use abi::signal::SIGCHLD;
use sync::atomic::Ordering;

use super::parent::State;
use super::ptrace::Tracee;
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
    /// Its real user.
    pub user: u32,
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
            State::Traced(_) => true,
        }
    }

    /// Returns whether it is one of the children to wait for. A tracee is of any kind.
    fn concerns_tracee(&self, tracee: &Tracee) -> bool {
        match self.who {
            Who::Any => true,
            Who::Process(tid) => tracee.tid() == tid,
            Who::Group(group) => tracee.process().is_some_and(|process| process.group() == group),
        }
    }
}

/// A child or tracee that was found.
enum Source {
    Child(Arc<Process>),
    Tracee(Arc<Tracee>),
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
            let (mut is_parent, mut is_tracer) = (false, false);
            let found = self.find_child_or_tracee(
                |child| {
                    is_parent |= wanted.concerns(child);
                    wanted.concerns(child).then(|| found(child, wanted)).flatten()
                },
                |tracee| {
                    is_tracer |= wanted.concerns_tracee(tracee);
                    wanted.concerns_tracee(tracee).then(|| found_tracee(tracee, wanted)).flatten()
                },
            );
            match found {
                Some((source, found)) if self.take(&source, &found, wanted) => return Some(Ok(found)),
                Some(_) => {}
                None if is_parent || is_tracer => return None,
                None => return Some(Err(Errno::ECHILD)),
            }
        }
    }

    /// Takes what was found, and returns whether no other thread has reaped it before.
    fn take(&self, source: &Source, found: &Found, wanted: &Wanted) -> bool {
        if wanted.stay || !matches!(found.state, State::Ended(_)) {
            return true;
        }
        match source {
            Source::Child(child) => self.reap(child),
            Source::Tracee(tracee) => {
                let is_mine = self.remove_tracee(tracee);
                if is_mine {
                    tracee.release(0);
                }
                is_mine
            }
        }
    }
}

fn found(child: &Arc<Process>, wanted: &Wanted) -> Option<(Source, Found)> {
    let state = child.state(|state| wanted.wants(state), wanted.stay)?;
    let found = Found { pid: child.pid(), user: child.real_user(), state, usage: child.whole_usage() };
    Some((Source::Child(child.clone()), found))
}

fn found_tracee(tracee: &Arc<Tracee>, wanted: &Wanted) -> Option<(Source, Found)> {
    let state = tracee.news(wanted.ended, wanted.stay)?;
    let usage = tracee.process().map(|process| process.whole_usage()).unwrap_or_default();
    let found = Found { pid: tracee.tid(), user: tracee.real_user(), state, usage };
    Some((Source::Tracee(tracee.clone()), found))
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
            Self::Traced(code) => code << 8 | 0x7f,
        }
    }
}
