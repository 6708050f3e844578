//! A member maps and unmaps its block without the lock, as `runtime/isolate/blocks.rs` does, while others
//! touch the block, name it in a call, or place memory beside it, under the lock.
//!
//! Requests interrupt their member between any two steps of a model ([`Member::step`]), and so do handlers.

use std::sync::Arc;

use pathreads::block::{Block, Blocks, State};
use pathreads::record::Members;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::loom::cell::Cell;
use sync::loom::thread;

use crate::explore;

const BLOCK: Block = Block { member: 0, size: 0, slot: 0 };
const OWNER: usize = 0;
const OTHER: usize = 1;
const THIRD: usize = 2;

/// The memory at the block's place, as one member has it mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mapping {
    No,
    Inaccessible,
    Writable,
}

/// The region at the block's place.
#[derive(Clone, Copy)]
struct Recorded {
    is_there: bool,
    holders: Members,
    current: Members,
}

/// The memory and the words that all members share.
struct World {
    blocks: Blocks,
    version: AtomicU64,
    lock: AtomicU32,
    recorded: Cell<Recorded>,
    content: Cell<u32>,
    /// Whether a request waits for a member, and whether the member is there to answer.
    pending: [AtomicU32; 3],
    is_there: [AtomicU32; 3],
    /// Whether the program has passed the address on.
    passed: AtomicBool,
}

/// A member, with what is private to it.
struct Member {
    world: Arc<World>,
    me: usize,
    mapping: std::cell::Cell<Mapping>,
    synced: std::cell::Cell<u64>,
    seen: std::cell::Cell<u32>,
    /// The number of steps to the one at which a handler comes.
    until_handler: std::cell::Cell<Option<usize>>,
}

impl World {
    /// Makes one in which the block is the owner's alone, in this state.
    fn new(state: State) -> Arc<Self> {
        let blocks = Blocks::new();
        blocks.change(BLOCK, State::Ordinary, state);
        let holders = Members::only(OWNER);
        Arc::new(World {
            blocks,
            version: AtomicU64::new(1),
            lock: AtomicU32::new(0),
            recorded: Cell::new(Recorded { is_there: true, holders, current: holders }),
            content: Cell::new(0),
            pending: std::array::from_fn(|_| AtomicU32::new(0)),
            is_there: std::array::from_fn(|_| AtomicU32::new(1)),
            passed: AtomicBool::new(false),
        })
    }

    fn member(self: &Arc<Self>, me: usize, mapping: Mapping) -> Member {
        let (world, seen) = (self.clone(), std::cell::Cell::new(self.blocks.uses(OWNER)));
        Member { world, me, mapping: mapping.into(), synced: 1.into(), seen, until_handler: None.into() }
    }
}

/// Starts a member's thread, which leaves in the end.
fn run(member: Member, f: impl FnOnce(&Member) + 'static) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        f(&member);
        member.locked(|recorded| {
            recorded.holders = recorded.holders.without(member.me);
            recorded.current = recorded.current.without(member.me);
            member.world.is_there[member.me].store(0, Ordering::Relaxed);
        });
    })
}

impl Member {
    /// Answers a request, if there is one.
    fn step(&self) {
        let pending = &self.world.pending[self.me];
        if pending.load(Ordering::Acquire) != 0 {
            self.mapping.set(Mapping::No);
            pending.store(0, Ordering::Release);
        }
        let left = self.until_handler.take();
        self.until_handler.set(left.and_then(|left| left.checked_sub(1)));
        if left == Some(0) && self.place() {
            self.access();
        }
    }

    /// Maps memory at the block's address, if that is free. Returns whether it did.
    fn place(&self) -> bool {
        self.locked(|recorded| {
            // A block that its member is about to unmap is not free yet.
            if self.world.blocks.state(BLOCK) == State::Busy {
                return false;
            }
            self.settle(recorded);
            let is_free = !recorded.is_there;
            if is_free {
                let holders = Members::only(self.me);
                *recorded = Recorded { is_there: true, holders, current: holders };
                self.mapping.set(Mapping::Writable);
            }
            is_free
        })
    }

    fn locked<R>(&self, f: impl FnOnce(&mut Recorded) -> R) -> R {
        let lock = &self.world.lock;
        while lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.step();
            thread::yield_now();
        }
        let mut recorded = self.world.recorded.get();
        let result = f(&mut recorded);
        self.world.recorded.set(recorded);
        lock.store(0, Ordering::Release);
        self.step();
        result
    }

    /// Asks all other holders to unmap the memory. The lock is held.
    fn request_unmapping(&self, holders: Members) {
        let World { pending, is_there, .. } = &*self.world;
        let asked = holders.without(self.me);
        let asked = asked.iter().filter(|member| is_there[*member].load(Ordering::Relaxed) != 0);
        let asked: Vec<_> = asked.map(|member| &pending[member]).collect();
        asked.iter().for_each(|pending| pending.store(1, Ordering::Release));
        for pending in asked {
            while pending.load(Ordering::Acquire) != 0 {
                thread::yield_now();
            }
        }
    }

    fn announce_to_all(&self) -> u64 {
        let version = self.world.version.load(Ordering::Relaxed);
        self.world.version.store(version + 1, Ordering::Relaxed);
        version
    }

    fn announce(&self) {
        let version = self.announce_to_all();
        if self.synced.get() == version {
            self.synced.set(version + 1);
        }
    }

    /// Changes the rights, as `mprotect` does.
    fn protect(&self, mapping: Mapping) -> bool {
        self.step();
        let is_mapped = self.mapping.get() != Mapping::No;
        if is_mapped {
            self.mapping.set(mapping);
        }
        self.step();
        is_mapped
    }

    /// Writes to the memory. Returns whether it could.
    fn write(&self, value: u32) -> bool {
        self.step();
        let can = self.mapping.get() == Mapping::Writable;
        if can {
            self.world.content.set(value);
        }
        can
    }

    /// Maps the kept block. Returns whether it did.
    fn map(&self) -> bool {
        let blocks = &self.world.blocks;
        if !blocks.change(BLOCK, State::Kept, State::Busy) {
            return false;
        }
        if !self.protect(Mapping::Writable) {
            blocks.change(BLOCK, State::Busy, State::Kept);
            return false;
        }
        if blocks.change(BLOCK, State::Busy, State::Used) {
            return true;
        }
        self.restore();
        false
    }

    /// Unmaps the block. Returns whether that was not left to the record.
    fn unmap(&self) -> bool {
        let blocks = &self.world.blocks;
        if !blocks.change(BLOCK, State::Used, State::Busy) {
            return false;
        }
        self.step();
        if !self.write(0) || !self.protect(Mapping::Inaccessible) {
            return !blocks.change(BLOCK, State::Busy, State::Used);
        }
        if !blocks.change(BLOCK, State::Busy, State::Kept) {
            self.restore();
        }
        true
    }

    /// Gives the memory the rights that are recorded.
    fn restore(&self) {
        self.locked(|recorded| {
            if recorded.is_there && recorded.holders.has(self.me) {
                assert!(self.mapping.get() != Mapping::No);
                self.mapping.set(Mapping::Writable);
            }
        });
    }

    /// Unmaps memory that the record alone describes. The lock is held.
    fn remove(&self, recorded: &mut Recorded) {
        if recorded.is_there {
            recorded.is_there = false;
            self.mapping.set(Mapping::No);
            self.request_unmapping(recorded.holders);
            self.world.content.set(0);
        }
    }

    fn settle(&self, recorded: &mut Recorded) {
        if !recorded.is_there || self.world.blocks.state(BLOCK) == State::Ordinary {
            return;
        }
        match self.me {
            OWNER => self.announce(),
            _ => _ = self.announce_to_all(),
        }
        if matches!(self.world.blocks.end(BLOCK), State::Kept | State::Busy) {
            self.remove(recorded);
        }
    }

    /// Maps the block if it is the program's, and makes it ordinary. The lock is held.
    fn take(&self, recorded: &mut Recorded) {
        if recorded.is_there && !recorded.current.has(self.me) && self.is_open() {
            self.mapping.set(Mapping::Writable);
            recorded.holders = recorded.holders.with(self.me);
            recorded.current = recorded.current.with(self.me);
        }
    }

    fn is_open(&self) -> bool {
        let blocks = &self.world.blocks;
        if blocks.state(BLOCK) == State::Used {
            self.announce();
            blocks.change(BLOCK, State::Used, State::Ordinary);
        }
        blocks.state(BLOCK) == State::Ordinary
    }

    /// Accesses the memory, which the program has.
    fn access(&self) {
        if !self.write(1) {
            self.locked(|recorded| self.take(recorded));
            assert!(self.write(1), "a member cannot reach memory of the program");
        }
    }

    fn is_synced(&self) -> bool {
        self.world.version.load(Ordering::Relaxed) == self.synced.get()
    }

    fn may_be_others(&self) -> bool {
        self.me != OWNER && self.world.blocks.state(BLOCK) != State::Ordinary
    }

    /// Has the block mapped before a call that names it.
    fn touch(&self) {
        if !(self.is_synced() && !self.may_be_others() && self.is_synced()) {
            self.locked(|recorded| self.take(recorded));
        }
    }

    /// Has everything mapped before a call of which the memory is not known.
    fn sync(&self) {
        let uses = &self.world.blocks;
        if !self.is_synced() || uses.uses(OWNER) != self.seen.get() {
            self.locked(|recorded| {
                self.seen.set(uses.uses(OWNER));
                self.take(recorded);
                self.synced.set(self.world.version.load(Ordering::Relaxed));
            });
        }
    }

    /// Lets the kernel access the memory, which a call names. It does not come to the handler of SIGSEGV.
    fn call(&self) {
        assert_eq!(self.mapping.get(), Mapping::Writable, "a call cannot reach memory of the program");
    }
}

/// Another member names a place beside the block, or places memory there, at any moment.
#[test]
fn a_block_is_the_members_until_it_is_ordinary() {
    explore(2, || {
        let world = World::new(State::Kept);
        let other = run(world.member(OTHER, Mapping::No), |other| {
            if other.place() {
                assert_eq!(other.world.content.get(), 0);
                other.access();
                assert_eq!(other.world.content.get(), 1, "another member has written to it");
            }
        });
        let own = run(world.member(OWNER, Mapping::Inaccessible), |own| {
            for _ in 0..2 {
                if !own.map() {
                    break;
                }
                own.step();
                assert_eq!(own.world.content.get(), 0, "a new block is not zero");
                own.access();
                if !own.unmap() {
                    own.locked(|recorded| own.remove(recorded));
                }
                assert!(
                    own.mapping.get() != Mapping::Writable,
                    "memory can be touched after it was unmapped"
                );
            }
        });
        own.join().unwrap();
        other.join().unwrap();
    });
}

/// Another member names a place beside the block while its member has it, and unmaps nothing.
#[test]
fn a_block_beside_which_memory_is_placed() {
    explore(3, || {
        let world = World::new(State::Used);
        let other = run(world.member(OTHER, Mapping::No), |other| {
            other.locked(|recorded| other.settle(recorded));
        });
        let own = run(world.member(OWNER, Mapping::Writable), |own| {
            own.access();
            if !own.unmap() {
                own.locked(|recorded| own.remove(recorded));
            }
            assert!(own.mapping.get() != Mapping::Writable, "memory can be touched after it was unmapped");
            if own.map() {
                assert_eq!(own.world.content.get(), 0, "a new block is not zero");
                own.access();
            }
        });
        own.join().unwrap();
        other.join().unwrap();
    });
}

/// A member that had everything mapped has a block that is new mapped before a call of which the memory is
/// not known. It maps everything once more while the block becomes used.
#[test]
fn a_new_block_is_mapped_before_a_call() {
    explore(3, || {
        let world = World::new(State::Kept);
        let other = world.member(OTHER, Mapping::No);
        other.synced.set(0);
        let other = run(other, |other| {
            other.sync();
            if other.world.passed.load(Ordering::Acquire) {
                other.sync();
                other.call();
                other.access();
            }
        });
        let own = run(world.member(OWNER, Mapping::Inaccessible), |own| {
            assert!(own.map());
            own.access();
            own.world.passed.store(true, Ordering::Release);
        });
        own.join().unwrap();
        other.join().unwrap();
    });
}

/// The same before a call that names the memory, while a third member opens the block, or settles it.
#[test]
fn a_block_that_a_third_member_opens_is_mapped_before_a_call() {
    for is_settled in [false, true] {
        explore(3, move || {
            let world = World::new(State::Used);
            let other = run(world.member(OTHER, Mapping::No), |other| {
                other.touch();
                other.call();
            });
            let third = run(world.member(THIRD, Mapping::No), move |third| match is_settled {
                true => third.locked(|recorded| third.settle(recorded)),
                false => third.locked(|recorded| third.take(recorded)),
            });
            other.join().unwrap();
            third.join().unwrap();
        });
    }
}

/// A handler of the member asks for the block's address at any moment. It gets it if the block is unmapped.
/// The call that it has interrupted does not change the memory then.
#[test]
fn a_handler_places_memory_where_a_block_was() {
    for step in 0..12 {
        explore(1, move || {
            let world = World::new(State::Kept);
            let own = world.member(OWNER, Mapping::Inaccessible);
            own.until_handler.set(Some(step));
            own.step();
            let is_mapped = own.map();
            if is_mapped {
                own.access();
                if !own.unmap() {
                    own.locked(|recorded| own.remove(recorded));
                }
            }
            own.step();
            let is_placed = own.locked(|recorded| recorded.is_there && own.is_open());
            assert!(is_mapped || is_placed);
            if is_placed {
                assert_eq!(own.world.content.get(), 1, "the handler's memory was cleared");
                own.access();
            }
        });
    }
}
