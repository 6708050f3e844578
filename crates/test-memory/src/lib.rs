//! Memory for the crates' tests: allocators that fail when told to, one with which no use of freed memory
//! goes unnoticed, a mark by which loom sees a use after the end, and a cell whose uses it watches.

mod failing;
#[cfg(loom)]
mod mortal;
mod nodes;
mod poison;
#[cfg(loom)]
mod watched;

pub use failing::{Failing, owned, with_allocations};
#[cfg(loom)]
pub use mortal::Mortal;
pub use nodes::{FailingNodes, with_blocks};
pub use poison::{Poison, poisonable};
#[cfg(loom)]
pub use watched::Watched;
