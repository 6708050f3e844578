//! Address spaces whose operations on disjoint ranges share nothing.
//!
//! The crate has two seams. Above, [`AddressSpace`]: map, unmap, protect, discard, fault. Below, what a
//! machine must bring: [`Mmu`] (the translations of one space, and how other cores invalidate them),
//! [`Frames`] (memory, a page at a time) and [`Backings`] (what mappings of files show). A design is a type
//! between the two. The one here is [`RadixSpace`], after the paper *RadixVM: Scalable address spaces for
//! multithreaded applications*.
//!
//! Each folder is a room. A room may use the rooms that arrows lead to from it, directly or by way of others.
//! There are no cycles. The doc of each room's `mod.rs` says what it uses.
//!
//! ```text
//!   radix ──▶ protocol ──▶ page_word ──▶ leaf
//!     │                        └───────▶ space ──▶ machine ──▶ types
//!     └──▶ placement ────────────────────────────────────────▶ types
//! ```
//!
//! | room | what it has |
//! |---|---|
//! | `types/` | numbers with units, mappings, regions, counts |
//! | `machine/` | the seam below: the traits of a machine, their contract, parts to build a machine from |
//! | `space/` | the seam above: the trait that a kernel calls, its errors, moves in pieces |
//! | `placement/` | where a mapping goes when the caller does not say |
//! | `leaf/` | leaves that serve as page tables, and the cores that walk them |
//! | `page_word/` | what is kept for each page: mapping, frame, cores that translate it |
//! | `protocol/` | faults, shootdowns, sharing and moves, on pages whose slots are locked |
//! | `radix/` | the design: a radix map of page words |
#![no_std]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

extern crate alloc;

mod leaf;
mod machine;
mod page_word;
mod placement;
mod protocol;
mod radix;
mod space;
mod types;

/// The parts that a design is made of, for designs in crates of their own.
///
/// They lock slots of a radix map, and do what the protocols say with the pages there. No stable interface is
/// promised: they change with the protocols.
pub mod design {
    pub use crate::machine::{Call, Noted, during, lock_slots};
    pub use crate::page_word::{Grain, Page};
    pub use crate::placement::{Arenas, Look, any_hole};
    pub use crate::protocol::{
        Backend, ForkedPage, Guard, Invalidated, Move, Places, Removed, Scattered, ShootdownSet, check,
        first_piece, keys, lock_all, lock_leaves, make_fit, range, show_frame,
    };
    pub use crate::space::{PIECE, show_space};
    pub use crate::types::{Change, EventCounts, Joining, Runs};
}

pub use leaf::{Linkage, PrivateSharers};
pub use machine::{
    Asid, Asids, BackingError, Backings, Frames, Given, Memory, Mmu, OutOfMemory, Presence, Shot, Tables,
};
pub use placement::Layout;
pub use radix::RadixSpace;
pub use radixmap::NodeCounters;
pub use space::{
    AddressSpace, Copies, Fault, FaultError, ForkBacking, Installed, MovePieces, Nodes, Others, Placement,
    Progress, Relocation, Remap, RemapBacking, VmError,
};
pub use types::{
    Access, BackingNum, CompressedNum, Counters, Detail, Event, Flags, FrameNum, FrameRun, HUGE_PAGES,
    Mapping, PAGE_BITS, PAGE_SIZE, PageNum, PageRange, Prot, Region, Resident, Usage, VirtAddr,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
