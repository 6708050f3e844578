//! The seam above the crate: the operations that a kernel calls, their arguments, results and errors.
//!
//! A long move is a sequence of operations (`relocation.rs`), so it is part of the seam and not of a design.
//!
//! This room may use `types` and `machine`.

mod address_space;
mod debug;
mod errors;
mod relocation;

pub use address_space::{
    AddressSpace, Copies, Fault, FaultError, ForkBacking, Installed, Nodes, Others, PIECE, Placement, Remap,
    RemapBacking, VmError,
};
pub use debug::show_space;
pub use relocation::{MovePieces, Progress, Relocation};
