//! Works out what the kernel must know of a PC when it boots: which memory there is and which CPUs, how far clocks are apart,
//! a seed for random numbers.
//!
//! It believes nothing blindly that firmware and boot loader say: maps may be unsorted, overlap, end in the middle of a page, tables may lie
//! anywhere, CPUs may be listed twice or out of reach. Nothing here touches memory by itself, so that all of it is tested
//! on the host.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod acpi;
mod clock;
mod cpus;
mod memory_map;
mod physmap;
mod random;

pub use clock::Offset;
pub use cpus::{Cpus, LeftOut, Reach};
pub use memory_map::{FRAME, Memory, MemoryMap};
pub use physmap::{GIB, MIB_2, Page, Pages};
pub use random::{Generator, Seed};
