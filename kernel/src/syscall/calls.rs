//! The handlers by their Linux names, for the table to find.

pub use super::clock::*;
pub use super::clone::*;
pub use super::copies::*;
pub use super::descriptors::*;
pub use super::exec::*;
pub use super::exit::*;
pub use super::futex::*;
pub use super::identity::*;
pub use super::io::*;
pub use super::limits::*;
pub use super::machine::*;
pub use super::madvise::*;
pub use super::mmap::*;
pub use super::modes::*;
pub use super::names::*;
pub use super::open::*;
pub use super::poll::*;
pub use super::position::*;
pub use super::prctl::*;
pub use super::ranges::*;
pub use super::scheduling::*;
pub use super::signals::*;
pub use super::stat::*;
pub use super::threads::*;
pub use super::usage::*;
pub use super::wait::*;
