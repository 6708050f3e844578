//! What can be measured, one file each.

pub mod calls;
pub mod figures;
pub mod memory;
pub mod micro;
mod output;
