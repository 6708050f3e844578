//! Credentials of threads: users, groups and capabilities (`credentials(7)`, `capabilities(7)`).
//!
//! A thread's credentials are one immutable object that only the thread itself replaces, as a whole. The C
//! library makes all threads of a process do that. Another thread that reads them (to send a signal, or for
//! `/proc`) finds the old ones or the new ones. During `access` a thread acts with others, which only its own
//! checks find.
//!
//! Reading them writes nothing: a thread with root's usual credentials has an empty word, and the others
//! have an object of their own, which a child copies. Only supplementary groups are shared, and counted by
//! Refcache. An object that was replaced is freed after a grace period of RCU.
//!
//! | file | contents |
//! |---|---|
//! | `capabilities` | the five sets, and the calls that change them |
//! | `identities` | changes of users and groups |
//! | `program` | the credentials of a new program |
#![deny(unsafe_code, clippy::indexing_slicing, clippy::unwrap_used)]

mod capabilities;
mod identities;
mod program;

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::users::{CAP_KILL, CAP_SYS_NICE, CAP_SYS_PTRACE, CAP_SYS_RESOURCE, SECBIT_NO_SETUID_FIXUP};
use percore::{Pinned, pin};
use rcu::{Removed, Word};

pub use capabilities::{Ambient, Capabilities, is_capability};
pub use identities::{Ids, Kind};
pub use program::{OfProgram, SetIds};

use crate::mm::refcache_arc::RefcacheArc;
use crate::mm::{fallible, lending};

/// The credentials of a thread.
#[derive(Clone)]
pub struct Credentials {
    /// Its users.
    pub users: Ids,
    /// Its groups.
    pub groups: Ids,
    /// Its supplementary groups, sorted.
    supplementary: Option<RefcacheArc<Vec<u32>>>,
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// `SECBIT_*`.
    pub securebits: u32,
    /// Set if no `execve` may give it privileges.
    pub no_new_privs: bool,
}

/// The user and the group of a caller that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The real ones.
    Real,
    /// Those for files.
    Files,
}

/// Root's usual credentials.
static ROOT: Credentials = Credentials {
    users: Ids::ROOT,
    groups: Ids::ROOT,
    supplementary: None,
    capabilities: Capabilities::ROOT,
    securebits: 0,
    no_new_privs: false,
};

impl Credentials {
    /// Returns root's usual credentials.
    pub fn root() -> &'static Self {
        &ROOT
    }

    /// Returns whether it has an effective capability, `CAP_*`.
    #[inline]
    pub fn can(&self, capability: u32) -> bool {
        self.capabilities.effective & 1 << capability != 0
    }

    /// Returns an error unless it has an effective capability.
    ///
    /// # Errors
    /// EPERM.
    pub fn must(&self, capability: u32) -> Result<(), Errno> {
        if self.can(capability) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Returns its supplementary groups.
    pub fn supplementary(&self) -> &[u32] {
        self.supplementary.as_ref().map_or(&[], |groups| groups)
    }

    /// Returns whether its group for files, or a supplementary one, is `group`.
    pub fn is_in(&self, group: u32) -> bool {
        self.groups.fs == group || self.supplementary().binary_search(&group).is_ok()
    }

    /// Sets the supplementary groups.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn set_supplementary(&mut self, mut groups: Vec<u32>) -> Result<(), Errno> {
        groups.sort_unstable();
        self.supplementary = if groups.is_empty() { None } else { Some(RefcacheArc::new(groups)?) };
        Ok(())
    }

    /// Returns whether it counts as another one than the `old` ones, or has more capabilities.
    pub fn is_more_than(&self, old: &Self) -> bool {
        let counts = |ids: Ids| (ids.effective, ids.fs);
        let numbers = |of: &Self| (counts(of.users), counts(of.groups));
        numbers(self) != numbers(old) || self.capabilities.permitted & !old.capabilities.permitted != 0
    }

    /// Returns whether it may send signals to a process with the `other` ones.
    pub fn may_signal(&self, other: &Self) -> bool {
        let of_it = |user: u32| user == other.users.real || user == other.users.saved;
        self.can(CAP_KILL) || of_it(self.users.effective) || of_it(self.users.real)
    }

    /// Returns whether it may read and change the memory of a process with the `other` ones, for a call that
    /// looks at the real user and group, or at those for files.
    pub fn may_trace(&self, other: &Self, by: Basis) -> bool {
        let (user, group, capabilities) = match by {
            Basis::Real => (self.users.real, self.groups.real, self.capabilities.permitted),
            Basis::Files => (self.users.fs, self.groups.fs, self.capabilities.effective),
        };
        let same = other.users.is_all(user) && other.groups.is_all(group);
        self.can(CAP_SYS_PTRACE) || same && other.capabilities.permitted & !capabilities == 0
    }

    /// Returns whether a parent with these may trace a child with the `other` ones that wishes it.
    pub fn may_be_tracer_of(&self, other: &Self) -> bool {
        let sets = (other.capabilities.permitted, self.capabilities.permitted);
        self.can(CAP_SYS_PTRACE) || sets.0 & !sets.1 == 0
    }

    /// Returns whether it may set the limits of a process with the `other` ones.
    pub fn may_limit(&self, other: &Self) -> bool {
        let same = other.users.is_all(self.users.real) && other.groups.is_all(self.groups.real);
        self.can(CAP_SYS_RESOURCE) || same
    }

    /// Returns whether it may schedule a thread with the `other` ones.
    pub fn may_schedule(&self, other: &Self) -> bool {
        let user = self.users.effective;
        self.can(CAP_SYS_NICE) || user == other.users.effective || user == other.users.real
    }

    /// Returns what counts for `access`, if that differs: the real user and group, and the capabilities that
    /// a program of that user would have.
    pub fn of_real_user(&self) -> Option<Self> {
        let mut real = self.clone();
        (real.users.fs, real.groups.fs) = (self.users.real, self.groups.real);
        if self.securebits & SECBIT_NO_SETUID_FIXUP == 0 {
            let sets = &mut real.capabilities;
            sets.effective = if self.users.real == 0 { sets.permitted } else { 0 };
        }
        let counts = |of: &Self| (of.users.fs, of.groups.fs, of.capabilities.effective);
        (counts(&real) != counts(self)).then_some(real)
    }

    /// Returns whether it is as root's usual ones.
    fn is_usual(&self) -> bool {
        let numbers = |of: &Self| (of.users, of.groups, of.capabilities, of.securebits, of.no_new_privs);
        self.supplementary.is_none() && numbers(self) == numbers(&ROOT)
    }
}

/// The place where a thread keeps its credentials.
pub struct Slot {
    own: Word<Arc<Credentials>>,
    /// The ones that its checks find in place of its own. Only the thread itself reads and writes them.
    acting: Word<Arc<Credentials>>,
}

/// Credentials that a place gets without an error.
pub struct Ready(Option<Arc<Credentials>>);

impl Ready {
    /// Allocates what a place needs.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(credentials: Credentials) -> Result<Self, Errno> {
        Ok(Self(if credentials.is_usual() { None } else { Some(fallible::arc(credentials)?) }))
    }
}

impl Slot {
    /// Returns the place of root's usual credentials.
    pub fn root() -> Self {
        Self { own: Word::new(), acting: Word::new() }
    }

    /// Returns a place with these credentials.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn of(credentials: Credentials) -> Result<Self, Errno> {
        let slot = Self::root();
        slot.replace(credentials)?;
        Ok(slot)
    }

    /// Returns a place with a copy of these.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn copy(&self) -> Result<Self, Errno> {
        match lending::peek(&pin(), &self.own) {
            None => Ok(Self::root()),
            Some(credentials) => Self::of(credentials.clone()),
        }
    }

    /// Returns the credentials. The caller uses them only until it sleeps or pauses.
    #[inline]
    pub fn peek<'a>(&'a self, pin: &'a Pinned) -> &'a Credentials {
        lending::peek(pin, &self.own).unwrap_or(&ROOT)
    }

    /// Returns the credentials that count for the running thread, whose place this is. The caller uses them
    /// only until it sleeps or pauses.
    #[inline]
    pub fn peek_acting<'a>(&'a self, pin: &'a Pinned) -> &'a Credentials {
        lending::peek(pin, &self.acting).unwrap_or_else(|| self.peek(pin))
    }

    /// Returns a copy of the credentials.
    pub fn get(&self) -> Credentials {
        self.peek(&pin()).clone()
    }

    /// Calls `f`, which does not sleep, while the running thread, whose place this is, acts with the
    /// `others`.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn act_with<R>(&self, others: Credentials, f: impl FnOnce() -> R) -> Result<R, Errno> {
        let before = self.acting.put(fallible::arc(others)?, false);
        let result = f();
        let after = self.acting.take();
        // No other task reads the word.
        before.into_iter().chain(after).for_each(|gone| lending::discard(gone, true));
        Ok(result)
    }

    /// Replaces the credentials of a task that no other task has found yet, and returns the old ones. The
    /// caller drops them without a lock.
    pub fn replace_unseen(&self, new: Ready) -> Option<Unseen> {
        self.exchange(new).map(Unseen)
    }

    fn exchange(&self, new: Ready) -> Option<Removed<Arc<Credentials>>> {
        match new.0 {
            None => self.own.take(),
            Some(new) => self.own.put(new, false),
        }
    }

    /// Replaces the credentials. Only the thread itself does that.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn replace(&self, new: Credentials) -> Result<(), Errno> {
        self.exchange(Ready::new(new)?).into_iter().for_each(|old| lending::discard(old, false));
        Ok(())
    }
}

/// Credentials that no other task has found.
pub struct Unseen(Removed<Arc<Credentials>>);

impl Unseen {
    /// Frees them.
    pub fn discard(self) {
        lending::discard(self.0, true);
    }
}
