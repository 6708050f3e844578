//! The word of a page: its mapping, its frame or other contents, and the cores that translate it.
//!
//! This room may use `leaf` (a page's word names its private sharers), `space` and `types`.

mod meta;
mod region;
mod tracker;

pub use meta::Page;
pub use tracker::Grain;
pub(crate) use tracker::Tracker;
