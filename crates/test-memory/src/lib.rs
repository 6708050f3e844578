//! What the crates' tests want of memory: an allocator that fails when told to, one after which no use of freed memory
//! goes unnoticed, a mark by which loom sees a use after the end, and a cell whose uses it watches.

mod failing;
#[cfg(loom)]
mod mortal;
mod poison;
#[cfg(loom)]
mod watched;

pub use failing::{Failing, owned, with_allocations};
#[cfg(loom)]
pub use mortal::Mortal;
pub use poison::{Poison, poisonable};
#[cfg(loom)]
pub use watched::Watched;
