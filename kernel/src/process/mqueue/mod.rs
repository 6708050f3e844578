//! POSIX message queues: their names, and opening them.
//!
//! A descriptor of a queue is that of a file, whose contents are a [`Handle`] of the queue. The name of a
//! queue has another handle. A queue ends when its name and its last open file are gone, and calls that use
//! it have returned.
//!
//! Locks: that of the names, which only `mq_open` and `mq_unlink` take, then that of a queue.

mod queue;

use alloc::vec::Vec;
use core::any::Any;

use abi::Errno;
use abi::file::{NAME_MAX, O_ACCMODE, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY};
use abi::ipc::{MQ_HARD_MSG_MAX, MQ_HARD_MSGSIZE_MAX, MQ_QUEUES_MAX, MqAttr};
use abi::process::RLIMIT_MSGQUEUE;
use sync::SpinLock;
use sync::atomic::{AtomicU64, Ordering};

use super::Process;
use crate::fs::content::Content;
use crate::fs::node::{Node, NodeRef, Volume};
use crate::fs::{OpenFile, Opened, rights};
use crate::mm::{fallible, frames};
use crate::sched;

use queue::Handle;

pub use queue::{Message, Notice, Queue};

const PAGE: u64 = 4096;
/// The part of the memory that all queues may take.
const PART_OF_MEMORY: u64 = 16;
/// Bytes that Linux counts for a message besides its own.
const PER_MESSAGE: u64 = 96;

/// A queue that has a name.
struct Named {
    name: Vec<u8>,
    node: NodeRef,
}

static NAMES: SpinLock<Vec<Named>> = SpinLock::new(Vec::new());
/// The bytes of all queues, as [`bytes_of`] counts them. Relaxed: a number.
static CHARGED: AtomicU64 = AtomicU64::new(0);

/// The bytes that a queue has been charged, which are given back when it ends.
pub struct Charge(u64);

impl Charge {
    /// Charges the bytes of a queue with these attributes, of which there may be `most` in all.
    ///
    /// # Errors
    /// EINVAL for attributes that no queue has, EMFILE if it would be too much.
    fn new(attributes: &MqAttr, most: u64) -> Result<Self, Errno> {
        let bytes = bytes_of(attributes)?;
        let most = most.min(frames::total() * PAGE / PART_OF_MEMORY);
        let add = |all: u64| all.checked_add(bytes).filter(|&all| all <= most);
        let charged = CHARGED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        charged.map(|_| Self(bytes)).map_err(|_| Errno::EMFILE)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        CHARGED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Returns the bytes that a queue with these attributes is charged for.
///
/// # Errors
/// EINVAL for attributes that no queue has.
fn bytes_of(attributes: &MqAttr) -> Result<u64, Errno> {
    let MqAttr { max_messages, message_bytes, .. } = *attributes;
    let is_valid =
        (1..=MQ_HARD_MSG_MAX).contains(&max_messages) && (1..=MQ_HARD_MSGSIZE_MAX).contains(&message_bytes);
    if !is_valid {
        return Err(Errno::EINVAL);
    }
    Ok(max_messages as u64 * (message_bytes as u64 + PER_MESSAGE))
}

/// The arguments of `mq_open`.
pub struct Opening {
    /// `O_*`.
    pub flags: u32,
    /// The rights of a new queue.
    pub permissions: u32,
    /// The attributes of a new queue.
    pub attributes: MqAttr,
}

/// Checks that a queue may have this name.
///
/// # Errors
/// EACCES, ENAMETOOLONG.
fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"." | b".." => Err(Errno::EACCES),
        _ if name.contains(&b'/') => Err(Errno::EACCES),
        _ if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
        _ => Ok(()),
    }
}

/// Opens the queue called `name` for `process`, or makes it if that is wanted.
///
/// # Errors
/// EACCES, ENAMETOOLONG, ENOENT, EEXIST, EINVAL, EMFILE, ENOSPC as in Linux, ENOMEM.
pub fn open(process: &Process, name: &[u8], opening: &Opening) -> Result<Opened, Errno> {
    check_name(name)?;
    loop {
        let found = find(name)?;
        let node = match found {
            Some(node) => opening.check_existing(&node).map(|()| node)?,
            None if opening.flags & O_CREAT == 0 => return Err(Errno::ENOENT),
            None => match make(process, name, opening)? {
                Some(node) => node,
                // Another call has made one with this name meanwhile.
                None => continue,
            },
        };
        let file = OpenFile::called(node, fallible::copied(name)?, opening.flags)?;
        return Opened::new(file).ok_or(Errno::EBADF);
    }
}

impl Opening {
    fn check_existing(&self, node: &Node) -> Result<(), Errno> {
        if self.flags & O_CREAT != 0 && self.flags & O_EXCL != 0 {
            return Err(Errno::EEXIST);
        }
        rights::permit(
            node,
            match self.flags & O_ACCMODE {
                O_RDONLY => rights::READ,
                O_WRONLY => rights::WRITE,
                O_RDWR => rights::READ | rights::WRITE,
                _ => return Err(Errno::EINVAL),
            },
        )
    }
}

/// Returns a node for an open file of the queue called `name`, if there is one.
fn find(name: &[u8]) -> Result<Option<NodeRef>, Errno> {
    let names = NAMES.lock();
    let named = names.iter().find(|named| named.name == name);
    named.map(|named| another(&named.node)).transpose()
}

/// Returns a node for another open file of the queue that `node` keeps.
fn another(node: &NodeRef) -> Result<NodeRef, Errno> {
    let object = node.content().and_then(Content::stands_for);
    let handle: &Handle = object.and_then(<dyn Any>::downcast_ref).ok_or(Errno::EBADF)?;
    node.other_end(handle.another())
}

/// Makes a queue, and returns a node for an open file. Returns `None` if there is a queue of this name by
/// now.
fn make(process: &Process, name: &[u8], opening: &Opening) -> Result<Option<NodeRef>, Errno> {
    let charge = Charge::new(&opening.attributes, process.limits.current(RLIMIT_MSGQUEUE))?;
    let handle = Handle::first(Queue::new(&opening.attributes, charge))?;
    let node = Node::file(Volume::System, opening.permissions, handle)?;
    let opened = another(&node)?;
    let named = Named { name: fallible::copied(name)?, node };
    let mut names = NAMES.lock();
    // A queue that is not put there is dropped when the names are not locked any more.
    let refused = match () {
        () if names.iter().any(|other| other.name == name) => Ok(named),
        () if names.len() as u64 >= MQ_QUEUES_MAX => Err((Errno::ENOSPC, named)),
        () if names.try_reserve(1).is_err() => Err((Errno::ENOMEM, named)),
        () => {
            names.push(named);
            return Ok(Some(opened));
        }
    };
    drop(names);
    refused.map(|_other| None).map_err(|(error, _queue)| error)
}

/// Removes the name of a queue. As on Linux only its owner may, and root, whose the directory of names is.
///
/// # Errors
/// EACCES, ENAMETOOLONG, ENOENT, EPERM as in Linux.
pub fn unlink(name: &[u8]) -> Result<(), Errno> {
    check_name(name)?;
    let mut names = NAMES.lock();
    let at = names.iter().position(|named| named.name == name).ok_or(Errno::ENOENT)?;
    if names.get(at).is_some_and(|named| !rights::is_owner(&named.node) && !is_root()) {
        return Err(Errno::EPERM);
    }
    let named = names.swap_remove(at);
    drop(names);
    // It may end, now that the names are not locked.
    drop(named);
    Ok(())
}

/// Returns whether the running thread's user for files is root.
fn is_root() -> bool {
    sched::with_credentials(|of| of.users.fs == 0)
}

/// Returns the queue that `file` is.
///
/// # Errors
/// EBADF if it is none.
pub fn of(file: &OpenFile) -> Result<&Queue, Errno> {
    let object = file.node().content().and_then(Content::stands_for);
    object.and_then(<dyn Any>::downcast_ref::<Handle>).map(Handle::queue).ok_or(Errno::EBADF)
}

/// Removes all names, when the machine ends.
pub fn remove_all() {
    let names = core::mem::take(&mut *NAMES.lock());
    drop(names);
}
