//! The values that every room names: pages, frames and rights, mappings, regions, and counts of events.
//!
//! This room uses no other one.

mod counters;
mod mapping;
mod page;
mod region;
mod usage;

pub use counters::{Counters, Event, EventCounts};
pub use mapping::{BackingNum, Flags, Mapping};
pub use page::{
    Access, CompressedNum, FrameNum, HUGE_PAGES, PAGE_BITS, PAGE_SIZE, PageNum, PageRange, Prot, VirtAddr,
};
pub(crate) use region::Unbroken;
pub use region::{Detail, FrameRun, Joining, Region, Resident, Runs};
pub use usage::{Change, Usage};
