//! Address spaces. A design is a type; a kernel picks one where it makes a space, and nowhere else.

mod radix;

pub use radix::RadixSpace;
