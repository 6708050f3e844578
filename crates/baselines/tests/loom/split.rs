//! A process is split (`kernel/src/mm/read_counters.rs`) while its threads read an object, and one asks about
//! that. A thread that finds another's reference in the counter of the process publishes users for each core,
//! and counts as the one of its core from then on. Loom reports an end of the object that is not ordered
//! after every read, and a user that is seen before it is made. The end of the process's first block and two
//! threads that make one block are not here (`slots.rs` has the first).

use std::ptr::{self, NonNull};
use std::sync::Arc;

use baselines::{Asked, ClaimedCount, Slots, Tenant};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;
use sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

const OBJECT: u64 = 1;
/// The threads, and the process as a whole: each may use a block.
const THREADS: usize = 2;
const WHOLE: usize = THREADS;

type Table = Slots<Block, { THREADS + 1 }>;

struct Block {
    tenant: Tenant,
    word: ClaimedCount,
}

/// The users of the process's cores.
struct Cores {
    /// Written when they are made.
    memory: UnsafeCell<()>,
}

struct Process {
    table: Table,
    blocks: [Block; THREADS + 1],
    /// Those of each thread that splits.
    made: [Cores; THREADS],
    cores: AtomicPtr<Cores>,
    /// The groups of the object.
    groups: AtomicU32,
    /// The threads that are not pinned any more.
    gone: AtomicUsize,
    /// Written when the object ends.
    object: UnsafeCell<()>,
}

// SAFETY: loom checks every access to the cells.
unsafe impl Sync for Process {}
// SAFETY: as for `Sync`.
unsafe impl Send for Process {}

/// Returns the name of a block's user in its tenant.
fn name(user: usize) -> usize {
    2 * (user + 1)
}

impl Process {
    fn new() -> Self {
        let block = |user| Block { tenant: Tenant::new(name(user)), word: ClaimedCount::default() };
        Self {
            table: Slots::new(),
            blocks: [0, 1, WHOLE].map(block),
            made: [(); THREADS].map(|()| Cores { memory: UnsafeCell::new(()) }),
            cores: AtomicPtr::new(ptr::null_mut()),
            groups: AtomicU32::new(0),
            gone: AtomicUsize::new(0),
            object: UnsafeCell::new(()),
        }
    }

    /// Puts a user's block into the table, and notes the group for the object.
    fn make(&self, user: usize) {
        let at = self.table.insert((&self.blocks[user]).into(), user, |_| ()).unwrap();
        self.groups.fetch_or(Table::group(at), Ordering::Relaxed);
    }

    /// Returns the user as which a thread counts.
    fn user(&self, thread: usize) -> usize {
        // Acquire: pairs with the Release in `split`.
        // SAFETY: they live as long as the process.
        match unsafe { self.cores.load(Ordering::Acquire).as_ref() } {
            Some(cores) => {
                cores.memory.with(|_| ());
                thread
            }
            None => WHOLE,
        }
    }

    fn split(&self, thread: usize) {
        let made = &self.made[thread];
        made.memory.with_mut(|_| ());
        let (none, new) = (ptr::null_mut(), ptr::from_ref(made).cast_mut());
        _ = self.cores.compare_exchange(none, new, Ordering::Release, Ordering::Relaxed);
    }

    /// Reads twice while it is pinned, and splits the process if it meets the other thread. The holds are
    /// dropped when it is not pinned any more.
    fn read(&self, thread: usize) {
        let mut has_block = false;
        let holds = [(); 2].map(|()| {
            let user = self.user(thread);
            if user == thread && !has_block {
                self.make(user);
                has_block = true;
            }
            let block = &self.blocks[user];
            let taker = thread as u64;
            let is_counted = block.tenant.is(name(user)) && block.word.claim(OBJECT, taker);
            let last = is_counted.then(|| block.word.take(OBJECT, taker)).flatten();
            if user == WHOLE && last.is_some_and(|last| last != taker) {
                self.split(thread);
            }
            last.map(|_| block)
        });
        self.gone.fetch_add(1, Ordering::Release);
        for block in holds.into_iter().flatten() {
            self.object.with(|_| ());
            block.word.leave();
        }
    }

    /// Ends the object if no read holds it. Returns whether it did.
    fn ask(&self) -> bool {
        if self.gone.load(Ordering::Acquire) < THREADS {
            return false;
        }
        // SAFETY: the blocks live as long as the process.
        let has = |block: NonNull<Block>| unsafe { block.as_ref() }.word.has(OBJECT);
        let groups = self.groups.load(Ordering::Relaxed);
        let ended = self.table.ask(groups, 0, THREADS + 1, has) == Asked::Free;
        if ended {
            self.object.with_mut(|_| ());
        }
        ended
    }
}

#[test]
fn an_object_ends_after_the_reads_of_a_process_that_is_split() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let process = Arc::new(Process::new());
        process.make(WHOLE);
        let threads = [0, 1].map(|thread| {
            let process = Arc::clone(&process);
            thread::spawn(move || process.read(thread))
        });
        let ended = process.ask();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(ended || process.ask(), "a reference is left");
        assert!(process.blocks.iter().all(|block| !block.word.is_used()));
    });
}
