//! A page fault, once the page is locked: what it needs, and what came of it.

use percore::Pinned;
use radixmap::Entry;

use super::shootdown::Backend;
use crate::page_word::Page;
use crate::types::Change;
use crate::{Access, Event, Fault, FaultError, FrameNum, Frames, Installed, Memory, Mmu, PageNum, VmError};

impl<M: Mmu, F: Memory> Backend<M, F> {
    /// Resolves a fault on the locked `page` at `at`, whose slot is `entry`.
    #[inline]
    pub fn resolve(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
        access: Access,
    ) -> Result<Fault, FaultError> {
        if !page.prot().allows(access) {
            return Err(FaultError::Denied);
        }
        match (page.frame(), page.backing()) {
            (None, _) if page.is_touched() => self.bring_back(pin, at, entry, page),
            (None, None) => self.alloc(pin, at, entry, page),
            (None, Some(backing)) => self.show(pin, at, entry, (page, backing), access),
            (Some(_), _) if access == Access::Write && page.is_copied_on_write() => {
                self.own(pin, at, entry, page)
            }
            (Some(_), _) => self.fill(pin, at, entry, page),
        }
    }

    /// Returns the frame of the locked page `at`, whose slot is `entry`, whatever its rights: see
    /// [`debug_frame`](crate::AddressSpace::debug_frame).
    pub fn expose(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        access: Access,
    ) -> Result<FrameNum, FaultError> {
        let page = entry.value().ok_or(FaultError::NotMapped)?;
        let has_rights = page.prot().allows(Access::Read);
        let writes = access == Access::Write;
        if writes && !(has_rights && (page.prot().allows(Access::Write) || !page.is_shared())) {
            return Err(FaultError::Denied);
        }
        if page.frame().is_none() {
            let fault = self.resolve(pin, at, entry, page, Access::Read)?;
            self.count_fault(pin, fault);
        }
        let page = entry.value().ok_or(FaultError::NotMapped)?;
        if writes && page.is_copied_on_write() {
            let fault = self.own(pin, at, entry, page)?;
            self.count_fault(pin, fault);
        }
        entry.value().and_then(|page| page.frame()).ok_or(FaultError::NotMapped)
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
        let frame = self.memory.alloc_zeroed(pin).ok_or(FaultError::OutOfMemory)?;
        if let Err(error) = self.fill(pin, at, entry, page.with_frame(frame)) {
            self.memory.free(pin, frame);
            return Err(error);
        }
        Ok(Fault::Alloc)
    }

    /// Counts a resolved fault.
    pub fn count_fault(&self, pin: &Pinned, fault: Fault) {
        let event = match fault {
            Fault::Alloc => Event::AllocFault,
            Fault::AllocHuge => Event::HugeFault,
            Fault::Fill => Event::FillFault,
            Fault::Copy => Event::CowCopy,
            Fault::Reuse => Event::CowReuse,
            Fault::PageIn => Event::PageIn,
            Fault::Spurious => return,
        };
        self.counts.add(pin, event, 1);
    }

    /// Gives the locked `page`, whose slot is `entry`, what `given` has, if it has no frame.
    pub fn give(
        &self,
        pin: &Pinned,
        entry: &mut Entry<'_, Page>,
        page: Page,
        given: Installed,
    ) -> Result<(), VmError> {
        if page.is_touched() {
            return Err(VmError::Exists);
        }
        entry.set(match given {
            Installed::Frame(frame) => page.with_frame(frame),
            Installed::Reference(frame) => page.with_counted(frame),
        });
        self.counts.change(pin, &Change::gain());
        Ok(())
    }
}
