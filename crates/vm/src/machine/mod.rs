//! The seam below the crate: what a machine provides, what it promises, and parts to build it from.
//!
//! A machine implements [`Mmu`], [`Frames`](crate::Frames) and [`Backings`](crate::Backings). A space wraps
//! them in `Noted`, which checks their contract in debug builds. `Presence` and `Asids` are for the machine:
//! no other room of this crate uses them.
//!
//! This room may use `types`.

mod asid;
mod contract;
mod memory;
mod mmu;
mod presence;

pub use asid::{Asid, Asids, Given};
pub use contract::{Call, Noted, during, lock_slots};
pub use memory::{BackingError, Backings, Frames, Memory};
pub use mmu::{Mmu, OutOfMemory, Shot, Tables};
pub use presence::Presence;
