//! Chooses the place of a mapping when the caller does not: an arena for each core, and the search for holes.
//!
//! The room asks the map of a space through a function ([`Look`](hole::Look)), and knows nothing of slots,
//! locks or page words.
//!
//! This room may use `types`.

mod arena;
mod hole;
mod layout;
mod recent;
mod sweep;

pub(crate) use arena::Arenas;
pub(crate) use hole::any_hole;
pub use layout::Layout;
