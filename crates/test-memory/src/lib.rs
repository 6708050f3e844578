//! What the crates' tests want of memory: an allocator that fails when told to, one after which no use of freed memory
//! goes unnoticed, and a mark by which loom sees a use after the end.

mod failing;
#[cfg(loom)]
mod mortal;
mod poison;

pub use failing::{Failing, owned, with_allocations};
#[cfg(loom)]
pub use mortal::Mortal;
pub use poison::{Poison, poisonable};
