//! A program whose memory is IAmalloc's.
#![cfg(all(feature = "linux", not(loom), not(miri)))]

use std::collections::HashMap;
use std::sync::mpsc;
use std::thread;

use iamalloc::IaMalloc;

#[global_allocator]
static MEMORY: IaMalloc = IaMalloc::new();

#[test]
fn a_program_runs_on_it() {
    let (sender, receiver) = mpsc::channel();
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let sender = sender.clone();
            thread::spawn(move || {
                let mut words = HashMap::new();
                for round in 0..5000_usize {
                    words.insert(round % 700, "x".repeat(round % 300 + number));
                    if round % 10 == 0 {
                        sender.send(words.remove(&(round % 700)).unwrap()).unwrap();
                    }
                }
                words.values().map(String::len).sum::<usize>()
            })
        })
        .collect();
    drop(sender);
    let received: usize = receiver.iter().map(|text| text.len()).sum();
    let kept: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(received, 8 * (480 * 145 + 20 * 95) + 28 * 500);
    assert!(kept > 0);
}

#[test]
fn vectors_grow_and_shrink() {
    let mut numbers: Vec<u64> = Vec::new();
    (0..2_000_000).for_each(|number| numbers.push(number));
    assert!(numbers.iter().enumerate().all(|(at, number)| at as u64 == *number));
    numbers.truncate(10);
    numbers.shrink_to_fit();
    assert_eq!(numbers, (0..10).collect::<Vec<u64>>());
    assert!(vec![0_u8; 5 << 20].iter().all(|byte| *byte == 0));
}

#[test]
fn padded_blocks_share_no_line() {
    let memory = IaMalloc::padded();
    let mut blocks: Vec<*mut u8> = (1..300).map(|size| memory.allocate(size, 8)).collect();
    blocks.sort_by_key(|block| block.addr());
    assert!(blocks.iter().all(|block| block.addr().is_multiple_of(64)));
    assert!(blocks.windows(2).all(|pair| pair[1].addr() - pair[0].addr() >= 64));
    for block in blocks {
        // SAFETY: it was allocated above.
        assert!(unsafe { memory.usable_size(block) }.is_multiple_of(64));
        // SAFETY: it is used no more.
        unsafe { memory.free(block) };
    }
}

#[test]
fn threads_that_end_leave_their_memory() {
    let kilobytes = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').next().unwrap().parse::<u64>().unwrap() * 4
    };
    for _ in 0..20 {
        thread::spawn(|| drop(vec![1_u8; 100])).join().unwrap();
    }
    let before = kilobytes();
    for _ in 0..2000 {
        thread::spawn(|| drop(vec![1_u8; 100])).join().unwrap();
    }
    // A segment for each of them would be 8 GB. Tests beside this one have some hundred megabytes.
    assert!(kilobytes() < before + (1 << 20), "{} kB more", kilobytes() - before);
}

/// A block that grows step by step keeps its bytes, and one that shrinks stays.
#[test]
fn large_blocks_are_resized() {
    let memory = IaMalloc::new();
    let mut size = 5 << 20;
    let mut block = memory.allocate_zeroed(size, 16);
    while size < 100 << 20 {
        // SAFETY: the block has this byte.
        unsafe { block.add(size - 1).write(7) };
        let larger = size + (3 << 20);
        // SAFETY: the block was allocated above.
        block = unsafe { memory.reallocate(block, larger, 16) };
        // SAFETY: as above.
        assert_eq!(unsafe { (block.add(size - 1).read(), block.add(larger - 1).read()) }, (7, 0));
        size = larger;
    }
    // SAFETY: as above.
    let smaller = unsafe { memory.reallocate(block, 10 << 20, 16) };
    assert_eq!(smaller, block);
    // SAFETY: as above.
    assert!(unsafe { memory.usable_size(block) } < 11 << 20);
    // SAFETY: as above.
    let small = unsafe { memory.reallocate(block, 100, 16) };
    // SAFETY: as above, and it is used no more.
    unsafe { memory.free(small) };
}
