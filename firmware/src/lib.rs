//! Works out what the kernel must know of a PC when it boots: its memory and its CPUs, the distance of
//! clocks, a seed for random numbers.
//!
//! It does not trust the firmware and the boot loader: maps may be unsorted, overlap, or end in the middle of
//! a page, tables may lie anywhere, CPUs may be listed twice or out of reach. Nothing here touches memory by
//! itself, so that all of it is tested on the host.
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
