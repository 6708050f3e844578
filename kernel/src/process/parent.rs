//! Parents and children.
//!
//! ```text
//!   parent ──children─────▶ child      counted: a process that ended stays until its parent has reaped it
//!   child  ──parent_link──▶ parent     weak
//! ```
//! | lock | guards |
//! |---|---|
//! | a process's `children` | the list, and whether it is closed |
//! | a process's `parent_link` | its parent, whether it has ended, and its stops that are not yet reported |
//!
//! A parent link is locked under the parent's `children`, never the other way round. The `children` of two
//! processes are never locked at once.
//!
//! 1. A process may end while its parent ends. The process records its end in its parent link and reads there
//!    which parent to notify. A process that adopts it writes itself there and reads whether to be notified.
//!    One of the two comes second, so exactly one notifies the new parent.
//! 2. A process that has ended adopts no children any more. They go to the next ancestor that does. If there
//!    is none, they have no parent and are freed as they end.
//! 3. Under the parent link it is settled whether the parent ignores the end, either when the child ends or
//!    when the parent is set. A wait never finds a child whose end is ignored, though it may still be on the
//!    list for a moment.
//! 4. A parent that waits looks at its children after it has registered in `changed`. A child that changes
//!    its state changes its parent link before it wakes the parent. So the parent does not sleep through a
//!    change.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use abi::Errno;
use abi::signal::{NSIG, SA_NOCLDSTOP, SA_NOCLDWAIT, SI_USER, SIG_IGN, SIGCHLD};
use sync::SpinLock;
use sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::ptrace::{self, Tracee};
use super::signal::{self, Origin};
use super::stop::News;
use super::{Ending, Process};
use crate::fs::readiness;
use crate::mm::fallible;
use crate::sched::WaitQueue;

/// The parent and the children of a process.
pub struct Relations {
    parent_link: SpinLock<ParentLink>,
    children: SpinLock<Children>,
    /// The threads that wait for children.
    pub changed: WaitQueue,
    /// PR_SET_CHILD_SUBREAPER: orphans among its descendants become its children. Relaxed, as the two below:
    /// it orders nothing.
    pub adopts: AtomicBool,
    /// PR_SET_PDEATHSIG, or 0.
    pub death_signal: AtomicU32,
    /// The signal that its parent gets when it ends, or 0.
    pub exit_signal: AtomicU32,
}

/// The link to the parent.
struct ParentLink {
    parent: Weak<Process>,
    ended: Option<Ending>,
    /// Set if the parent ignores its end.
    unwanted: bool,
    news: Option<News>,
}

struct Children {
    list: Vec<Arc<Process>>,
    /// The threads of other processes that threads of this one trace.
    tracees: Vec<Arc<Tracee>>,
    closed: bool,
}

/// The state of a child, as reported to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It ended.
    Ended(Ending),
    /// It stopped or continued.
    Changed(News),
    /// It is traced, and stopped for this signal, with an event in the second byte.
    Traced(u32),
}

impl Relations {
    /// Forgets PR_SET_PDEATHSIG, because the process gets rights that those who know it may not have.
    pub fn forget_death_signal(&self) {
        self.death_signal.store(0, Ordering::Relaxed);
    }

    /// Returns the relations of a process without parent and children.
    pub fn new(exit_signal: u32) -> Self {
        Self {
            parent_link: SpinLock::new(ParentLink {
                parent: Weak::new(),
                ended: None,
                unwanted: false,
                news: None,
            }),
            children: SpinLock::new(Children { list: Vec::new(), tracees: Vec::new(), closed: false }),
            changed: WaitQueue::new(),
            adopts: AtomicBool::new(false),
            death_signal: AtomicU32::new(0),
            exit_signal: AtomicU32::new(exit_signal),
        }
    }
}

impl Process {
    /// Returns its parent, while that lives.
    pub fn parent(&self) -> Option<Arc<Process>> {
        self.relations.parent_link.lock().parent.upgrade()
    }

    /// Makes `child` a child of this process and returns how it has ended, if it has.
    ///
    /// # Errors
    /// ENOMEM, EAGAIN if this process has ended.
    pub fn adopt(self: &Arc<Self>, child: &Arc<Process>) -> Result<Option<Ending>, Errno> {
        let mut children = self.relations.children.lock();
        if children.closed {
            return Err(Errno::EAGAIN);
        }
        fallible::push(&mut children.list, child.clone())?;
        let mut parent_link = child.relations.parent_link.lock();
        parent_link.parent = Arc::downgrade(self);
        parent_link.unwanted = parent_link.ended.is_some() && self.ignores_end_of(child);
        Ok(parent_link.ended)
    }

    /// Calls `f` with every child, and then `g` with every tracee, until one returns a value. The lists do
    /// not change meanwhile.
    pub fn find_child_or_tracee<R>(
        &self,
        f: impl FnMut(&Arc<Process>) -> Option<R>,
        g: impl FnMut(&Arc<Tracee>) -> Option<R>,
    ) -> Option<R> {
        let children = self.relations.children.lock();
        children.list.iter().find_map(f).or_else(|| children.tracees.iter().find_map(g))
    }

    /// Calls `f` with every tracee until it returns a value.
    pub fn find_tracee<R>(&self, f: impl FnMut(&Arc<Tracee>) -> Option<R>) -> Option<R> {
        self.relations.children.lock().tracees.iter().find_map(f)
    }

    /// Adds `tracee` if `link` succeeds, and returns what that returns. The child of a tracee is added only
    /// `beside` that.
    ///
    /// # Errors
    /// ENOMEM, ESRCH if this process has ended, or lets `beside` go. Those of `link`.
    pub fn add_tracee<R>(
        &self,
        tracee: &Arc<Tracee>,
        beside: Option<&Tracee>,
        link: impl FnOnce() -> Result<Result<R, Errno>, Errno>,
    ) -> Result<R, Errno> {
        let mut children = self.relations.children.lock();
        let is_there =
            |one: &Tracee| children.tracees.iter().any(|other| core::ptr::eq(&raw const **other, one));
        if children.closed || !beside.is_none_or(is_there) {
            return Err(Errno::ESRCH);
        }
        children.tracees.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        if let Some(one) = beside {
            tracee.follow(one);
        }
        let linked = link()??;
        children.tracees.push(tracee.clone());
        Ok(linked)
    }

    /// Removes a tracee. Returns whether it was there.
    pub fn remove_tracee(&self, tracee: &Tracee) -> bool {
        self.take_tracee(|other| core::ptr::eq(other, tracee)).is_some()
    }

    /// Removes a tracee that is `wanted`, and returns it.
    pub fn take_tracee(&self, wanted: impl Fn(&Tracee) -> bool) -> Option<Arc<Tracee>> {
        let mut children = self.relations.children.lock();
        let at = children.tracees.iter().position(|tracee| wanted(tracee))?;
        Some(children.tracees.swap_remove(at))
    }

    /// Returns the state of this process if it is `wanted`. A stop or a continue is reported only once,
    /// unless it is to `stay`.
    pub fn state(&self, wanted: impl Fn(State) -> bool, stay: bool) -> Option<State> {
        let mut parent_link = self.relations.parent_link.lock();
        if let Some(ending) = parent_link.ended {
            return Some(State::Ended(ending)).filter(|&state| !parent_link.unwanted && wanted(state));
        }
        let news = parent_link.news.filter(|&news| wanted(State::Changed(news)))?;
        if !stay {
            parent_link.news = None;
        }
        Some(State::Changed(news))
    }

    /// Returns whether all its threads have ended.
    pub fn has_ended(&self) -> bool {
        self.relations.parent_link.lock().ended.is_some()
    }

    /// Returns whether it has ended and its parent has reaped it.
    pub fn is_reaped(&self) -> bool {
        self.number.is_retired()
    }

    /// Reaps `child`, whose end was reported to a thread of this process. Returns whether it was still there.
    pub fn reap(&self, child: &Process) -> bool {
        let mut children = self.relations.children.lock();
        let at = children.list.iter().position(|other| core::ptr::eq(&raw const **other, child));
        let gone = at.map(|at| children.list.swap_remove(at));
        drop(children);
        let Some(gone) = gone else { return false };
        gone.number.retire();
        self.children_usage.add(&gone.whole_usage());
        true
    }

    /// Gives the children another parent and notifies its own parent of its `ending`, after its last thread
    /// has left.
    pub(super) fn notify_exit(self: &Arc<Self>, ending: Ending) {
        self.reparent_children();
        if self.traced.load(Ordering::Relaxed) == 0 || !ptrace::end_is_held(self, ending) {
            self.tell_end(ending);
        }
    }

    /// Notifies its parent of its `ending`.
    pub(super) fn tell_end(self: &Arc<Self>, ending: Ending) {
        let parent = {
            let mut parent_link = self.relations.parent_link.lock();
            let parent = parent_link.parent.upgrade();
            parent_link.ended = Some(ending);
            parent_link.unwanted = parent.as_ref().is_some_and(|parent| parent.ignores_end_of(self));
            parent
        };
        match parent {
            Some(parent) => parent.note_child_exit(self, ending),
            None => self.number.retire(),
        }
        readiness::changed();
    }

    fn reparent_children(self: &Arc<Self>) {
        let (orphans, traces) = {
            let mut children = self.relations.children.lock();
            children.closed = true;
            (core::mem::take(&mut children.list), !children.tracees.is_empty())
        };
        if traces {
            ptrace::release_all(self);
        }
        orphans.into_iter().for_each(|orphan| self.reparent(orphan));
    }

    fn reparent(self: &Arc<Self>, orphan: Arc<Process>) {
        let signal = orphan.relations.death_signal.load(Ordering::Relaxed);
        if signal != 0 {
            signal::send_to_process(&orphan, signal, Origin::sent_by(self, SI_USER));
        }
        orphan.relations.exit_signal.store(SIGCHLD, Ordering::Relaxed);
        let mut ancestor = self.next_reaper();
        while let Some(reaper) = ancestor {
            match reaper.adopt(&orphan) {
                Ok(None) => return,
                Ok(Some(ending)) => return reaper.note_child_exit(&orphan, ending),
                Err(_) => ancestor = reaper.next_reaper(),
            }
        }
        orphan.drop_parent();
    }

    fn drop_parent(&self) {
        let mut parent_link = self.relations.parent_link.lock();
        parent_link.parent = Weak::new();
        let ended = parent_link.ended.is_some();
        drop(parent_link);
        if ended {
            self.number.retire();
        }
    }

    /// Returns the nearest ancestor that adopts orphans. The first process does.
    fn next_reaper(&self) -> Option<Arc<Process>> {
        let mut ancestor = self.parent();
        while let Some(process) = ancestor {
            if process.pid() == super::FIRST || process.relations.adopts.load(Ordering::Relaxed) {
                return Some(process);
            }
            ancestor = process.parent();
        }
        None
    }

    /// Returns whether it ignores the end of `child`, whose parent link the caller has locked.
    fn ignores_end_of(&self, child: &Process) -> bool {
        let action = self.signals.action(SIGCHLD);
        let ignored = action.handler == SIG_IGN || action.flags & SA_NOCLDWAIT != 0;
        ignored && child.relations.exit_signal.load(Ordering::Relaxed) == SIGCHLD
    }

    /// Notes the end of a child: sends its exit signal and wakes threads that wait. Reaps the child if no
    /// wait is to find it.
    fn note_child_exit(self: &Arc<Self>, child: &Arc<Process>, ending: Ending) {
        let signal = child.relations.exit_signal.load(Ordering::Relaxed);
        let ignored = signal == SIGCHLD && self.signals.action(SIGCHLD).handler == SIG_IGN;
        if child.relations.parent_link.lock().unwanted {
            self.reap(child);
        }
        if (1..=NSIG).contains(&signal) && !ignored {
            let origin = Origin::of_child(child.pid(), child.real_user(), State::Ended(ending));
            signal::send_to_process(self, signal, origin);
        }
        self.relations.changed.wake_all();
    }

    /// Notifies the parent that this process stopped or continued, with SIGCHLD unless the parent refuses
    /// that. Does nothing if that is not true any more.
    pub(super) fn notify_parent(self: &Arc<Self>, news: News) {
        let parent = {
            let mut parent_link = self.relations.parent_link.lock();
            if self.is_stopped() != matches!(news, News::Stopped(_)) {
                return;
            }
            parent_link.news = Some(news);
            parent_link.parent.upgrade()
        };
        let Some(parent) = parent else { return };
        if parent.signals.action(SIGCHLD).flags & SA_NOCLDSTOP == 0 {
            let origin = Origin::of_child(self.pid(), self.real_user(), State::Changed(news));
            signal::send_to_process(&parent, SIGCHLD, origin);
        }
        parent.relations.changed.wake_all();
    }
}
