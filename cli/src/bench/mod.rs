//! Measuring programs in guests: one run, many runs, and what to make of them.

pub mod calls;
pub mod figures;
pub mod measure;
pub mod memory;
pub mod micro;
pub mod plot;
pub mod row;
