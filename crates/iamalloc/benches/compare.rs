//! IAmalloc beside glibc's malloc, jemalloc, mimalloc and tcmalloc, where their libraries are installed:
//! `cargo bench -p radixvm-iamalloc [-- PART OF A LOAD'S NAME]`.
//!
//! Each load runs in processes of its own, all allocators in turn, several times. A number is the median of
//! the ratios of operations per second to glibc's in the same turn. Memory is what the process has resident
//! at the end of the load (RSS), and its peak (HWM), in MiB.
#![cfg(not(loom))]

use std::ffi::{OsString, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iamalloc::IaMalloc;

/// The functions of an allocator.
trait Memory: Copy + Send + Sync + 'static {
    /// Allocates `size` bytes.
    fn alloc(self, size: usize) -> *mut u8;
    /// Frees a block, which was allocated here and is used no more.
    fn free(self, block: *mut u8);
}

/// The C library's `malloc`, or that of the library that was loaded first.
#[derive(Clone, Copy)]
struct Libc;

impl Memory for Libc {
    fn alloc(self, size: usize) -> *mut u8 {
        // SAFETY: it may be called with any size.
        unsafe { libc::malloc(size) }.cast()
    }
    fn free(self, block: *mut u8) {
        // SAFETY: the loads free what they have allocated, once.
        unsafe { libc::free(block.cast::<c_void>()) }
    }
}

impl Memory for IaMalloc {
    fn alloc(self, size: usize) -> *mut u8 {
        self.allocate(size, 16)
    }
    fn free(self, block: *mut u8) {
        // SAFETY: as above.
        unsafe { IaMalloc::free(&self, block) }
    }
}

/// The time that a load runs.
const TIME: Duration = Duration::from_millis(300);
/// Turns of all allocators.
const TURNS: usize = 5;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Writes to each page of a block.
fn touch(block: *mut u8, size: usize) {
    assert!(!block.is_null());
    for at in (0..size).step_by(4096) {
        // SAFETY: the block has this byte.
        unsafe { block.add(at).write_volatile(1) };
    }
}

/// Runs `one` in each of `threads` until the time is over. Returns all operations per second.
fn run(threads: usize, one: impl Fn(usize, &dyn Fn() -> bool) -> u64 + Sync) -> f64 {
    let (barrier, done) = (Barrier::new(threads), AtomicU64::new(0));
    let start = Instant::now();
    thread::scope(|scope| {
        for number in 0..threads {
            let (barrier, done, one) = (&barrier, &done, &one);
            scope.spawn(move || {
                barrier.wait();
                let start = Instant::now();
                done.fetch_add(one(number, &|| start.elapsed() < TIME), Ordering::Relaxed);
            });
        }
    });
    done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

/// Keeps 1,000 blocks of 16 to 1,024 bytes and exchanges one after the other.
fn churn<M: Memory>(memory: M, threads: usize, most: usize, kept: usize) -> f64 {
    run(threads, |number, goes_on| {
        let (mut random, mut blocks) = (Random(number as u64), vec![std::ptr::null_mut::<u8>(); kept]);
        let mut count = 0;
        while goes_on() {
            for _ in 0..64 {
                let (at, size) = (random.below(kept), 16 + random.below(most - 16));
                if !blocks[at].is_null() {
                    memory.free(blocks[at]);
                }
                blocks[at] = memory.alloc(size);
                touch(blocks[at], size);
                count += 1;
            }
        }
        blocks.into_iter().filter(|block| !block.is_null()).for_each(|block| memory.free(block));
        count
    })
}

/// Puts blocks into slots that all threads share, and frees what was there: mostly another thread's.
fn exchange<M: Memory>(memory: M, threads: usize) -> f64 {
    let slots: Vec<AtomicPtr<u8>> = (0..4096).map(|_| AtomicPtr::default()).collect();
    let done = run(threads, |number, goes_on| {
        let (mut random, mut count) = (Random(number as u64), 0);
        while goes_on() {
            for _ in 0..64 {
                let block = memory.alloc(16 + random.below(500));
                touch(block, 1);
                let old = slots[random.below(slots.len())].swap(block, Ordering::AcqRel);
                if !old.is_null() {
                    memory.free(old);
                }
                count += 1;
            }
        }
        count
    });
    slots
        .iter()
        .map(|slot| slot.load(Ordering::Relaxed))
        .filter(|old| !old.is_null())
        .for_each(|old| memory.free(old));
    done
}

/// One thread allocates a counter for each thread, one after the other, and each counts in its own.
fn counters<M: Memory>(memory: M, threads: usize) -> f64 {
    let counters: Vec<usize> = (0..threads).map(|_| memory.alloc(16).addr()).collect();
    let pointers: Vec<AtomicPtr<u8>> =
        counters.iter().map(|at| AtomicPtr::new(std::ptr::with_exposed_provenance_mut(*at))).collect();
    let done = run(threads, |number, goes_on| {
        let counter: *mut u64 = pointers[number].load(Ordering::Relaxed).cast();
        let mut count = 0;
        while goes_on() {
            for _ in 0..256 {
                // SAFETY: the block is this thread's, and has 16 bytes.
                unsafe { counter.write_volatile(counter.read_volatile().wrapping_add(1)) };
                count += 1;
            }
        }
        count
    });
    pointers.iter().for_each(|pointer| memory.free(pointer.load(Ordering::Relaxed)));
    done
}

/// Creates and joins threads that allocate little.
fn short_threads<M: Memory>(memory: M, threads: usize) -> f64 {
    run(threads, |_, goes_on| {
        let mut count = 0;
        while goes_on() {
            let work = move || {
                let blocks: Vec<usize> =
                    (0..100).map(|size| memory.alloc(16 + size * 3).expose_provenance()).collect();
                blocks.into_iter().for_each(|at| memory.free(std::ptr::with_exposed_provenance_mut(at)));
            };
            thread::spawn(work).join().unwrap();
            count += 1;
        }
        count
    })
}

/// Allocates 64 MiB of small blocks, frees nine of ten, and allocates as much of other sizes: what is
/// resident then shows what cannot be used again.
fn fragments<M: Memory>(memory: M) -> f64 {
    let (mut random, mut blocks, start) = (Random(1), Vec::new(), Instant::now());
    let fill = |from: usize, bytes: usize, random: &mut Random, blocks: &mut Vec<*mut u8>| {
        let mut total = 0;
        while total < bytes {
            let size = from + random.below(from);
            blocks.push(memory.alloc(size));
            touch(blocks[blocks.len() - 1], size);
            total += size;
        }
    };
    let mut operations = 0;
    for from in [32, 200, 1000, 5000] {
        fill(from, 58 << 20, &mut random, &mut blocks);
        operations += blocks.len();
        let kept = blocks.len() / 10;
        while blocks.len() > kept {
            let at = random.below(blocks.len());
            memory.free(blocks.swap_remove(at));
        }
    }
    let rate = operations as f64 / start.elapsed().as_secs_f64();
    std::hint::black_box(&blocks);
    rate
}

const LOADS: [&str; 7] = [
    "churn of 16 to 1024 bytes",
    "churn of 1 KiB to 64 KiB",
    "churn of 64 KiB to 4 MiB",
    "exchange between threads",
    "counters in neighbouring blocks",
    "threads that allocate little",
    "fragments",
];

fn perform<M: Memory>(memory: M, load: usize, threads: usize) -> f64 {
    match load {
        0 => churn(memory, threads, 1024, 1000),
        1 => churn(memory, threads, 64 << 10, 100),
        2 => churn(memory, threads, 4 << 20, 4),
        3 => exchange(memory, threads),
        4 => counters(memory, threads),
        5 => short_threads(memory, threads),
        _ => fragments(memory),
    }
}

/// Returns a value of `/proc/self/status`, in MiB.
fn status(name: &str) -> f64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}

/// An allocator to compare.
struct Allocator {
    name: &'static str,
    /// The library that is loaded first.
    library: Option<PathBuf>,
}

/// Returns the allocators that are there, glibc's first.
fn allocators() -> Vec<Allocator> {
    let mut all: Vec<Allocator> =
        ["glibc", "IAmalloc", "padded"].map(|name| Allocator { name, library: None }).into();
    let known = [
        ("jemalloc", "libjemalloc.so.2", "libjemalloc2"),
        ("mimalloc", "libmimalloc.so.2", "libmimalloc2.0"),
        ("tcmalloc", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    ];
    for (name, file, package) in known {
        let found = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"]
            .map(|folder| Path::new(folder).join(file));
        match found.into_iter().find(|path| path.exists()) {
            Some(path) => all.push(Allocator { name, library: Some(path) }),
            None => println!("{name} is not installed (apt-get install {package})"),
        }
    }
    all
}

/// Runs a load in a process of its own. Returns operations per second, and the memory at the end and at most.
fn measure(allocator: &Allocator, load: usize, threads: usize) -> [f64; 3] {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--run", allocator.name, &load.to_string(), &threads.to_string()]);
    if let Some(library) = &allocator.library {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}: {output:?}", allocator.name);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap());
    [numbers.next().unwrap(), numbers.next().unwrap(), numbers.next().unwrap()]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Compares all allocators under one load, and prints a line.
fn compare(allocators: &[Allocator], load: usize, threads: usize) {
    let turns: Vec<Vec<[f64; 3]>> = (0..TURNS)
        .map(|_| allocators.iter().map(|allocator| measure(allocator, load, threads)).collect())
        .collect();
    print!("{:<34}{threads:>3}", LOADS[load]);
    for at in 0..allocators.len() {
        let ratio = median(turns.iter().map(|turn| turn[at][0] / turn[0][0]).collect());
        let [rss, peak] = [1, 2].map(|value| median(turns.iter().map(|turn| turn[at][value]).collect()));
        print!("  {ratio:>5.2} {rss:>4.0}/{peak:<4.0}");
    }
    println!();
}

fn main() {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let [_, run, name, load, threads] = &words[..]
        && run == "--run"
    {
        let [load, threads] = [load, threads].map(|word| word.to_str().unwrap().parse().unwrap());
        let rate = match name.to_str() {
            Some("IAmalloc") => perform(IaMalloc::new(), load, threads),
            Some("padded") => perform(IaMalloc::padded(), load, threads),
            _ => perform(Libc, load, threads),
        };
        println!("{rate} {} {}", status("VmRSS:"), status("VmHWM:"));
        return;
    }
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let allocators = allocators();
    println!(
        "operations per second, of glibc's, and MiB of memory at the end and at most; {cpus} CPUs, {TURNS} turns\n"
    );
    print!("{:<34}{:>3}", "load", "thr");
    allocators.iter().for_each(|allocator| print!("  {:>15}", allocator.name));
    println!();
    let is_wanted = |load: &usize| {
        let mut names = words[1..]
            .iter()
            .filter_map(|word| word.to_str())
            .filter(|word| !word.starts_with("--"))
            .peekable();
        names.peek().is_none() || names.any(|name| LOADS[*load].contains(name))
    };
    for load in (0..LOADS.len()).filter(is_wanted) {
        let counts = if load == LOADS.len() - 1 { vec![1] } else { vec![1, 2, cpus] };
        let mut counts: Vec<usize> = counts.into_iter().filter(|count| *count <= cpus).collect();
        counts.dedup();
        counts.into_iter().for_each(|threads| compare(&allocators, load, threads));
    }
}
