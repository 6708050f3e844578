//! The machine. Everything above names `arch::…` and never an architecture.

pub mod per_core;
mod x86_64;

pub use x86_64::*;
