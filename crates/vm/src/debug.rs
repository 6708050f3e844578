//! `Debug` for types that hold what a machine brings, which need not be `Debug` itself.

use core::fmt;

use rcu::Handle;
use refcache::Domain;

use crate::shootdown::{Backend, Invalidated, Removed};
use crate::{AddressSpace, Memory, Mmu, RadixSpace, Relocation, TreeSpace};

/// Shows the sums that a space tells without stopping anybody.
fn show_space(name: &str, space: &dyn AddressSpace, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_struct(name).field("usage", &space.usage()).field("nodes", &space.nodes()).finish_non_exhaustive()
}

impl<R, M: Mmu + 'static, F: Memory + 'static> fmt::Debug for RadixSpace<R, M, F>
where
    R: Domain + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_space("RadixSpace", self, f)
    }
}

impl<R, D, M: Mmu + 'static, F: Memory + 'static> fmt::Debug for TreeSpace<R, D, M, F>
where
    R: Domain + Send + Sync + 'static,
    D: Handle + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_space("TreeSpace", self, f)
    }
}

impl fmt::Debug for Relocation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relocation").finish_non_exhaustive()
    }
}

impl<M, F> fmt::Debug for Backend<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").finish_non_exhaustive()
    }
}

impl<E, P> fmt::Debug for Removed<'_, '_, E, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Removed").finish_non_exhaustive()
    }
}

impl<E, P> fmt::Debug for Invalidated<'_, '_, E, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invalidated").finish_non_exhaustive()
    }
}
