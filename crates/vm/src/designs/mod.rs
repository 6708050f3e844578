//! Address spaces. A design is a type. A kernel picks one only where it makes a space.

mod locked;
mod moving;
mod radix;
mod tree;

pub use radix::RadixSpace;
pub use tree::{Locking, TreeSpace};
