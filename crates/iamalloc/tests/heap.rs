//! Random calls of one and of several threads, with the contents of the blocks checked.
#![cfg(not(loom))]

mod common;

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use common::Counted;
use iamalloc::heap::{Heaps, SubHeap};

const SEGMENT: usize = 4 << 20;
const RUN: usize = 64 << 10;

/// Returns the places at which a block is looked at: all of a small one.
fn places(size: usize) -> impl Iterator<Item = usize> {
    (0..size).step_by(1 + size / 5000).chain(size.checked_sub(1))
}

/// A block whose bytes all have one value.
struct Filled {
    start: *mut u8,
    size: usize,
    value: u8,
}

// SAFETY: a block is its holder's, whichever thread that is.
unsafe impl Send for Filled {}

/// A thread's part of an allocator.
struct Thread<'a> {
    heaps: &'a Heaps<Counted>,
    mine: NonNull<SubHeap>,
    random: u64,
}

impl<'a> Thread<'a> {
    fn new(heaps: &'a Heaps<Counted>, seed: u64) -> Self {
        Thread { heaps, mine: heaps.claim().unwrap(), random: seed * 2 + 1 }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % end
    }

    fn try_alloc(&mut self, size: usize, align: usize) -> Option<Filled> {
        // SAFETY: this thread has claimed the sub-heap.
        let (start, is_zeroed) = unsafe { self.heaps.alloc(self.mine, size, align) };
        if start.is_null() {
            return None;
        }
        assert!(start.addr().is_multiple_of(align.max(16)), "{size} at {align}: {start:p}");
        // SAFETY: the block has these bytes.
        assert!(unsafe { self.heaps.usable(start) } >= size);
        // SAFETY: as above, and they are zeroed.
        assert!(!is_zeroed || places(size).all(|at| unsafe { start.add(at).read() } == 0));
        let value = self.below(256) as u8;
        // SAFETY: as above.
        unsafe { start.write_bytes(value, size) };
        Some(Filled { start, size, value })
    }

    fn alloc(&mut self) -> Filled {
        let most = [64, 64, 1000, 1000, 9000, 70_000, 5 << 20][self.below(if cfg!(miri) { 5 } else { 7 })];
        let size = self.below(most);
        let align = 1 << self.below(if most < 9000 { 8 } else { 18 });
        self.try_alloc(size, align).unwrap()
    }

    fn free(&self, block: Filled) {
        let Filled { start, size, value } = block;
        // SAFETY: the block has these bytes.
        assert!(places(size).all(|at| unsafe { start.add(at).read() } == value), "a block has changed");
        // SAFETY: it was allocated here and is used no more.
        unsafe { self.heaps.free(self.mine.as_ptr(), start) };
    }

    fn leave(self) {
        // SAFETY: the thread uses it no more.
        unsafe { self.heaps.leave(self.mine) };
    }
}

const ROUNDS: usize = if cfg!(miri) { 100 } else { 6_000 };

#[test]
#[cfg_attr(miri, ignore = "takes minutes there")]
fn blocks_of_one_thread_are_its_own() {
    for seed in 0..if cfg!(miri) { 1 } else { 3 } {
        let heaps = Heaps::new(Counted::new());
        let mut thread = Thread::new(&heaps, seed);
        let mut held = Vec::new();
        for _ in 0..ROUNDS {
            if held.len() < 200 && thread.below(5) < 3 {
                let block = thread.alloc();
                held.push(block);
            } else if !held.is_empty() {
                let at = thread.below(held.len());
                thread.free(held.swap_remove(at));
            }
        }
        held.into_iter().for_each(|block| thread.free(block));
        thread.leave();
        assert!(heaps.source().mapped.load(Ordering::Relaxed) < 10 * SEGMENT, "memory has not come back");
    }
}

/// Each thread passes blocks to the next one, which frees them.
#[test]
fn any_thread_frees_any_block() {
    const THREADS: usize = 4;
    let heaps = Heaps::new(Counted::new());
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel::<Filled>()).unzip();
    thread::scope(|scope| {
        for (number, receiver) in receivers.into_iter().enumerate() {
            let (next, heaps) = (senders[(number + 1) % THREADS].clone(), &heaps);
            scope.spawn(move || {
                let mut thread = Thread::new(heaps, number as u64);
                for _ in 0..ROUNDS / 4 {
                    next.send(thread.alloc()).unwrap();
                    receiver.try_iter().for_each(|block| thread.free(block));
                }
                drop(next);
                receiver.iter().for_each(|block| thread.free(block));
                thread.leave();
            });
        }
        drop(senders);
    });
    // Blocks that were freed after their thread had left are taken back by the next threads.
    let all: Vec<_> = (0..THREADS).map(|seed| Thread::new(&heaps, seed as u64)).collect();
    let maps = heaps.source().maps.load(Ordering::Relaxed);
    all.into_iter().for_each(Thread::leave);
    assert_eq!(heaps.source().maps.load(Ordering::Relaxed), maps, "idle sub-heaps were not used");
    assert!(
        heaps.source().mapped.load(Ordering::Relaxed) < (8 * THREADS + 1) * SEGMENT,
        "memory has not come back"
    );
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes there")]
fn blocks_that_others_free_are_used_again() {
    let heaps = Heaps::new(Counted::new());
    let (mut producer, consumer) = (Thread::new(&heaps, 1), Thread::new(&heaps, 2));
    for size in [16, 500, 8000, 100_000] {
        let rounds = if cfg!(miri) { 10 } else { 10 * SEGMENT / size };
        for _ in 0..rounds {
            let block = producer.try_alloc(size, 16).unwrap();
            consumer.free(block);
        }
    }
    assert!(heaps.source().maps.load(Ordering::Relaxed) <= 2 + 2, "blocks were not used again");
    producer.leave();
    consumer.leave();
}

#[test]
fn a_thread_that_ends_leaves_its_memory_to_the_next_one() {
    let heaps = Heaps::new(Counted::new());
    for round in 0..if cfg!(miri) { 5 } else { 100 } {
        let mut thread = Thread::new(&heaps, round);
        let block = thread.try_alloc(100, 16).unwrap();
        thread.free(block);
        thread.leave();
    }
    assert_eq!(heaps.source().maps.load(Ordering::Relaxed), 2, "a sub-heap and a segment");
}

/// Memory of free runs goes back when many have become free, and all when the thread leaves.
#[test]
#[cfg_attr(miri, ignore = "takes minutes there")]
fn free_memory_goes_back() {
    let heaps = Heaps::new(Counted::new());
    let mut thread = Thread::new(&heaps, 1);
    let blocks: Vec<_> = (0..400).map(|_| thread.try_alloc(2 * RUN, 16).unwrap()).collect();
    let small: Vec<_> = (0..1000).map(|_| thread.try_alloc(1000, 16).unwrap()).collect();
    blocks.into_iter().for_each(|block| thread.free(block));
    let discarded = heaps.source().discarded.load(Ordering::Relaxed);
    assert!(discarded >= 200 * RUN, "{discarded}");
    small.into_iter().for_each(|block| thread.free(block));
    thread.leave();
    let source = heaps.source();
    assert!(source.mapped.load(Ordering::Relaxed) < 10 * SEGMENT);
    // Memory that has been given back reads as zeroes, and is known to.
    let mut next = Thread::new(&heaps, 2);
    // SAFETY: this thread has claimed the sub-heap.
    let (start, is_zeroed) = unsafe { heaps.alloc(next.mine, 20 * RUN, 16) };
    assert!(is_zeroed && !start.is_null());
    // SAFETY: the block has these bytes.
    assert!((0..20 * RUN).all(|at| unsafe { start.add(at).read() } == 0));
    // SAFETY: it is used no more.
    unsafe { heaps.free(next.mine.as_ptr(), start) };
    let block = next.try_alloc(1, 1).unwrap();
    next.free(block);
    next.leave();
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes there")]
fn without_memory_there_is_no_block_and_nothing_is_lost() {
    let heaps = Heaps::new(Counted::new());
    let mut thread = Thread::new(&heaps, 1);
    let mut held = vec![thread.try_alloc(8000, 16).unwrap()];
    heaps.source().room.store(0, Ordering::Relaxed);
    assert!(thread.try_alloc(5 << 20, 16).is_none(), "a mapping of its own");
    while let Some(block) = thread.try_alloc(8000, 16) {
        held.push(block);
    }
    assert!(held.len() > 400 && thread.try_alloc(40, 16).is_none());
    assert!(heaps.claim().is_none(), "there is no memory for another sub-heap");
    let freed = held.len() / 2;
    held.drain(..freed).for_each(|block| thread.free(block));
    held.extend((0..freed).map(|_| thread.try_alloc(8000, 16).unwrap()));
    held.into_iter().for_each(|block| thread.free(block));
    assert!(thread.try_alloc(usize::MAX, 16).is_none() && thread.try_alloc(1, 4 << 20).is_none());
    thread.leave();
}

/// A thread without a sub-heap frees blocks, too.
#[test]
fn a_thread_without_a_sub_heap_frees() {
    let heaps = Heaps::new(Counted::new());
    let mut thread = Thread::new(&heaps, 1);
    for size in [10, 100_000, 5 << 20] {
        let block = thread.try_alloc(size, 16).unwrap();
        // SAFETY: it was allocated here and is used no more.
        unsafe { heaps.free(ptr::null(), block.start) };
    }
    thread.leave();
    assert!(heaps.source().mapped.load(Ordering::Relaxed) < 2 * SEGMENT);
}

/// A segment is unmapped when the last of its runs is given back, which was in use.
#[test]
fn segments_without_blocks_are_unmapped() {
    let heaps = Heaps::new(Counted::new());
    let mut thread = Thread::new(&heaps, 1);
    let blocks: Vec<_> = (0..12)
        .flat_map(|_| {
            let large = thread.try_alloc(62 * RUN, 16).unwrap();
            let small: Vec<_> = (0..8).map(|_| thread.try_alloc(8 << 10, 16).unwrap()).collect();
            [large].into_iter().chain(small)
        })
        .collect();
    let most = heaps.source().mapped.load(Ordering::Relaxed);
    assert!(most >= 12 * SEGMENT);
    blocks.into_iter().for_each(|block| thread.free(block));
    assert!(heaps.source().mapped.load(Ordering::Relaxed) < most - SEGMENT);
    thread.leave();
}

/// Blocks that others free when their thread has ended are used before new memory is mapped.
#[test]
#[cfg_attr(miri, ignore = "takes minutes there")]
fn memory_of_threads_that_have_ended_is_used_again() {
    let heaps = Heaps::new(Counted::new());
    let mut ended: Vec<_> = (0..12).map(|seed| Thread::new(&heaps, seed)).collect();
    let count = if cfg!(miri) { 3 } else { 500 };
    let blocks: Vec<Vec<_>> = ended
        .iter_mut()
        .map(|thread| (0..count).map(|_| thread.try_alloc(10_000, 16).unwrap()).collect())
        .collect();
    let mut last = Thread::new(&heaps, 1);
    ended.into_iter().for_each(Thread::leave);
    blocks.into_iter().flatten().for_each(|block| last.free(block));
    let discarded = || heaps.source().discarded.load(Ordering::Relaxed);
    let before = discarded();
    let large: Vec<_> = (0..3).map(|_| last.try_alloc(60 * RUN, 16).unwrap()).collect();
    assert!(discarded() - before >= 12 * 8 * RUN, "{} bytes have come back", discarded() - before);
    large.into_iter().for_each(|block| last.free(block));
    last.leave();
}

/// Segments with few free runs do not stand in the way of a block that needs many.
#[test]
#[cfg_attr(miri, ignore = "takes minutes there")]
fn runs_are_found_in_a_segment_that_has_them() {
    let heaps = Heaps::new(Counted::new());
    let mut thread = Thread::new(&heaps, 1);
    let segments = if cfg!(miri) { 4 } else { 40 };
    let mut blocks: Vec<_> = (0..2 * segments).map(|_| thread.try_alloc(31 * RUN, 16).unwrap()).collect();
    let maps = heaps.source().maps.load(Ordering::Relaxed);
    assert_eq!(maps, 1 + segments);
    // One stretch of 31 runs in all, and single ones everywhere.
    thread.free(blocks.remove(segments));
    blocks.push(thread.try_alloc(20 * RUN, 16).unwrap());
    blocks.push(thread.try_alloc(11 * RUN, 16).unwrap());
    blocks.extend((0..8 * segments).map(|_| thread.try_alloc(8 << 10, 16).unwrap()));
    assert_eq!(heaps.source().maps.load(Ordering::Relaxed), maps);
    blocks.into_iter().for_each(|block| thread.free(block));
    thread.leave();
}

/// Large blocks that are exchanged have the memory of those before, and hardly any new.
#[test]
#[cfg_attr(miri, ignore = "takes minutes there")]
fn exchanged_large_blocks_keep_their_memory() {
    const EXCHANGES: usize = 400;
    let heaps = Heaps::new(Counted::new());
    let mut thread = Thread::new(&heaps, 1);
    let mut blocks: Vec<Filled> = Vec::new();
    let mut allocated = 0;
    for _ in 0..EXCHANGES {
        if blocks.len() == 4 {
            let freed = thread.below(4);
            thread.free(blocks.swap_remove(freed));
        }
        let size = RUN + thread.below(62 * RUN);
        allocated += size;
        blocks.push(thread.try_alloc(size, 16).unwrap());
    }
    let source = heaps.source();
    let (maps, discarded) = (source.maps.load(Ordering::Relaxed), source.discarded.load(Ordering::Relaxed));
    assert!(maps < EXCHANGES / 20, "{maps} mappings");
    assert!(discarded < allocated / 20, "{discarded} of {allocated} bytes were given back");
    blocks.into_iter().for_each(|block| thread.free(block));
    thread.leave();
}
