//! The cost of address spaces beside their pages: metadata and page tables of real programs, on Linux and
//! rebuilt in our core.
//!
//! | file | contents |
//! |---|---|
//! | `snapshot` | an address space written down: its regions and which of their pages have memory |
//! | `live` | a snapshot of a process of this machine's Linux |
//! | `row` | the cost of both |
//! | `rebuild` | the same space in the core, every byte that it allocates counted |
//! | `sparse` | artificial spaces that are mostly empty |
//! | `tables` | page tables that are only counted |

pub mod live;
pub mod rebuild;
pub mod row;
pub mod snapshot;
pub mod sparse;
mod tables;
