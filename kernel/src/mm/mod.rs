//! Memory: frames, the kernel's heap, address spaces, user memory, and the epochs that free radix nodes. Only
//! the modules that hand memory out, or access a program's memory, may use `unsafe`. Only modules to which no
//! program passes a number may index. The others check that there is such an element.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

mod above;
mod baseline_refs;
#[allow(unsafe_code, clippy::indexing_slicing)]
mod buddy;
#[allow(unsafe_code)]
pub mod compressed;
pub mod epoch;
#[allow(unsafe_code)]
pub mod fallible;
pub mod fault_injection;
#[allow(unsafe_code)]
pub mod file_mapping;
#[allow(unsafe_code)]
pub mod frame_io;
#[allow(unsafe_code, clippy::indexing_slicing)]
pub mod frames;
#[allow(unsafe_code)]
mod huge_frames;
mod leaks;
#[allow(unsafe_code)]
pub mod lending;
mod machine_memory;
#[allow(unsafe_code, clippy::indexing_slicing)]
mod magazine;
#[allow(unsafe_code)]
pub mod mappings;
#[allow(clippy::indexing_slicing)]
pub mod owner;
pub mod owners;
#[allow(unsafe_code)]
pub mod page_refs;
#[allow(unsafe_code)]
pub mod page_tree;
#[allow(unsafe_code, clippy::indexing_slicing)]
pub mod read_counters;
#[allow(unsafe_code)]
pub mod read_refs;
pub mod refcache_arc;
pub mod remains;
pub mod shrinkers;
#[allow(unsafe_code, clippy::indexing_slicing)]
mod slab;
pub mod space;
#[allow(unsafe_code)]
pub mod static_or_arc;
pub mod statistics;
#[allow(unsafe_code)]
pub mod user;
#[allow(unsafe_code, clippy::indexing_slicing)]
mod zpool;

pub use above::{Files, Scheduler, Source, Watcher};
pub use leaks::report;

use firmware::MemoryMap;

pub use firmware::FRAME;

use crate::arch::{self, BOOT_LIMIT, BootInfo};
use crate::control;

/// Memory beyond is left out: magazines keep 32 bits of a frame's number.
const LIMIT: u64 = (1 << 32) * FRAME;
/// Firmware, and where starting cores begin.
const LOW_MEMORY: (u64, u64) = (0, 1 << 20);
/// Bytes that are kept for each frame: its note and its reference count.
const EACH: u64 = 1 + page_refs::SIZE;
/// The notes and counts take at most one part in `SHARE` of all memory. Only memory with far larger holes has
/// less for the rest.
const SHARE: u64 = 8;

/// Finds the memory, maps it and opens the pool and the heap. Called once, at
/// boot.
///
/// # Panics
/// If there is too little memory to boot.
#[allow(unsafe_code)]
pub fn init(boot: &BootInfo) {
    let ram = MemoryMap::new(boot.memory(), LIMIT);
    let mut free = ram.clone();
    [LOW_MEMORY, arch::kernel_image(), boot.image()].into_iter().for_each(|used| free.remove(used));
    free.lose_unaffordable(EACH, SHARE);
    let end = free.end_frame();
    let notes = carve(&mut free, end, u64::MAX);
    let page_refs = carve(&mut free, end * page_refs::SIZE, u64::MAX);
    arch::init_map(&ram, &mut || carve(&mut free, FRAME, BOOT_LIMIT));
    // SAFETY: all memory is shown now, and the map leaves out all that is used.
    unsafe { frames::init(&free, notes, end) };
    let (start, end) = arch::kernel_image();
    (start / FRAME..end / FRAME).for_each(|frame| frames::note(frame, owner::Owner::IMAGE));
    page_refs::init(page_refs);
    if free.lost() > 0 {
        control::warn(format_args!(
            "{} KiB of memory are not used: they are too far away, or in too many pieces",
            free.lost() >> 10
        ));
    }
}

fn carve(free: &mut MemoryMap, bytes: u64, limit: u64) -> u64 {
    free.carve(bytes, limit).expect("not enough memory to boot")
}
