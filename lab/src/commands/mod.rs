//! The measurements, one file each.

pub mod calls;
pub mod figures;
pub mod memory;
pub mod micro;
pub mod native;
mod output;
mod ways;
pub mod workloads;
