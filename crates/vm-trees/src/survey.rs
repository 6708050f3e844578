//! Looking at what is mapped. Needs no memory.

use core::ops::ControlFlow;

use percore::Pinned;
use rcu::Handle;
use refcache::Domain;
use vm::design::{Joining, Page, Runs, range};
use vm::{FrameRun, Memory, Mmu, PageNum, PageRange, Region, VmError};

use super::{TreeSpace, find};

/// The most pages whose frames are shown in one step.
const STEP: u64 = 4096;

impl<R: Domain, D: Handle, M: Mmu, F: Memory> TreeSpace<R, D, M, F> {
    pub(super) fn each_region(
        &self,
        pin: &Pinned,
        within: PageRange,
        visit: &mut dyn FnMut(&Region) -> ControlFlow<()>,
    ) {
        let _space = self.read(pin);
        let tree = self.tree.read(pin);
        let mut joining = Joining::new(visit);
        let walked = find::all(&tree, within).try_for_each(|region| {
            let mut part = Region::new(region.pages.common(within), Page::new(region.mapping));
            let each = |pages, page| part.count(pages, page);
            self.each_page(pin, region.pages.common(within), each);
            joining.add(part)
        });
        if walked.is_continue() {
            joining.end();
        }
    }

    pub(super) fn each_resident(
        &self,
        pin: &Pinned,
        within: PageRange,
        visit: &mut dyn FnMut(PageRange),
    ) -> Result<bool, VmError> {
        let _space = self.read(pin);
        let mut runs = Runs::new(visit);
        self.each_page(pin, within, |pages, _| runs.add(pages));
        runs.end();
        if !self.all_mapped(pin, within) {
            return Err(VmError::NotMapped);
        }
        let tree = self.tree.read(pin);
        Ok(find::all(&tree, within).any(|region| region.mapping.backing().is_some()))
    }

    /// See [`AddressSpace::frames`](vm::AddressSpace::frames).
    pub(super) fn show_frames(
        &self,
        pin: &Pinned,
        within: PageRange,
        visit: &mut dyn FnMut(FrameRun),
    ) -> PageNum {
        let _space = self.read(pin);
        let Some(region) = find::all(&self.tree.read(pin), within).next() else { return within.end() };
        let mapped = region.pages.common(within);
        let end = mapped.end().min(PageNum::new(mapped.start().get() + STEP));
        let part = PageRange::between(mapped.start(), end);
        self.each_page(pin, part, |pages, page| FrameRun::of(pages, page).into_iter().for_each(&mut *visit));
        end
    }

    /// Shows the resident pages of `within` to `visit`.
    pub(super) fn each_page(&self, pin: &Pinned, within: PageRange, mut visit: impl FnMut(PageRange, Page)) {
        self.lock_pages(pin, within).for_each_used(|run| visit(range(run.keys()), run.value()));
    }

    /// Returns whether all of `pages` is mapped; the space's lock is held.
    pub(super) fn all_mapped(&self, pin: &Pinned, pages: PageRange) -> bool {
        let mut end = pages.start();
        for region in find::all(&self.tree.read(pin), pages) {
            if region.pages.start() > end {
                return false;
            }
            end = region.pages.end();
        }
        end >= pages.end()
    }
}
