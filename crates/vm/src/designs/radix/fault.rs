//! Fault: one slot is locked, gets its frame if it has none, and this core its translation.

use percore::Pinned;
use radixmap::Entry;
use refcache::Domain;

use super::RadixSpace;
use crate::meta::Page;
use crate::{Access, Event, Fault, FaultError, FrameNum, Memory, Mmu, PageNum, VmError};

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
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
        match page.frame() {
            Some(frame) => self.fill(pin, at, entry, page, frame),
            None => self.alloc(pin, at, entry, page),
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
        let backed = page.with_frame(frame);
        if let Err(error) = self.fill(pin, at, entry, backed, frame) {
            self.rig.memory.free(pin, frame);
            return Err(error);
        }
        Ok(Fault::Alloc)
    }

    /// Fills this core's translation and tracks it.
    #[inline]
    fn fill(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
        frame: FrameNum,
    ) -> Result<Fault, FaultError> {
        self.rig.mmu.fill(pin, at, frame, page.prot()).map_err(|_| FaultError::OutOfMemory)?;
        let tracker = self.rig.track(pin, page.tracker());
        entry.set(page.with_tracker(tracker));
        Ok(if tracker == page.tracker() { Fault::Spurious } else { Fault::Fill })
    }

    pub(super) fn count_fault(&self, pin: &Pinned, fault: Fault) {
        match fault {
            Fault::Alloc => self.rig.tally.add(pin, Event::AllocFault, 1),
            Fault::Fill => self.rig.tally.add(pin, Event::FillFault, 1),
            Fault::Spurious => {}
        }
    }
}

/// Backs the locked page with `frame`, if it is mapped and has none.
pub(super) fn give(entry: &mut Entry<'_, Page>, frame: FrameNum) -> Result<(), VmError> {
    let page = entry.value().ok_or(VmError::NotMapped)?;
    if page.frame().is_some() {
        return Err(VmError::Exists);
    }
    entry.set(page.with_frame(frame));
    Ok(())
}
