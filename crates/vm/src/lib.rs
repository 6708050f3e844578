//! Address spaces whose operations on disjoint ranges share nothing.
//!
//! The crate has two seams. Above, [`AddressSpace`]: map, unmap, protect, discard, fault. Below, what a
//! machine must bring: [`Mmu`] (the translations of one space, and how other cores invalidate them),
//! [`Frames`] (memory, a page at a time) and [`Backings`] (what mappings of files show). A design is a type
//! between the two. The one here is [`RadixSpace`], after the paper *RadixVM: Scalable address spaces for
//! multithreaded applications*.
//!
//! | file | what it knows |
//! |---|---|
//! | `page.rs` | numbers with units: addresses, pages, frames, ranges, rights |
//! | `mapping.rs` | what a mapping is: rights, flags, backing |
//! | `mmu.rs`, `memory.rs` | the traits a machine implements |
//! | `space.rs` | the trait a kernel calls, its errors |
//! | `errors.rs`, `debug.rs` | messages of the errors, `Debug` of what holds a machine |
//! | `counters.rs` | per-core counts of what happened |
//! | `tracker.rs`, `meta.rs` | what is kept for each page: mapping, frame, cores that translate it |
//! | `fill.rs` | a core gets a translation |
//! | `shootdown_set.rs` | which cores have translations of which pages |
//! | `contract.rs` | what a machine promises of its calls, checked where debug assertions are on |
//! | `shootdown.rs` | the protocol: no frame is freed while a core can reach it |
//! | `sharing.rs` | the protocol: nobody writes what another one shall not see |
//! | `compressed.rs` | the protocol: contents leave memory and come back, and nobody finds them twice, or not at all |
//! | `resolve.rs` | a page fault, once its page is locked |
//! | `region.rs` | what is mapped, as a list |
//! | `relocation.rs` | the protocol: a mapping moves piece by piece, and nobody finds half of it |
//! | `linkage.rs`, `leaf_state.rs`, `private_sharers.rs`, `demotion.rs` | the protocol: leaves that serve as page tables, and who walks them |
//! | `presence.rs` | who runs the space, so that cores that do not are left alone |
//! | `asid.rs` | the protocol: what a TLB keeps of spaces that its core does not run |
//! | `arena.rs`, `layout.rs`, `recent.rs`, `sweep.rs`, `hole.rs` | where a mapping goes when the caller does not say |
//! | `designs/` | address spaces |
#![no_std]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

extern crate alloc;

mod arena;
mod asid;
mod compressed;
mod contract;
mod counters;
mod debug;
mod demotion;
mod designs;
mod errors;
mod fill;
mod hole;
mod layout;
mod leaf_state;
mod linkage;
mod mapping;
mod memory;
mod meta;
mod mmu;
mod page;
mod presence;
mod private_sharers;
mod recent;
mod region;
mod relocation;
mod resolve;
mod sharing;
mod shootdown;
mod shootdown_set;
mod space;
mod sweep;
mod tracker;
mod usage;

/// The types of `shootdown.rs`, for its example that does not compile. Code outside this crate cannot make
/// them.
#[doc(hidden)]
pub mod typestate {
    pub use crate::meta::Page;
    pub use crate::shootdown::{Backend, Invalidated, Removed};
}

pub use asid::{Asid, Asids, Given};
pub use counters::{Counters, Event};
pub use designs::{Locking, RadixSpace, TreeSpace};
pub use layout::Layout;
pub use linkage::Linkage;
pub use mapping::{BackingNum, Flags, Mapping};
pub use memory::{BackingError, Backings, Frames, Memory};
pub use mmu::{Mmu, OutOfMemory, Shot, Tables};
pub use page::{
    Access, CompressedNum, FrameNum, HUGE_PAGES, PAGE_BITS, PAGE_SIZE, PageNum, PageRange, Prot, VirtAddr,
};
pub use presence::Presence;
pub use private_sharers::PrivateSharers;
pub use radixmap::NodeCounters;
pub use region::{Detail, Region, Resident};
pub use relocation::{MovePieces, Progress, Relocation};
pub use space::{
    AddressSpace, Copies, Fault, FaultError, ForkBacking, Nodes, Others, Placement, Remap, RemapBacking,
    VmError,
};
pub use usage::Usage;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
