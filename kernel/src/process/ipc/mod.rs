//! SysV IPC: shared memory, semaphores, messages.
//!
//! | file | contents |
//! |---|---|
//! | `table` | the objects of one kind, by identifiers and keys |
//! | `segment`, `attachments` | segments of shared memory, those that a process has attached |
//! | `semaphores` | sets of semaphores, and what is undone when a process ends |
//! | `messages` | queues of messages |
//!
//! Objects stay when their processes end, until they are removed. Every process is root's, so that rights are
//! kept and never refused.

mod attachments;
pub mod messages;
pub mod segment;
pub mod semaphores;
mod table;

use abi::Errno;
use abi::ipc::{IpcPerm, S_IRWXUGO};
use sync::atomic::{AtomicU32, Ordering};

use crate::arch;

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
    mode: u32,
}

impl Owner {
    fn new(wanted: Wanted) -> Self {
        Self { key: wanted.key, uid: 0, gid: 0, mode: wanted.flags & S_IRWXUGO }
    }

    /// Sets what a program may set.
    ///
    /// # Errors
    /// EINVAL if the user or the group is none.
    fn set(&mut self, new: &IpcPerm) -> Result<(), Errno> {
        if new.uid == u32::MAX || new.gid == u32::MAX {
            return Err(Errno::EINVAL);
        }
        (self.uid, self.gid) = (new.uid, new.gid);
        self.mode = self.mode & !S_IRWXUGO | new.mode & S_IRWXUGO;
        Ok(())
    }

    fn describe(&self, id: &Id) -> IpcPerm {
        IpcPerm::new(self.key, (self.uid, self.gid), self.mode, sequence(id.get()))
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
