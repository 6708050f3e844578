//! `Debug` for types that hold a space.

use core::fmt;

use super::address_space::AddressSpace;
use super::relocation::Relocation;

/// Shows the sums that a space has without stopping other cores.
pub fn show_space(name: &str, space: &dyn AddressSpace, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_struct(name).field("usage", &space.usage()).field("nodes", &space.nodes()).finish_non_exhaustive()
}

impl fmt::Debug for Relocation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relocation").finish_non_exhaustive()
    }
}
