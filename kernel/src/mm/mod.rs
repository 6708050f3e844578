//! Memory: frames, the kernel's heap, address spaces, user memory, and the epochs that free radix nodes.

pub mod epoch;
pub mod frames;
mod slab;
pub mod space;
pub mod user;
