//! Fault: one slot is locked, a page's or a block's, gets its frame if it has none, and this core its translation.

use core::ops::ControlFlow;

use percore::Pinned;
use radixmap::Entry;
use refcache::Domain;

use super::huge::is_block;
use super::{Guard, RadixSpace, keys};
use crate::meta::Page;
use crate::{Access, Event, Fault, FaultError, FrameNum, Memory, Mmu, PageNum, PageRange, VmError};

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
            outcome = self.resolve(pin, at, entry, access);
            ControlFlow::<()>::Continue(())
        });
        outcome
    }

    /// Resolves a fault on the locked page `at`.
    #[inline]
    pub(super) fn resolve(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        access: Access,
    ) -> Result<Fault, FaultError> {
        let page = entry.value().ok_or(FaultError::NotMapped)?;
        if !page.prot().allows(access) {
            return Err(FaultError::Denied);
        }
        match (page.frame(), page.backing()) {
            (None, None) => self.alloc(pin, at, entry, page),
            (None, Some(backing)) => self.rig.show(pin, at, entry, (page, backing), access),
            (Some(_), _) if access == Access::Write && page.is_copied_on_write() => {
                self.rig.own(pin, at, entry, page)
            }
            (Some(_), _) => self.rig.fill(pin, at, entry, page),
        }
    }

    /// First touch of the page: a zeroed frame. If the table has no room the frame goes back.
    #[inline]
    fn alloc(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
    ) -> Result<Fault, FaultError> {
        let frame = self.rig.memory.alloc_zeroed(pin).ok_or(FaultError::OutOfMemory)?;
        if let Err(error) = self.rig.fill(pin, at, entry, page.with_frame(frame)) {
            self.rig.memory.free(pin, frame);
            return Err(error);
        }
        Ok(Fault::Alloc)
    }

    pub(super) fn count_fault(&self, pin: &Pinned, fault: Fault) {
        let event = match fault {
            Fault::Alloc => Event::AllocFault,
            Fault::AllocHuge => Event::HugeFault,
            Fault::Fill => Event::FillFault,
            Fault::Copy => Event::CowCopy,
            Fault::Reuse => Event::CowReuse,
            Fault::Spurious => return,
        };
        self.rig.tally.add(pin, event, 1);
    }
}

/// Gives the locked page the frame `frame`, if it is mapped and has none.
pub(super) fn give(entry: &mut Entry<'_, Page>, frame: FrameNum) -> Result<(), VmError> {
    let page = entry.value().ok_or(VmError::NotMapped)?;
    if page.frame().is_some() {
        return Err(VmError::Exists);
    }
    entry.set(page.with_frame(frame));
    Ok(())
}
