//! Fault: one slot is locked, a page's or a block's, gets its frame if it has none, and this core its translation.

use core::ops::ControlFlow;

use percore::Pinned;
use refcache::Domain;

use super::huge::is_block;
use super::{Guard, RadixSpace, keys};
use crate::{Access, Fault, FaultError, Memory, Mmu, PageNum, PageRange};

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
        if is_block(guard) {
            if let Some(outcome) = self.resolve_whole(pin, guard, access) {
                return outcome;
            }
            guard.split(keys(PageRange::one(at))).map_err(|_| FaultError::OutOfMemory)?;
        }
        let mut outcome = Err(FaultError::NotMapped);
        let _ = guard.try_for_each_in(keys(PageRange::one(at)), |entry| {
            if let Some(page) = entry.value() {
                outcome = self.rig.resolve(pin, at, entry, page, access);
            }
            ControlFlow::<()>::Continue(())
        });
        outcome
    }
}
