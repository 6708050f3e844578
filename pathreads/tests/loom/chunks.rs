//! Threads map and unmap blocks of one chunk as the pool does (`runtime/pool.rs`), while others revoke free
//! blocks, or name the memory in another call.

use pathreads::PAGE;
use pathreads::chunk::{Chunk, Content, MOST_PAGES, SIZE};
use sync::atomic::{AtomicU32, Ordering};
use sync::loom::cell::Cell;
use sync::loom::sync::Arc;
use sync::loom::thread;

use crate::explore;

/// Three blocks.
const PAGES: u64 = MOST_PAGES / 2;
const _: () = assert!(SIZE / (PAGES * PAGE) == 3);

/// The memory of a block, and its mapping.
struct Place {
    content: Cell<u32>,
    is_mapped: Cell<bool>,
}

struct Pool {
    chunk: Chunk,
    places: [Place; 3],
}

impl Pool {
    fn new() -> Arc<Self> {
        let place = |_| Place { content: Cell::new(0), is_mapped: Cell::new(true) };
        Arc::new(Pool { chunk: Chunk::new(), places: std::array::from_fn(place) })
    }

    /// Returns one whose only free block is the first.
    fn with_one() -> Arc<Self> {
        let pool = Pool::new();
        pool.chunk.begin(0, PAGES);
        (1..3).for_each(|block| _ = pool.chunk.claim(block));
        pool
    }

    /// Makes a block that was taken what the program was promised.
    fn prepare(&self, block: usize, content: Content) {
        let place = &self.places[block];
        match content {
            Content::Dirty => place.content.set(0),
            Content::Clean => {}
            Content::Gone => {
                assert!(!place.is_mapped.get());
                place.is_mapped.set(true);
                place.content.set(0);
            }
        }
    }

    fn map(&self) -> Option<usize> {
        let (block, content) = self.chunk.take()?;
        self.prepare(block, content);
        self.chunk.begin_use(block);
        Some(block)
    }

    /// Uses a block that the program has.
    fn write(&self, block: usize, value: u32) {
        let Place { content, is_mapped } = &self.places[block];
        assert!(is_mapped.get());
        assert_eq!(content.replace(value), 0, "a new block is not zero");
    }

    /// Unmaps a block. Returns whether the pool has it.
    fn unmap(&self, block: usize) -> bool {
        let has_it = self.chunk.end_use(block);
        if has_it {
            self.chunk.give(block, Content::Dirty);
        } else if self.chunk.end_kernels(block) {
            self.places[block].is_mapped.set(false);
            self.chunk.give(block, Content::Gone);
            return true;
        }
        has_it
    }

    /// Makes a free block inaccessible, if it is dirty.
    fn revoke(&self, block: usize) {
        match self.chunk.claim(block) {
            Some(Content::Dirty) => {
                self.places[block].is_mapped.set(false);
                self.chunk.give(block, Content::Gone);
            }
            Some(other) => self.chunk.give(block, other),
            None => {}
        }
    }

    /// Makes a block the kernel's.
    fn settle(&self, block: usize) {
        if self.chunk.end_use(block) {
            self.chunk.begin_kernels(block);
        } else if self.chunk.claim(block).is_some() {
            self.places[block].is_mapped.set(false);
            self.chunk.begin_kernels(block);
        }
    }
}

/// A block goes from one thread to the other, and a third revokes it.
#[test]
fn a_block_is_one_threads_and_zero() {
    explore(3, || {
        let pool = Pool::with_one();
        let threads = [1, 2].map(|value| {
            let pool = pool.clone();
            thread::spawn(move || {
                if let Some(block) = pool.map() {
                    pool.write(block, value);
                    assert!(pool.unmap(block));
                }
            })
        });
        pool.revoke(0);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let block = pool.map().unwrap();
        pool.write(block, 3);
    });
}

/// A call names the memory of a block in another way, while one thread has it, or unmaps it, and another
/// maps. The block is the kernel's from then on, or it was unmapped before.
#[test]
fn a_block_that_is_named_is_the_kernels_or_was_free() {
    explore(3, || {
        let pool = Pool::with_one();
        let first = pool.map().unwrap();
        pool.write(first, 1);
        let unmapping = {
            let pool = pool.clone();
            thread::spawn(move || {
                pool.chunk.end_use(first) && {
                    pool.chunk.give(first, Content::Dirty);
                    true
                }
            })
        };
        let mapping = {
            let pool = pool.clone();
            thread::spawn(move || pool.map().inspect(|block| pool.write(*block, 2)))
        };
        pool.settle(first);
        let (was_unmapped, mapped) = (unmapping.join().unwrap(), mapping.join().unwrap());
        let is_kernels = pool.chunk.end_kernels(first);
        let is_free = pool.chunk.claim(first).is_some();
        let is_used = pool.chunk.end_use(first);
        assert!(was_unmapped || mapped.is_none());
        match (is_kernels, is_free, is_used) {
            (true, false, false) => {}
            // The call came between, and found it taken.
            (false, true, false) => assert!(was_unmapped && mapped.is_none()),
            (false, false, true) => assert!(was_unmapped && mapped.is_some()),
            others => panic!("{others:?}"),
        }
    });
}

/// Two threads unmap the same block: one of them does.
#[test]
fn a_block_is_unmapped_once() {
    explore(3, || {
        let pool = Pool::with_one();
        let block = pool.map().unwrap();
        let other = {
            let pool = pool.clone();
            thread::spawn(move || pool.unmap(block))
        };
        let own = pool.unmap(block);
        assert!(own ^ other.join().unwrap());
        assert_eq!((pool.map(), pool.map()), (Some(block), None));
    });
}

/// A thread names the memory of a chunk that another begins: its blocks are clean as soon as they are free.
#[test]
fn a_chunk_that_begins_has_clean_blocks() {
    explore(3, || {
        let pool = Pool::new();
        let other = {
            let pool = pool.clone();
            thread::spawn(move || pool.chunk.begin(0, PAGES))
        };
        assert!(pool.chunk.claim(0).is_none_or(|content| content == Content::Clean));
        other.join().unwrap();
    });
}

/// The program passes the address of a block on in its own way, and the other thread unmaps it.
#[test]
fn a_block_is_unmapped_by_another_thread() {
    explore(3, || {
        let pool = Pool::with_one();
        let passed = Arc::new(AtomicU32::new(0));
        let other = {
            let (pool, passed) = (pool.clone(), passed.clone());
            thread::spawn(move || {
                if passed.load(Ordering::Acquire) != 0 {
                    assert_eq!(pool.places[0].content.get(), 1);
                    assert!(pool.unmap(0));
                }
            })
        };
        let block = pool.map().unwrap();
        pool.write(block, 1);
        passed.store(1, Ordering::Release);
        if let Some(again) = pool.map() {
            pool.write(again, 2);
        }
        other.join().unwrap();
    });
}
