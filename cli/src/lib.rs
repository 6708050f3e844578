//! Launching and metering guests, for the command `radixvm` and the laboratory (`lab/`).
#![forbid(unsafe_code)]

pub mod artifacts;
pub mod crash;
pub mod exit_status;
pub mod front;
pub mod guest;
pub mod leftovers;
pub mod measure;
pub mod meter;
pub mod options;
pub mod place;
pub mod program;
pub mod progress;
pub mod symbols;
pub mod table;
pub mod terminal;
