//! IAmalloc, the allocator of *PATHREADS* (NPC 2018, section 4.2): each thread allocates from a sub-heap of
//! its own, and any thread frees any block.
//!
//! ```no_run
//! #[global_allocator]
//! static MEMORY: iamalloc::IaMalloc = iamalloc::IaMalloc::new();
//!
//! let squares: Vec<u64> = std::thread::spawn(|| (0..1000).map(|n| n * n).collect()).join().unwrap();
//! assert_eq!(squares[999], 998_001);
//! ```
//!
//! There is no lock. A thread that allocates, or frees what it has allocated, writes memory that others read
//! only when it takes or gives back a run of 64 KiB. One that frees another's block adds it to a list of that
//! thread's sub-heap. Blocks of two threads share no cache line, except for those of a thread that has ended
//! and the one that has got its sub-heap; with [`IaMalloc::padded`] no two blocks do.
//!
//! A library that is unloaded before the program ends must not have it: link it with `-z nodelete`.
//!
//! [`heap`] has the protocol. These differences from the paper have reasons:
//!
//! 1. The paper's sub-heap is a `dlmalloc` space, and a search finds the one that an address lies in. Here a
//!    segment is aligned to its size, so clearing bits of the address finds it.
//! 2. In the paper a thread that frees another's block changes that thread's sub-heap. Here it adds the block
//!    to a list, since the owner takes no lock.
//! 3. The paper pads all blocks. Here that is a choice, because it doubles the memory of small ones.
#![no_std]
#![warn(missing_debug_implementations)]

#[cfg(all(feature = "linux", not(all(target_os = "linux", target_arch = "x86_64"))))]
compile_error!(
    "the feature `linux` of radixvm-iamalloc needs Linux on x86-64: build with default-features = false"
);

mod classes;
#[cfg(all(feature = "linux", not(loom)))]
mod global;
pub mod heap;
mod segment;
mod source;
mod stack;

pub use classes::MAX_ALIGN;
#[cfg(all(feature = "linux", not(loom)))]
pub use global::{IaMalloc, Linux};
pub use source::Source;
pub use stack::{Block, Stack};
