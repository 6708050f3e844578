//! Fault: one slot is locked, a page's or a block's, gets its frame if it has none, and this core its
//! translation.

use percore::Pinned;
use refcache::Domain;

use super::huge::is_block;
use super::{Guard, RadixSpace};
use crate::{Access, Fault, FaultError, Memory, Mmu, PageNum};

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    /// Resolves a fault on page `at`, which is locked alone, or with all of its folded block.
    #[inline]
    pub(super) fn resolve_locked(
        &self,
        pin: &Pinned,
        at: PageNum,
        guard: &mut Guard<'_>,
        access: Access,
    ) -> Result<Fault, FaultError> {
        if is_block(guard)
            && let Some(outcome) = self.resolve_whole(pin, guard, access)
        {
            return outcome;
        }
        let resolved = guard.with_key(at.get(), |entry| match entry.value() {
            Some(page) => self.backend.resolve(pin, at, entry, page, access),
            None => Err(FaultError::NotMapped),
        });
        resolved.unwrap_or(Err(FaultError::OutOfMemory))
    }
}
