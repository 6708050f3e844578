//! Models of what threads share: the list of blocks that others have freed, and the idle sub-heaps.
#![cfg(loom)]

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;

use iamalloc::heap::Heaps;
use iamalloc::{Block, Source, Stack};
use sync::loom::cell::UnsafeCell;
use sync::loom::sync::Arc;
use sync::loom::thread;

/// Memory for a block, and a value that its last user wrote.
struct Place {
    memory: std::cell::UnsafeCell<[usize; 2]>,
    value: UnsafeCell<u32>,
}

// SAFETY: the model checks that accesses of `value` are ordered, and `memory` is accessed between them.
unsafe impl Sync for Place {}
// SAFETY: as above.
unsafe impl Send for Place {}

/// The changes that a thread made to a block before it freed it are seen by the one that takes it, and no
/// block is lost.
#[test]
fn blocks_of_others_arrive_whole() {
    sync::loom::model(|| {
        let stack = Arc::new(Stack::new());
        let place = || Place { memory: [0; 2].into(), value: UnsafeCell::new(0) };
        let places = Arc::new([place(), place()]);
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let (stack, places) = (stack.clone(), places.clone());
                thread::spawn(move || {
                    // SAFETY: the place is this thread's until it is pushed.
                    unsafe {
                        places[number].value.with_mut(|value| *value = number as u32 + 1);
                        stack.push(places[number].memory.get().cast());
                    }
                })
            })
            .collect();
        let mut found = 0;
        let mut take = || {
            let mut block = stack.take();
            while !block.is_null() {
                let at = places.iter().position(|place| place.memory.get().cast() == block).unwrap();
                // SAFETY: the block was pushed and is this thread's now.
                unsafe {
                    found += places[at].value.with(|value| *value);
                    block = Block::next(block);
                }
            }
        };
        take();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        take();
        assert_eq!(found, 1 + 2);
    });
}

/// Memory that is never given back.
struct Leaky;

// SAFETY: the memory is zeroed and no other's.
unsafe impl Source for Leaky {
    fn map(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        // SAFETY: there are bytes.
        NonNull::new(unsafe { alloc_zeroed(Layout::from_size_align(bytes, align).unwrap()) })
    }
    unsafe fn unmap(&self, _: NonNull<u8>, _: usize) {}
    unsafe fn discard(&self, _: NonNull<u8>, _: usize) -> bool {
        false
    }
    unsafe fn populate(&self, _: NonNull<u8>, _: usize) {}
}

/// Two threads never have one sub-heap at a time, and each sees what the last one did with it.
#[test]
fn a_sub_heap_has_one_thread() {
    sync::loom::model(|| {
        let heaps = Arc::new(Heaps::new(Leaky));
        let first = heaps.claim().unwrap();
        // SAFETY: this thread uses it no more.
        unsafe { heaps.leave(first) };
        let used = Arc::new((first.as_ptr() as usize, UnsafeCell::new(0)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (heaps, used) = (heaps.clone(), used.clone());
                thread::spawn(move || {
                    let mine = heaps.claim().unwrap();
                    if mine.as_ptr() as usize == used.0 {
                        // SAFETY: the model checks that no other thread is here.
                        used.1.with_mut(|count| unsafe { *count += 1 });
                    }
                    // SAFETY: this thread uses it no more.
                    unsafe { heaps.leave(mine) };
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
