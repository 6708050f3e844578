//! What an address space costs beside its pages: metadata and page tables of real programs, on Linux and
//! rebuilt in our core.
//!
//! | file | what |
//! |---|---|
//! | `snapshot` | an address space written down: its regions and which of their pages have memory |
//! | `live` | a snapshot of a process of this machine's Linux |
//! | `row` | what both cost |
//! | `rebuild` | the same space in the core, every byte that it allocates counted |
//! | `sparse` | spaces made up, of which little is used |
//! | `tables` | page tables that are only counted |

pub mod live;
pub mod rebuild;
pub mod row;
pub mod snapshot;
pub mod sparse;
mod tables;
