//! The values that every room names: pages, frames and rights, mappings, regions, and counts of events.
//!
//! This room uses no other one.

mod counters;
mod mapping;
mod page;
mod region;
mod usage;

pub(crate) use counters::EventCounts;
pub use counters::{Counters, Event};
pub use mapping::{BackingNum, Flags, Mapping};
pub use page::{
    Access, CompressedNum, FrameNum, HUGE_PAGES, PAGE_BITS, PAGE_SIZE, PageNum, PageRange, Prot, VirtAddr,
};
pub use region::{Detail, Region, Resident};
pub(crate) use region::{Joining, Runs, Unbroken};
pub(crate) use usage::Change;
pub use usage::Usage;
