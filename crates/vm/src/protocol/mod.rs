//! The protocols on pages whose slots are locked. Every design is made of them.
//!
//! [`Backend`] has the machine and the counters of a space. Each protocol is one file that adds methods to
//! it: `resolve.rs`, `fill.rs` and `sharing.rs` for faults, `shootdown.rs` and `demotion.rs` for
//! invalidation, `compressed.rs` for compressed memory, `moving.rs` for moves.
//!
//! This room may use `page_word`, `leaf`, `space`, `machine` and `types`.

mod compressed;
mod debug;
mod demotion;
mod fill;
mod locked;
mod moving;
mod resolve;
mod sharing;
mod shootdown;
mod shootdown_set;

pub use locked::{Guard, check, first_piece, lock_all, lock_leaves, make_fit, show_frame};
pub use moving::{Move, Places};
pub use sharing::ForkedPage;
pub(crate) use sharing::References;
pub use shootdown::{Backend, Invalidated, Removed, keys, range};
pub(crate) use shootdown_set::{Found, Runs, abandon, linkage};
pub use shootdown_set::{Scattered, ShootdownSet};
