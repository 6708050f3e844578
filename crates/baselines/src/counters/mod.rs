//! One file for each way to count.

pub(crate) mod claimed;
pub(crate) mod deltas;
pub(crate) mod embedded;
pub(crate) mod locked;
pub(crate) mod paygo;
pub(crate) mod queried;
pub(crate) mod shared;
pub(crate) mod sloppy;
pub(crate) mod slots;
pub(crate) mod snzi;
pub(crate) mod uncounted;
