//! The names of senders in messages (SO_PASSCRED, SCM_CREDENTIALS).

use core::sync::atomic::{AtomicU8, Ordering};

use abi::socket::Ucred;

use super::channel::Side;
use crate::sched::{self, Thread};

/// The user and the group of a sender that is not known, as on Linux.
const NO_USER: u32 = 65_534;

/// Returns the name of the running task's process.
pub fn this_process() -> Ucred {
    let pid = sched::with_current(|task| task.thread.pid());
    sched::with_credentials(|of| Ucred { pid, uid: of.users.real, gid: of.groups.real })
}

/// Returns the name of a sender that is not known.
pub fn unknown() -> Ucred {
    Ucred { pid: 0, uid: NO_USER, gid: NO_USER }
}

/// Whether messages name their senders: the sides that ask for it, a bit each. Relaxed: it applies to
/// messages that are sent later.
#[derive(Debug, Default)]
pub struct NamesSenders(AtomicU8);

impl NamesSenders {
    /// Returns the same that nothing asks for.
    pub const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Returns whether a side asks for it.
    #[inline]
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Sets whether `side` asks for it.
    pub fn set(&self, side: Side, wanted: bool) {
        match wanted {
            true => self.0.fetch_or(side.bit(), Ordering::Relaxed),
            false => self.0.fetch_and(!side.bit(), Ordering::Relaxed),
        };
    }
}
