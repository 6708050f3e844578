//! Process groups and sessions. They are only numbers that processes carry. A sender to a group looks at all
//! processes, so that `fork` and `exec` touch no state that the group shares.

use alloc::sync::Arc;

use abi::Errno;
use sync::SpinLock;
use sync::atomic::{AtomicU32, Ordering};

use super::{Process, pid};

/// The group and the session of a process. Relaxed: they order nothing.
pub struct Groups {
    group: AtomicU32,
    session: AtomicU32,
}

/// The lock under which groups and sessions change, so that a check stays true until the change.
static CHANGES: SpinLock<()> = SpinLock::new(());

impl Groups {
    /// Creates those with these numbers.
    pub fn new(group: u32, session: u32) -> Self {
        Self { group: AtomicU32::new(group), session: AtomicU32::new(session) }
    }
}

impl Process {
    /// Returns the number of its group.
    pub fn group(&self) -> u32 {
        self.groups.group.load(Ordering::Relaxed)
    }

    /// Returns the number of its session.
    pub fn session(&self) -> u32 {
        self.groups.session.load(Ordering::Relaxed)
    }

    /// Moves `target` to `group`. `target` is this process, or a child of it that still runs the same
    /// program. `group` is the number of `target`, or a group of this session.
    ///
    /// # Errors
    /// ESRCH, EACCES, EPERM.
    pub fn move_to_group(&self, target: &Process, group: u32) -> Result<(), Errno> {
        let _changes = CHANGES.lock();
        let is_self = core::ptr::eq(self, target);
        let is_child = || target.parent().is_some_and(|parent| core::ptr::eq(&raw const *parent, self));
        match () {
            () if !is_self && !is_child() => Err(Errno::ESRCH),
            () if !is_self && target.session() != self.session() => Err(Errno::EPERM),
            () if !is_self && target.has_executed() => Err(Errno::EACCES),
            () if target.session() == target.pid() => Err(Errno::EPERM),
            () if group != target.pid() && !self.session_has(group) => Err(Errno::EPERM),
            () => {
                target.groups.group.store(group, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn session_has(&self, group: u32) -> bool {
        any(|process| process.group() == group && process.session() == self.session())
    }

    /// Makes it the leader of a new session and group, and returns their number.
    ///
    /// # Errors
    /// EPERM if it is a leader already, or its number is in use for a group.
    pub fn lead_session(&self) -> Result<u32, Errno> {
        let _changes = CHANGES.lock();
        let pid = self.pid();
        if any(|process| process.group() == pid) {
            return Err(Errno::EPERM);
        }
        self.groups.session.store(pid, Ordering::Relaxed);
        self.groups.group.store(pid, Ordering::Relaxed);
        Ok(pid)
    }
}

fn any(wanted: impl Fn(&Arc<Process>) -> bool) -> bool {
    let mut found = false;
    pid::for_each(|process| found |= wanted(process));
    found
}
