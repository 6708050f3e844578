//! Memory: frames, the kernel's heap, address spaces, user memory, and the epochs that free radix nodes.
//! The rooms that hand memory out, or touch a program's, may use `unsafe`; the others may not. Those that know no number
//! which a program chose may index; the others look whether there is such an element.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

#[allow(unsafe_code, clippy::indexing_slicing)]
mod buddy;
pub mod common;
#[allow(unsafe_code)]
pub mod compressed;
#[allow(unsafe_code)]
pub mod contents;
#[allow(unsafe_code)]
pub mod descriptors;
pub mod epoch;
#[allow(unsafe_code)]
pub mod file_mapping;
#[allow(unsafe_code, clippy::indexing_slicing)]
pub mod frames;
#[allow(unsafe_code)]
mod huge_frames;
mod leaks;
mod machine_memory;
#[allow(unsafe_code, clippy::indexing_slicing)]
mod magazine;
#[allow(unsafe_code)]
pub mod mappings;
#[allow(clippy::indexing_slicing)]
mod memory_map;
#[allow(unsafe_code, clippy::indexing_slicing)]
mod objects;
#[allow(clippy::indexing_slicing)]
pub mod owner;
pub mod owners;
#[allow(unsafe_code)]
pub mod page_tree;
mod rivals;
pub mod scarcity;
#[allow(unsafe_code, clippy::indexing_slicing)]
mod slab;
pub mod space;
#[allow(unsafe_code)]
pub mod user;

pub use leaks::report;

use memory_map::{FRAME, MemoryMap};

use crate::arch::{self, BOOT_LIMIT, BootInfo};

/// Finds the memory and opens the pool and the heap; returns the bytes of memory. Once, at boot.
#[allow(unsafe_code)]
pub fn init(boot: &BootInfo) -> u64 {
    let mut map = MemoryMap::new(boot);
    // SAFETY: the boot map shows memory below the limit, and the map leaves out all that is used.
    unsafe { frames::init(&mut map, BOOT_LIMIT) };
    arch::init_map(boot, map.end_frame() * FRAME);
    // SAFETY: all memory is shown now.
    unsafe { frames::add_above(&map, BOOT_LIMIT) };
    map.frames() * FRAME
}
