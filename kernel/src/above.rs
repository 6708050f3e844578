//! Calls from a room to the rooms above it.
//!
//! The lower room declares a trait for what it needs and calls it on [`Above`]. A room above implements the
//! trait for [`Above`]. The compiler finds that implementation, of which there can be only one. So such a
//! call costs what any other call costs, and nothing is registered at run time.

/// The rooms above: see the module.
#[derive(Debug)]
pub struct Above;
