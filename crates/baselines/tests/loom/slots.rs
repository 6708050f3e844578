//! The life of a block of counters (`kernel/src/mm/read_counters.rs`): a user counts there, the block is
//! taken away, leaves its slot and is freed, another user's takes the slot, and one asks about the user's
//! object. Loom reports an end of the object, or of the block, that is not ordered after every use.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use baselines::{Asked, ClaimedCount, Slots, Tenant};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;
use sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

const USER: usize = 2;
const OTHER: usize = 4;
/// The object that ends, and another.
const FIRST: u64 = 1;
const SECOND: u64 = 2;
/// No slot.
const NONE: usize = usize::MAX;

struct Block {
    tenant: Tenant,
    word: ClaimedCount,
    slot: AtomicUsize,
    /// Written when the block is freed, read by each that uses it.
    memory: UnsafeCell<()>,
}

impl Block {
    fn new(user: usize) -> Self {
        Self {
            tenant: Tenant::new(user),
            word: ClaimedCount::default(),
            slot: AtomicUsize::new(NONE),
            memory: UnsafeCell::new(()),
        }
    }

    fn note(&self, at: usize) {
        self.slot.store(at, Ordering::Relaxed);
    }

    fn free(&self) {
        self.memory.with_mut(|_| ());
    }
}

struct World {
    slots: Slots<Block, 1>,
    blocks: [Block; 2],
    /// Written when the object ends, read by each that reads it.
    object: UnsafeCell<()>,
    /// The reader, or the one that asks, is not pinned any more.
    has_read: AtomicBool,
    has_asked: AtomicBool,
}

// SAFETY: loom checks every access to the cells.
unsafe impl Sync for World {}
// SAFETY: as for `Sync`.
unsafe impl Send for World {}

impl World {
    fn new() -> Self {
        Self {
            slots: Slots::new(),
            blocks: [Block::new(USER), Block::new(OTHER)],
            object: UnsafeCell::new(()),
            has_read: AtomicBool::new(false),
            has_asked: AtomicBool::new(false),
        }
    }

    fn insert(&self, block: usize) -> Option<usize> {
        let block = &self.blocks[block];
        self.slots.insert(block.into(), 0, |at| block.note(at))
    }

    /// Returns the block in the slot.
    fn found(&self) -> Option<&Block> {
        // SAFETY: the blocks live as long as the world.
        self.slots.get(0).map(|block| unsafe { block.as_ref() })
    }

    /// Claims a counter for the object and counts there, as two reads of a pinned core.
    fn read(&self) {
        let block = self.found().filter(|block| block.tenant.is(USER));
        let held = block.filter(|block| {
            block.memory.with(|_| ());
            block.word.claim(FIRST, 0) && block.word.take(FIRST, 0).is_some()
        });
        self.has_read.store(true, Ordering::Release);
        if let Some(block) = held {
            self.object.with(|_| ());
            block.memory.with(|_| ());
            block.word.leave();
        }
    }

    /// Takes the user's block away, takes it out of its slot when it counts nothing, and frees it if the one
    /// that asks has gone. Returns whether it is free.
    fn retire(&self, take_away: fn(&Tenant) -> bool) -> bool {
        let block = &self.blocks[0];
        let is_due = take_away(&block.tenant) && self.has_read.load(Ordering::Acquire);
        if !is_due || block.word.is_used() {
            return false;
        }
        self.slots.remove(0);
        let is_last = self.has_asked.load(Ordering::Acquire);
        if is_last {
            block.free();
        }
        is_last
    }

    /// Makes another user's block, puts it into the slot if that is empty, and counts another object there.
    fn come(&self) {
        let block = &self.blocks[1];
        block.memory.with_mut(|_| ());
        if self.insert(1).is_some() && block.word.claim(SECOND, 0) {
            block.word.take(SECOND, 0);
        }
    }

    /// Ends the object if no read holds it. Returns whether it did.
    fn ask(&self) -> bool {
        if !self.has_read.load(Ordering::Acquire) {
            return false;
        }
        let has = |block: NonNull<Block>| {
            // SAFETY: the blocks live as long as the world.
            let block = unsafe { block.as_ref() };
            block.memory.with(|_| ());
            block.word.has(FIRST)
        };
        let ended = self.slots.ask(Slots::<Block, 1>::group(0), 0, 1, has) == Asked::Free;
        if ended {
            self.object.with_mut(|_| ());
        }
        ended
    }
}

fn explore(comes: bool, take_away: fn(&Tenant) -> bool) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(if comes { 2 } else { 3 });
    builder.check(move || {
        let world = Arc::new(World::new());
        assert_eq!(world.insert(0), Some(0));
        let [reader, retirer, comer] = [(); 3].map(|()| Arc::clone(&world));
        let reader = thread::spawn(move || reader.read());
        let retirer = thread::spawn(move || retirer.retire(take_away));
        let comer = comes.then(|| thread::spawn(move || comer.come()));
        let ended = world.ask();
        world.has_asked.store(true, Ordering::Release);
        reader.join().unwrap();
        let is_free = retirer.join().unwrap();
        comer.into_iter().for_each(|comer| comer.join().unwrap());
        if !ended {
            assert!(world.ask(), "a reference is left");
        }
        if !is_free {
            world.blocks[0].free();
        }
    });
}

#[test]
fn a_process_ends_while_one_asks() {
    explore(false, |tenant| tenant.end(USER));
}

/// The second sweep finds a block that was not used since the first, unless the reader came in between.
#[test]
fn a_cold_block_is_taken_away_while_one_asks() {
    explore(false, |tenant| tenant.sweep() || tenant.sweep());
}

#[test]
fn another_block_takes_the_slot_while_one_asks() {
    explore(true, |tenant| tenant.end(USER));
}

/// A thread of a process remembers the slot that another of its threads fills again. It notes the block's
/// number in the object before it counts there, so it must not find another one.
#[test]
fn a_block_has_its_number_when_it_is_in_the_slot() {
    loom::model(|| {
        let world = Arc::new(World::new());
        let maker = Arc::clone(&world);
        let maker = thread::spawn(move || maker.insert(0));
        if let Some(block) = world.found() {
            assert_eq!(block.slot.load(Ordering::Relaxed), 0);
        }
        assert_eq!(maker.join().unwrap(), Some(0));
    });
}

/// Whatever the user does meanwhile, one caller frees the block.
#[test]
fn a_block_is_taken_away_once() {
    loom::model(|| {
        let tenant = Arc::new(Tenant::new(USER));
        let [sweep, user] = [(); 2].map(|()| Arc::clone(&tenant));
        let sweep = thread::spawn(move || [(); 2].map(|()| sweep.sweep()));
        let is_used = user.is(USER);
        let ends = user.end(USER);
        let sweeps = sweep.join().unwrap();
        assert!(is_used || sweeps != [false; 2], "only a sweep takes it from a user that reads");
        assert_eq!(sweeps.into_iter().chain([ends]).filter(|&freed| freed).count(), 1);
        assert!(!tenant.is(USER) && !tenant.end(USER) && !tenant.sweep());
    });
}

/// A sweep has cleared the bit that the block is used. Threads of its user may find that at the same time.
#[test]
fn threads_of_a_user_both_find_their_block() {
    loom::model(|| {
        let tenant = Arc::new(Tenant::new(USER));
        assert!(!tenant.sweep());
        let other = Arc::clone(&tenant);
        let other = thread::spawn(move || other.is(USER));
        assert!(tenant.is(USER) & other.join().unwrap());
    });
}

/// The hint may pass over a slot that is emptied while a block is inserted behind it.
#[test]
fn a_slot_that_is_emptied_during_an_insertion_is_found() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32, 2>::new());
        let insert = || slots.insert(NonNull::dangling(), 0, |_| ());
        assert_eq!([insert(), insert()], [Some(0), Some(1)]);
        slots.remove(1);
        let other = Arc::clone(&slots);
        let other = thread::spawn(move || other.remove(0));
        assert!(insert().is_some());
        other.join().unwrap();
        assert!(insert().is_some());
    });
}

/// The sweep has taken a user's block, and two threads make a new one each. One comes into the slot that the
/// user remembers. If the other begins when that has been changed, each may end the block of the other.
#[test]
fn threads_that_make_blocks_leave_none_that_is_not_remembered() {
    loom::model(|| {
        let blocks = [(); 2].map(|()| Block::new(USER));
        let user = Arc::new((Slots::<Block, 2>::new(), blocks, AtomicPtr::new(ptr::null_mut())));
        user.2.store(ptr::from_ref(user.0.slot(0).unwrap()).cast_mut(), Ordering::Relaxed);
        let other = Arc::clone(&user);
        let make = |user: &(Slots<Block, 2>, [Block; 2], AtomicPtr<_>), thread: usize| {
            let (slots, blocks, word) = user;
            let (old, block) = (word.load(Ordering::Relaxed), NonNull::from(&blocks[thread]));
            let at = slots.insert(block, thread, |_| ()).unwrap();
            if let Some(block) = slots.remember(word, old, at, block) {
                // SAFETY: the blocks live as long as the user.
                unsafe { block.as_ref() }.tenant.end(USER);
            }
        };
        let thread = thread::spawn(move || make(&other, 1));
        make(&user, 0);
        thread.join().unwrap();
        let (_, blocks, word) = &*user;
        // SAFETY: a slot of the table.
        let remembered = unsafe { &*word.load(Ordering::Relaxed) }.load(Ordering::Relaxed);
        assert!(blocks.iter().all(|block| ptr::eq(block, remembered) || !block.tenant.is(USER)));
    });
}
