//! `Debug` for types that hold what a machine brings, which need not be `Debug` itself.

use core::fmt;

use super::shootdown::{Backend, Invalidated, Removed};
use super::shootdown_set::Scattered;
use crate::{Memory, Mmu};

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

impl<M: Mmu, F: Memory> fmt::Debug for Scattered<'_, M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scattered").finish_non_exhaustive()
    }
}
