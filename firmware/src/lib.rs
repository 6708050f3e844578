//! Reads what a PC's firmware and boot loader say of the machine: which memory there is and which CPUs.
//!
//! The kernel believes none of it blindly: maps may be unsorted, overlap, end in the middle of a page, tables may lie
//! anywhere, CPUs may be listed twice or out of reach. Nothing here touches memory by itself, so that all of it is tested
//! on the host.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod acpi;
mod clock;
mod cpus;
mod memory_map;
mod physmap;

pub use clock::Offset;
pub use cpus::{Cpus, LeftOut, Reach};
pub use memory_map::{FRAME, Memory, MemoryMap};
pub use physmap::{GIB, MIB_2, Page, Pages};
