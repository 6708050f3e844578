//! Processes.

pub mod fault;
