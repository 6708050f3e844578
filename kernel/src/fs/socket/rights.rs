//! Descriptors that are sent in messages (SCM_RIGHTS): from a sender's call until a receiver has them.
//!
//! A descriptor in a message keeps its file open. If that file is a socket of the Unix domain, it may have
//! messages itself. So sockets that are only in messages of one another would stay for ever. They are
//! collected:
//!
//! ```text
//!   process ──▶ A ◀── in a message to ── B        A and B stay: a process has a descriptor of A
//!               └──── in a message to ──▶ B
//!
//!   C ◀── in a message to ──▶ D                   C and D go: only their own messages hold them
//! ```
//! 1. An [`Edge`] says that a socket is in a message of a queue. It is there as long as the [`Rights`] are,
//!    and its queue is noted before the message is in it. All edges have one lock. Sockets without a queue
//!    have edges too: they may be connected while they are in a message.
//! 2. A socket is a *candidate* if it has as many holders as edges. No descriptor of a process leads to it,
//!    and none can before a call takes it out of a message, which takes the lock. So while the lock is held,
//!    a candidate stays one.
//! 3. A candidate is alive if one of its edges is of a queue that no candidate reads, or that one reads that
//!    is alive. The messages of all others are dropped, which closes what is in them. A socket that listens
//!    reads the queues of the connections that wait there: only a call of it takes them away.
//! 4. A call that has rights in hand and waits for room has edges as if they were in the queue. If its
//!    receiver is not alive, nothing that it sends can be received.
//! 5. Rights are dropped without a spin lock held, and never by the drop of other rights: one core drops all
//!    ([`GRAVE`]), one after the other, so a chain of sockets takes no stack.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::take;

use abi::Errno;
use sync::SpinLock;

use super::Socket;
use crate::fs::open_file::{OpenFile, Opened};
use crate::mm::fallible;
use crate::mm::static_or_arc::StaticOrArc;

/// The most descriptors of a message, as on Linux.
pub const MOST_SENT: usize = 253;
/// The most descriptors in all messages: the limit of descriptors of a process, as on Linux for a user.
const MOST: usize = 1024;
/// Sockets in messages from which on they are collected.
const FIRST_COLLECTION: usize = 32;

/// A queue of messages, told apart by its address.
pub type QueueId = usize;
/// A socket, told apart by its address.
type SocketId = usize;
/// The queue of rights that are in none.
const NOWHERE: QueueId = 0;

/// The descriptors of a message.
pub struct Rights(Option<Box<Parcel>>);

struct Parcel {
    files: Vec<Opened>,
    next: Option<Box<Parcel>>,
}

struct Edge {
    /// The address of the parcel.
    parcel: usize,
    socket: StaticOrArc<OpenFile>,
    queue: QueueId,
}

struct InMessages {
    /// All descriptors in messages.
    count: usize,
    /// Those that are sockets of the Unix domain.
    edges: Vec<Edge>,
    /// The number of edges with which they are collected next.
    collected_at: usize,
}

static IN_MESSAGES: SpinLock<InMessages> =
    SpinLock::new(InMessages { count: 0, edges: Vec::new(), collected_at: FIRST_COLLECTION });

/// Rights to be dropped.
struct Grave {
    first: Option<Box<Parcel>>,
    is_emptied: bool,
}

static GRAVE: SpinLock<Grave> = SpinLock::new(Grave { first: None, is_emptied: false });

impl Rights {
    /// Puts descriptors into a message.
    ///
    /// # Errors
    /// ETOOMANYREFS if there are too many in messages, ENOMEM.
    pub fn new(files: Vec<Opened>) -> Result<Self, Errno> {
        collect_before(files.len());
        let parcel = fallible::boxed(Parcel { files, next: None })?;
        let sockets = parcel.files.iter().filter_map(Opened::socket_of_names).count();
        let mut all = IN_MESSAGES.lock();
        if all.count + parcel.files.len() > MOST {
            return Err(Errno::ETOOMANYREFS);
        }
        all.edges.try_reserve(sockets).map_err(|_| Errno::ENOMEM)?;
        all.count += parcel.files.len();
        let id = parcel.id();
        let edges = parcel.files.iter().filter_map(Opened::socket_of_names);
        all.edges.extend(edges.map(|socket| Edge { parcel: id, socket, queue: NOWHERE }));
        Ok(Self(Some(parcel)))
    }

    /// Notes the queue of the message that they are in from now on.
    pub fn go_to(&self, queue: QueueId) {
        let Some(parcel) = &self.0 else { return };
        let id = parcel.id();
        let mut all = IN_MESSAGES.lock();
        all.edges.iter_mut().filter(|edge| edge.parcel == id).for_each(|edge| edge.queue = queue);
    }

    /// Takes the descriptors out of the message.
    pub fn into_files(mut self) -> Vec<Opened> {
        let Some(mut parcel) = self.0.take() else { return Vec::new() };
        parcel.leave();
        take(&mut parcel.files)
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        if let Some(parcel) = self.0.take() {
            bury(parcel);
        }
    }
}

impl Parcel {
    fn id(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Removes its edges.
    fn leave(&self) {
        let id = self.id();
        let mut all = IN_MESSAGES.lock();
        all.count -= self.files.len();
        // The file of an edge is in the parcel too, so nothing is freed here.
        all.edges.retain(|edge| edge.parcel != id);
    }
}

/// Closes the descriptors of a parcel, and of those that this drops.
fn bury(mut parcel: Box<Parcel>) {
    // First, because another core may close them later: they count no more when this returns.
    parcel.leave();
    {
        let mut grave = GRAVE.lock();
        parcel.next = grave.first.take();
        grave.first = Some(parcel);
        if core::mem::replace(&mut grave.is_emptied, true) {
            return;
        }
    }
    while let Some(parcel) = next_buried() {
        drop(parcel);
    }
}

fn next_buried() -> Option<Box<Parcel>> {
    let mut grave = GRAVE.lock();
    let Some(mut parcel) = grave.first.take() else {
        grave.is_emptied = false;
        return None;
    };
    grave.first = parcel.next.take();
    Some(parcel)
}

/// A socket that only messages hold.
struct Candidate {
    id: SocketId,
    socket: StaticOrArc<OpenFile>,
    is_alive: bool,
}

/// A queue, and the index of the candidate that reads it.
type Reads = (QueueId, usize);

/// Collects sockets that are only in messages of one another, if many are in messages or `more` descriptors
/// would be too many.
fn collect_before(more: usize) {
    let dead = {
        let mut all = IN_MESSAGES.lock();
        if all.edges.len() < all.collected_at && all.count + more <= MOST {
            return;
        }
        let dead = all.dead().unwrap_or_default();
        all.collected_at = FIRST_COLLECTION.max(2 * all.edges.len());
        dead
    };
    for candidate in &dead {
        if let Ok(socket) = super::of(&candidate.socket) {
            socket.drop_messages();
        }
    }
    if !dead.is_empty() {
        let mut all = IN_MESSAGES.lock();
        all.collected_at = FIRST_COLLECTION.max(2 * all.edges.len());
    }
}

impl InMessages {
    /// Returns the candidates that are not alive.
    ///
    /// # Errors
    /// ENOMEM.
    fn dead(&self) -> Result<Vec<Candidate>, Errno> {
        let mut candidates = self.candidates()?;
        let mut edges: Vec<&Edge> = fallible::empty(self.edges.len())?;
        edges.extend(&self.edges);
        edges.sort_unstable_by_key(|edge| edge.queue);
        let reads = reads(&candidates, &edges)?;
        let mut readers: Vec<Reads> = fallible::empty(reads.len())?;
        readers.extend(&reads);
        readers.sort_unstable();
        // The queues whose messages can be received, and that were not looked at yet.
        let mut alive: Vec<QueueId> = fallible::empty(edges.len() + reads.len())?;
        let is_read = |queue: &QueueId| readers.binary_search_by_key(queue, |(queue, _)| *queue).is_ok();
        alive.extend(edges.iter().map(|edge| edge.queue).filter(|queue| !is_read(queue)));
        alive.dedup();
        while let Some(queue) = alive.pop() {
            let first = edges.partition_point(|edge| edge.queue < queue);
            for edge in edges.iter().skip(first).take_while(|edge| edge.queue == queue) {
                let Ok(index) = find(&candidates, id_of(&edge.socket)) else { continue };
                let Some(candidate) = candidates.get_mut(index) else { continue };
                if !core::mem::replace(&mut candidate.is_alive, true) {
                    let first = reads.partition_point(|(_, reader)| *reader < index);
                    let own = reads.iter().skip(first).take_while(|(_, reader)| *reader == index);
                    alive.extend(own.map(|(queue, _)| *queue));
                }
            }
        }
        candidates.retain(|candidate| !candidate.is_alive);
        Ok(candidates)
    }

    /// Returns the sockets that only messages hold, in the order of their numbers.
    fn candidates(&self) -> Result<Vec<Candidate>, Errno> {
        let mut found: Vec<Candidate> = fallible::empty(self.edges.len())?;
        let mut edges: Vec<(SocketId, &Edge)> = fallible::empty(self.edges.len())?;
        edges.extend(self.edges.iter().map(|edge| (id_of(&edge.socket), edge)));
        edges.sort_unstable_by_key(|(id, _)| *id);
        for same in edges.chunk_by(|one, other| one.0 == other.0) {
            let Some((id, edge)) = same.first() else { continue };
            if edge.socket.count_holders() == same.len() {
                found.push(Candidate { id: *id, socket: edge.socket.clone(), is_alive: false });
            }
        }
        Ok(found)
    }
}

/// Returns the queues with `edges` that candidates read, in the order of the candidates.
fn reads(candidates: &[Candidate], edges: &[&Edge]) -> Result<Vec<Reads>, Errno> {
    // Each queue has one reader.
    let mut reads: Vec<Reads> = fallible::empty(edges.len())?;
    for (index, candidate) in candidates.iter().enumerate() {
        let Ok(socket) = super::of(&candidate.socket) else { continue };
        socket.each_queue(|queue| {
            let has_edges = edges.binary_search_by_key(&queue, |edge| edge.queue).is_ok();
            if has_edges && reads.len() < reads.capacity() {
                reads.push((queue, index));
            }
        });
    }
    Ok(reads)
}

fn find(candidates: &[Candidate], id: SocketId) -> Result<usize, usize> {
    candidates.binary_search_by_key(&id, |candidate| candidate.id)
}

/// Returns what tells a socket from others.
fn id_of(file: &OpenFile) -> SocketId {
    super::of(file).map_or(0, Socket::id)
}

impl Opened {
    /// Returns the file, if it is a socket of the Unix domain.
    fn socket_of_names(&self) -> Option<StaticOrArc<OpenFile>> {
        let file = self.file()?;
        (super::of(file).ok()?.domain() == super::Domain::Unix).then(|| file.clone())
    }
}
