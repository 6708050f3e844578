//! Threads of Rust's standard library: scopes, channels, panics, locks, and destructors of objects that
//! belong to threads. Its output does not depend on the order in which threads run.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, OnceLock, RwLock};
use std::thread;
use std::time::Duration;

static DROPPED: AtomicUsize = AtomicUsize::new(0);
static KEPT: AtomicU64 = AtomicU64::new(0);

/// Data of one thread, with memory that its destructor frees.
struct Kept(Vec<Box<u64>>);

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.fetch_add(self.0.iter().map(|number| **number).sum(), Ordering::Relaxed);
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

thread_local! {
    static MINE: RefCell<Kept> = const { RefCell::new(Kept(Vec::new())) };
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Threads of a scope read and write their maker's memory.
fn scopes() {
    let mut bytes: Vec<u8> = (0..400_000_u32).map(|number| (number * 7 % 251) as u8).collect();
    let expected = checksum(&bytes);
    let sums: Vec<u64> = thread::scope(|scope| {
        let parts = bytes.chunks(100_000);
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || checksum(part))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    println!("scope {sums:?}");
    thread::scope(|scope| {
        for part in bytes.chunks_mut(50_000) {
            scope.spawn(move || part.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1)));
        }
    });
    println!("changed {}", checksum(&bytes) != expected);
}

/// Several threads send blocks of memory, and others take and free them.
fn channels() {
    let (sender, receiver) = sync_channel::<Vec<u64>>(4);
    let receiver = Arc::new(Mutex::new(receiver));
    let (sums, all) = channel();
    let mut threads = Vec::new();
    for _ in 0..3 {
        let (receiver, sums) = (Arc::clone(&receiver), sums.clone());
        threads.push(thread::spawn(move || {
            MINE.with_borrow_mut(|mine| mine.0.reserve(1));
            loop {
                let next = receiver.lock().unwrap().recv();
                let Ok(block) = next else { break };
                let sum = block.iter().sum();
                MINE.with_borrow_mut(|mine| mine.0.push(Box::new(sum)));
                sums.send((block.len(), sum)).unwrap();
            }
        }));
    }
    drop(sums);
    for maker in 0..3_u64 {
        let sender = sender.clone();
        threads.push(thread::spawn(move || {
            for number in 0..200 {
                sender.send(vec![maker * 1000 + number; 1 + (number * 131 % 20_000) as usize]).unwrap();
            }
        }));
    }
    drop(sender);
    let (mut blocks, mut length, mut total) = (0, 0, 0);
    for (len, sum) in all {
        blocks += 1;
        length += len;
        total += sum;
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    println!("channel {blocks} {length} {total}");
}

/// `join` and locks say that a thread has panicked.
fn panics() {
    std::panic::set_hook(Box::new(|_| ()));
    let threads: Vec<_> = (0..6)
        .map(|number| {
            let body = move || {
                let kept = vec![number; 5000];
                MINE.with_borrow_mut(|mine| mine.0.push(Box::new(number)));
                match number % 3 {
                    0 => panic!("thread {number} of {}", kept.len()),
                    1 => resume_unwind(Box::new(number)),
                    _ => kept.iter().sum::<u64>(),
                }
            };
            thread::Builder::new().name(format!("thread {number}")).stack_size(256 << 10).spawn(body).unwrap()
        })
        .collect();
    for thread in threads {
        match thread.join() {
            Ok(sum) => println!("joined {sum}"),
            Err(panic) => match panic.downcast::<String>() {
                Ok(message) => println!("panicked: {message}"),
                Err(panic) => println!("panicked with {}", panic.downcast::<u64>().unwrap()),
            },
        }
    }
    let lock = Arc::new(Mutex::new(1));
    let other = Arc::clone(&lock);
    let end = thread::spawn(move || {
        let mut number = other.lock().unwrap();
        *number += 1;
        panic!("with the lock");
    });
    println!("ended {}, poisoned {}", end.join().is_err(), lock.is_poisoned());
    println!("number {}", lock.lock().unwrap_or_else(|error| error.into_inner()));
    let index = std::hint::black_box(7);
    println!("caught {}", thread::spawn(move || catch_unwind(|| [1, 2, 3][index]).is_err()).join().unwrap());
}

/// A turn goes round four threads by a condition variable, and a map is read and written by others.
fn locks() {
    let turn = Mutex::new((0, Vec::new()));
    let changed = Condvar::new();
    thread::scope(|scope| {
        for me in 0..4 {
            let (turn, changed) = (&turn, &changed);
            scope.spawn(move || {
                for _ in 0..50 {
                    let mut state =
                        changed.wait_while(turn.lock().unwrap(), |state| state.0 % 4 != me).unwrap();
                    state.0 += 1;
                    state.1.push(me as u8);
                    changed.notify_all();
                }
            });
        }
    });
    let (turns, order) = turn.into_inner().unwrap();
    println!("turns {turns} {}", checksum(&order));

    let map = RwLock::new(HashMap::new());
    let barrier = Barrier::new(4);
    let leaders = AtomicUsize::new(0);
    thread::scope(|scope| {
        for me in 0..4_u64 {
            let (map, barrier, leaders) = (&map, &barrier, &leaders);
            scope.spawn(move || {
                for number in 0..100 {
                    map.write().unwrap().insert(me * 100 + number, vec![me; 100 + number as usize]);
                }
                leaders.fetch_add(usize::from(barrier.wait().is_leader()), Ordering::Relaxed);
                let map = map.read().unwrap();
                assert_eq!(map.values().map(Vec::len).sum::<usize>(), 4 * 14_950);
            });
        }
    });
    println!("map {} leaders {}", map.read().unwrap().len(), leaders.into_inner());

    let (once, cell, calls) = (Once::new(), OnceLock::new(), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                once.call_once(|| {
                    calls.fetch_add(1, Ordering::Relaxed);
                });
                cell.get_or_init(|| "x".repeat(1000)).len()
            });
        }
    });
    println!("once {} {}", calls.into_inner(), cell.get().unwrap().len());
    let (_none, nothing) = channel::<()>();
    println!("timeout {}", nothing.recv_timeout(Duration::from_millis(20)).is_err());
    let parked = thread::spawn(thread::park);
    parked.thread().unpark();
    println!("unparked {}", parked.join().is_ok());
}

fn main() {
    scopes();
    channels();
    panics();
    locks();
    // The threads that have such objects are joined, and their destructors have run then.
    println!("dropped {} {}", DROPPED.load(Ordering::Relaxed), KEPT.load(Ordering::Relaxed));
}
