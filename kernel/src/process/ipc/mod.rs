//! SysV IPC: shared memory, semaphores, messages.
//!
//! | file | contents |
//! |---|---|
//! | `table` | the objects of one kind, by identifiers and keys |
//! | `segment`, `attachments` | segments of shared memory, those that a process has attached |
//! | `semaphores` | sets of semaphores, and what is undone when a process ends |
//! | `messages` | queues of messages |
//!
//! Objects stay when their processes end, until they are removed. Rights are checked under the lock of an
//! object, in the step that needs them.

mod attachments;
pub mod messages;
pub mod segment;
pub mod semaphores;
mod table;

use abi::Errno;
use abi::ipc::{IpcPerm, S_IRWXUGO};
use abi::users::{CAP_IPC_OWNER, CAP_SYS_ADMIN};
use sync::atomic::{AtomicU32, Ordering};

use crate::arch;
use crate::sched;
use crate::users::Credentials;

pub use attachments::{Attached, Attachments};
pub use table::Object;
use table::sequence;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// The arguments of a call that gets or makes an object.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// The key, or `IPC_PRIVATE`.
    pub key: i32,
    /// `IPC_*`, and the rights of a new object.
    pub flags: u32,
}

impl Wanted {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// The identifier of an object. Relaxed: it is set before the object is in the table, whose locks publish it.
#[derive(Default)]
pub struct Id(AtomicU32);

impl Id {
    /// Returns the number.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, id: u32) {
        self.0.store(id, Ordering::Relaxed);
    }
}

/// The owner and the rights of an object.
#[derive(Clone, Copy)]
pub struct Owner {
    /// Its key, or `IPC_PRIVATE` if no key leads to it any more.
    key: i32,
    uid: u32,
    gid: u32,
    /// The user and the group of the process that made it.
    maker: [u32; 2],
    mode: u32,
}

/// The right to read an object, in `IpcPerm::mode`.
pub const READ: u32 = 0o444;
/// The right to change it.
pub const WRITE: u32 = 0o222;
/// The right to execute from it.
pub const EXECUTE: u32 = 0o111;

impl Owner {
    fn new(wanted: Wanted) -> Self {
        let (uid, gid) = sched::with_credentials(|of| (of.users.effective, of.groups.effective));
        Self { key: wanted.key, uid, gid, maker: [uid, gid], mode: wanted.flags & S_IRWXUGO }
    }

    /// Returns an error unless the running thread has all rights in `wanted`, in which one for any of owner,
    /// group and others counts.
    ///
    /// # Errors
    /// EACCES.
    fn permit(&self, wanted: u32) -> Result<(), Errno> {
        let may = sched::with_credentials(|of| {
            let granted = match () {
                () if self.is_of(of) => self.mode >> 6,
                () if of.is_in(self.gid) || of.is_in(self.maker[1]) => self.mode >> 3,
                () => self.mode,
            };
            let wanted = (wanted >> 6 | wanted >> 3 | wanted) & 0o7;
            wanted & !granted == 0 || of.can(CAP_IPC_OWNER)
        });
        if may { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Returns whether its owner or its maker is the user of these credentials.
    fn is_of(&self, of: &Credentials) -> bool {
        let user = of.users.effective;
        user == self.uid || user == self.maker[0]
    }

    /// Returns an error unless the running thread may do what only the owner and the maker may, or has a
    /// capability.
    ///
    /// # Errors
    /// EPERM.
    fn must_be_mine(&self, or: u32) -> Result<(), Errno> {
        let may = sched::with_credentials(|of| self.is_of(of) || of.can(or));
        if may { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Sets what a program may set.
    ///
    /// # Errors
    /// EPERM, EINVAL if the user or the group is none.
    fn set(&mut self, new: &IpcPerm) -> Result<(), Errno> {
        self.must_be_mine(CAP_SYS_ADMIN)?;
        if new.uid == u32::MAX || new.gid == u32::MAX {
            return Err(Errno::EINVAL);
        }
        (self.uid, self.gid) = (new.uid, new.gid);
        self.mode = self.mode & !S_IRWXUGO | new.mode & S_IRWXUGO;
        Ok(())
    }

    fn describe(&self, id: &Id) -> IpcPerm {
        IpcPerm::new(self.key, [self.uid, self.gid], self.maker, self.mode, sequence(id.get()))
    }
}

/// Returns the time in seconds.
fn now() -> i64 {
    (arch::wall_ns() / NS_PER_SECOND) as i64
}

/// Returns the number of the running process, or 0 if none runs here.
fn caller() -> u32 {
    arch::with_current(|task| task.process().pid()).unwrap_or(0)
}

/// Removes all objects, when the machine ends.
pub fn remove_all() {
    segment::remove_all();
    semaphores::remove_all();
    messages::remove_all();
}
