//! Core identity, the pinned token, and per-core data.
//!
//! The crates above ask one question of the machine they run on, "which core is this, and keep me there",
//! and the binary answers it once: a kernel with [`set_host!`], a test or a benchmark by the feature
//! `threads`, where a host thread plays a core (`threads::enter`).
#![cfg_attr(not(any(loom, test, feature = "threads")), no_std)]
#![warn(missing_debug_implementations)]

extern crate alloc;

mod all_cores;
mod core_id;
mod core_set;
mod counts;
mod hints;
mod host;
mod lazy;
mod owned;
mod per_core;
#[cfg(any(feature = "threads", test))]
pub mod threads;

pub use all_cores::AllCores;
pub use core_id::{CoreId, MAX_CORES};
pub use core_set::CoreSet;
pub use counts::Counts;
pub use hints::Hints;
pub use host::{Host, Pinned, pin, relax, try_pin, try_pin_below};
pub use lazy::LazyPerCore;
pub use owned::OwnerCell;
pub use per_core::PerCore;

#[cfg(all(doctest, feature = "threads"))]
#[doc = include_str!("../README.md")]
struct Readme;
