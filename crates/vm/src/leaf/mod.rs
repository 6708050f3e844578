//! The record that a leaf keeps of the cores that use it as a page table.
//!
//! `linkage.rs` has the states and the argument, `leaf_state.rs` the state in one word, `private_sharers.rs`
//! the list of cores with page tables of their own.
//!
//! This room uses no other one.

mod leaf_state;
mod linkage;
mod private_sharers;

pub use linkage::Linkage;
pub use private_sharers::PrivateSharers;
