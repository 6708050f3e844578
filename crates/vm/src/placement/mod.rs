//! Chooses the place of a mapping when the caller does not: an arena for each core, and the search for holes.
//!
//! The room asks the map of a space through a function ([`Look`]), and knows nothing of slots,
//! locks or page words.
//!
//! This room may use `types`.

mod arena;
mod hole;
mod layout;
mod recent;
mod sweep;

pub use arena::Arenas;
pub use hole::{Look, any_hole};
pub use layout::Layout;
