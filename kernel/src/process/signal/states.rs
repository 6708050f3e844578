//! The signal states of a process's threads, which senders of signals look through without a lock.
//!
//! ```text
//!   chunks[0] ─▶ 4 places      chunks[1] ─▶ 16 places     ...      a place ─▶ ThreadSignals, for good
//! ```
//!
//! | a state is | `tid` | `mask`, `wanted` | changed by |
//! |---|---|---|---|
//! | free, in the list of free ones | 0 | all, none | [`States::take`] |
//! | taken by a task that has not joined yet, or has left | 0 | the task's | `enter`, or the task's end |
//! | a thread's | the thread's | the thread's | the thread, and `leave` |
//!
//! Places are only added and keep their states until the process goes, so a sender may use each that it
//! finds. A later thread gets the state of one that has ended.
//!
//! 1. `tid` becomes 0 with the pending signals locked. A sender adds to them with the same lock, and only if
//!    `tid` is that of its receiver. So no thread gets a signal that was for another.
//! 2. A sender adds a signal first and reads the masks second. A thread changes its mask first and reads the
//!    pending signals second. All are SeqCst, so one of the two sees the other. A thread that leaves sets its
//!    mask to all, and then passes on the signals that it did not block.
//! 3. A task that replaces another under one number (`exec`) enters before the other one leaves. A sender
//!    that finds no thread looks again with the threads locked.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use sync::{CachePadded, SetOnce, SpinLock};

use super::ThreadSignals;
use crate::mm::fallible;

/// The chunks, each four times as long as the one before.
const CHUNKS: usize = 9;
const FIRST_CHUNK: usize = 4;
/// The chunks in which a sender looks for a thread by its number. The list of threads is sorted, and faster
/// if there are more.
const SEARCHED: usize = 3;

type Place = SetOnce<Arc<ThreadSignals>>;

/// The signal states of a process's threads. See the module.
pub struct States {
    chunks: [SetOnce<Box<[Place]>>; CHUNKS],
    unused: CachePadded<SpinLock<Unused>>,
}

/// The states that no task has.
struct Unused {
    /// It has room for all states.
    free: Vec<Arc<ThreadSignals>>,
    /// The number of all states.
    made: usize,
}

impl States {
    /// Creates an empty set.
    pub const fn new() -> Self {
        let unused = SpinLock::new(Unused { free: Vec::new(), made: 0 });
        Self { chunks: [const { SetOnce::new() }; CHUNKS], unused: CachePadded::new(unused) }
    }

    /// Returns a state for a new task.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn take(&self) -> Result<Arc<ThreadSignals>, Errno> {
        let mut unused = self.unused.lock();
        if let Some(state) = unused.free.pop() {
            return Ok(state);
        }
        let made = unused.made;
        unused.free.try_reserve(made + 1).map_err(|_| Errno::ENOMEM)?;
        let state = fallible::arc(ThreadSignals::new())?;
        self.place(made)?.set(state.clone());
        unused.made = made + 1;
        Ok(state)
    }

    /// Returns a place, whose chunk is made if there is none.
    fn place(&self, number: usize) -> Result<&Place, Errno> {
        let (mut first, mut len) = (0, FIRST_CHUNK);
        for chunk in &self.chunks {
            if number < first + len {
                if chunk.get().is_none() {
                    let mut places = fallible::empty(len)?;
                    places.extend((0..len).map(|_| Place::new()));
                    chunk.set(places.into_boxed_slice());
                }
                return chunk.get().and_then(|places| places.get(number - first)).ok_or(Errno::ENOMEM);
            }
            (first, len) = (first + len, 4 * len);
        }
        Err(Errno::ENOMEM)
    }

    /// Takes back the state of a task that has left.
    pub fn give_back(&self, state: &Arc<ThreadSignals>) {
        state.clear();
        // There is room: see `take`.
        self.unused.lock().free.push(state.clone());
    }

    /// Returns the states in the first `chunks` chunks, free ones among them.
    fn first(&self, chunks: usize) -> impl Iterator<Item = &ThreadSignals> {
        let made = self.chunks.iter().take(chunks).map_while(SetOnce::get);
        made.flat_map(|places| places.iter().map_while(SetOnce::get)).map(|state| &**state)
    }

    /// Calls `f` with every state, free ones among them.
    pub fn for_each(&self, f: impl FnMut(&ThreadSignals)) {
        self.first(CHUNKS).for_each(f);
    }

    /// Returns whether a thread waits for `signal` or does not block it.
    pub fn may_take(&self, signal: u32) -> bool {
        self.first(CHUNKS).any(|state| state.wants(signal) || !state.blocks(signal))
    }

    /// Returns the state of the thread `tid`. There may be one though it is not found.
    pub fn of(&self, tid: u32) -> Option<&ThreadSignals> {
        self.first(SEARCHED).find(|state| state.is_of(tid))
    }
}
