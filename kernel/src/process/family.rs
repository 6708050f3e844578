//! Parents and children.
//!
//! ```text
//!   parent ──children──▶ child        counted: a process that ended stays until its parent has asked for it
//!   child  ──bond──────▶ parent       weak
//! ```
//! | lock | guards |
//! |---|---|
//! | a process's `children` | who they are; whether it still takes any |
//! | a process's `bond` | its parent; whether it has ended; its stops that nobody asked for |
//!
//! A bond is locked under the parent's children, never the other way round; of two processes never both children.
//!
//! 1. A process ends and its parent ends at the same time: who ends says so in its bond and reads there whom to tell; who
//!    takes a child over writes itself there and reads whether to be told. One of the two comes second, so exactly one
//!    tells the new parent.
//! 2. Who has ended takes no children any more: they go to the next ancestor that does, or, if there is none, belong to
//!    nobody and vanish as they end.
//! 3. Whether the parent wants to know of the end is settled under the bond, with the end or with the parent: who is not
//!    wanted is never found by a wait, though it is on the list for a moment yet.
//! 4. A parent that waits looks at its children after it has taken its place in `changed`, and who changes its state
//!    changes its bond before it wakes: no change is slept through.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use abi::Errno;
use abi::signal::{NSIG, SA_NOCLDSTOP, SA_NOCLDWAIT, SI_USER, SIG_IGN, SIGCHLD};
use sync::SpinLock;
use sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::signal::{self, Origin};
use super::stop::News;
use super::{Ending, Process};
use crate::fs::{fallible, readiness};
use crate::sched::WaitQueue;

/// What a process knows of its kin.
pub struct Family {
    bond: SpinLock<Bond>,
    children: SpinLock<Children>,
    /// Where its threads wait for children.
    pub changed: WaitQueue,
    /// PR_SET_CHILD_SUBREAPER: orphans among its descendants become its children. Relaxed, as the two below: it orders
    /// nothing.
    pub adopts: AtomicBool,
    /// PR_SET_PDEATHSIG, or 0.
    pub death_signal: AtomicU32,
    /// What its parent is told with when it ends, or 0.
    pub exit_signal: AtomicU32,
}

/// The tie to the parent.
struct Bond {
    parent: Weak<Process>,
    ended: Option<Ending>,
    /// Whether its parent wants to know nothing of its end.
    unwanted: bool,
    news: Option<News>,
}

struct Children {
    list: Vec<Arc<Process>>,
    closed: bool,
}

/// What a parent is told of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It ended, and how.
    Ended(Ending),
    /// It stopped or goes on.
    Changed(News),
}

impl Family {
    /// Of a child of nobody yet.
    pub fn new(exit_signal: u32) -> Self {
        Self {
            bond: SpinLock::new(Bond { parent: Weak::new(), ended: None, unwanted: false, news: None }),
            children: SpinLock::new(Children { list: Vec::new(), closed: false }),
            changed: WaitQueue::new(),
            adopts: AtomicBool::new(false),
            death_signal: AtomicU32::new(0),
            exit_signal: AtomicU32::new(exit_signal),
        }
    }
}

impl Process {
    /// Its parent, while that lives.
    pub fn parent(&self) -> Option<Arc<Process>> {
        self.family.bond.lock().parent.upgrade()
    }

    /// Makes `child` a child of this process; how it has ended, if it has.
    ///
    /// # Errors
    /// ENOMEM; EAGAIN if this process has ended.
    pub fn adopt(self: &Arc<Self>, child: &Arc<Process>) -> Result<Option<Ending>, Errno> {
        let mut children = self.family.children.lock();
        if children.closed {
            return Err(Errno::EAGAIN);
        }
        fallible::push(&mut children.list, child.clone())?;
        let mut bond = child.family.bond.lock();
        bond.parent = Arc::downgrade(self);
        bond.unwanted = bond.ended.is_some() && self.ignores_end_of(child);
        Ok(bond.ended)
    }

    /// Calls `f` with every child until it gives something; for `f` the list stands still.
    pub fn find_child<R>(&self, f: impl FnMut(&Arc<Process>) -> Option<R>) -> Option<R> {
        self.family.children.lock().list.iter().find_map(f)
    }

    /// What there is to say of this process to who asks for `ended`, `stopped`, `continued` children. Unless the news is
    /// to `stay`, it is old from then on.
    pub fn state(&self, wanted: impl Fn(State) -> bool, stay: bool) -> Option<State> {
        let mut bond = self.family.bond.lock();
        if let Some(ending) = bond.ended {
            return Some(State::Ended(ending)).filter(|&state| !bond.unwanted && wanted(state));
        }
        let news = bond.news.filter(|&news| wanted(State::Changed(news)))?;
        if !stay {
            bond.news = None;
        }
        Some(State::Changed(news))
    }

    /// Whether it has ended, all its threads.
    pub fn has_ended(&self) -> bool {
        self.family.bond.lock().ended.is_some()
    }

    /// Whether it has ended and its parent has asked for it.
    pub fn is_forgotten(&self) -> bool {
        self.number.is_retired()
    }

    /// Its child `child` has ended and somebody was told: it is gone for good. Whether it was still there.
    pub fn forget(&self, child: &Process) -> bool {
        let mut children = self.family.children.lock();
        let at = children.list.iter().position(|other| core::ptr::eq(&raw const **other, child));
        let gone = at.map(|at| children.list.swap_remove(at));
        drop(children);
        let Some(gone) = gone else { return false };
        gone.number.retire();
        self.children_usage.add(&gone.whole_usage());
        true
    }

    /// Its last thread is gone: children find another parent, and its own parent is told of its `ending`.
    pub(super) fn leave_family(self: &Arc<Self>, ending: Ending) {
        self.give_children_away();
        let parent = {
            let mut bond = self.family.bond.lock();
            let parent = bond.parent.upgrade();
            bond.ended = Some(ending);
            bond.unwanted = parent.as_ref().is_some_and(|parent| parent.ignores_end_of(self));
            parent
        };
        match parent {
            Some(parent) => parent.hear_of_end(self, ending),
            None => self.number.retire(),
        }
        readiness::changed();
    }

    fn give_children_away(self: &Arc<Self>) {
        let orphans = {
            let mut children = self.family.children.lock();
            children.closed = true;
            core::mem::take(&mut children.list)
        };
        orphans.into_iter().for_each(|orphan| self.give_away(orphan));
    }

    fn give_away(self: &Arc<Self>, orphan: Arc<Process>) {
        let signal = orphan.family.death_signal.load(Ordering::Relaxed);
        if signal != 0 {
            signal::send_to_process(&orphan, signal, Origin::sent_by(self, SI_USER));
        }
        orphan.family.exit_signal.store(SIGCHLD, Ordering::Relaxed);
        let mut ancestor = self.next_reaper();
        while let Some(reaper) = ancestor {
            match reaper.adopt(&orphan) {
                Ok(None) => return,
                Ok(Some(ending)) => return reaper.hear_of_end(&orphan, ending),
                Err(_) => ancestor = reaper.next_reaper(),
            }
        }
        orphan.be_nobodys();
    }

    fn be_nobodys(&self) {
        let mut bond = self.family.bond.lock();
        bond.parent = Weak::new();
        let ended = bond.ended.is_some();
        drop(bond);
        if ended {
            self.number.retire();
        }
    }

    /// The nearest ancestor that takes orphans: the first process does.
    fn next_reaper(&self) -> Option<Arc<Process>> {
        let mut ancestor = self.parent();
        while let Some(process) = ancestor {
            if process.pid() == super::FIRST || process.family.adopts.load(Ordering::Relaxed) {
                return Some(process);
            }
            ancestor = process.parent();
        }
        None
    }

    /// Whether it wants to know nothing of the end of `child`. Under the child's bond.
    fn ignores_end_of(&self, child: &Process) -> bool {
        let action = self.signals.action(SIGCHLD);
        let ignored = action.handler == SIG_IGN || action.flags & SA_NOCLDWAIT != 0;
        ignored && child.family.exit_signal.load(Ordering::Relaxed) == SIGCHLD
    }

    /// Its child has ended: it is told by a signal, and waiting threads look; or it wants to know nothing of it.
    fn hear_of_end(self: &Arc<Self>, child: &Arc<Process>, ending: Ending) {
        let signal = child.family.exit_signal.load(Ordering::Relaxed);
        let ignored = signal == SIGCHLD && self.signals.action(SIGCHLD).handler == SIG_IGN;
        if child.family.bond.lock().unwanted {
            self.forget(child);
        }
        if (1..=NSIG).contains(&signal) && !ignored {
            signal::send_to_process(self, signal, Origin::of_child(child.pid(), State::Ended(ending)));
        }
        self.family.changed.wake_all();
    }

    /// It stopped, or goes on: its parent is told, by SIGCHLD unless it does not want that. Nobody is told what is not true
    /// any more.
    pub(super) fn tell_news(self: &Arc<Self>, news: News) {
        let parent = {
            let mut bond = self.family.bond.lock();
            if self.is_stopped() != matches!(news, News::Stopped(_)) {
                return;
            }
            bond.news = Some(news);
            bond.parent.upgrade()
        };
        let Some(parent) = parent else { return };
        if parent.signals.action(SIGCHLD).flags & SA_NOCLDSTOP == 0 {
            signal::send_to_process(&parent, SIGCHLD, Origin::of_child(self.pid(), State::Changed(news)));
        }
        parent.family.changed.wake_all();
    }
}
