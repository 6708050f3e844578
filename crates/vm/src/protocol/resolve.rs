//! A page fault, once the page is locked: what it needs, and what came of it.

use percore::Pinned;
use radixmap::Entry;

use super::shootdown::Backend;
use crate::page_word::Page;
use crate::types::Change;
use crate::{Access, Event, Fault, FaultError, FrameNum, Frames, Memory, Mmu, PageNum, VmError};

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

    /// Gives the locked `page`, whose slot is `entry`, the frame `frame`, if it has none.
    pub fn give(
        &self,
        pin: &Pinned,
        entry: &mut Entry<'_, Page>,
        page: Page,
        frame: FrameNum,
    ) -> Result<(), VmError> {
        if page.is_touched() {
            return Err(VmError::Exists);
        }
        entry.set(page.with_frame(frame));
        self.counts.change(pin, &Change::gain());
        Ok(())
    }
}
