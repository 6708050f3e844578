//! Address spaces. A design is a type; a kernel picks one where it makes a space, and nowhere else.

mod locked;
mod moving;
mod radix;
mod tree;

pub use radix::RadixSpace;
pub use tree::{Locking, TreeSpace};
