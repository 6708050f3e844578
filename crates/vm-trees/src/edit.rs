//! A mapping operation: it holds the space's lock, so no other thread changes regions.
//!
//! Steps that need memory come before steps that take effect. A region is *split* by opening its upper part
//! first and shortening it then. Neither step is visible. A place is *reserved* by a region that is gone. All
//! other steps need no memory. So an operation that runs out of memory has changed nothing visible.

use core::iter;
use core::ops::Deref;

use bonsai::Writer;
use percore::Pinned;
use rcu::Handle;
use vm::{Mapping, PageNum, PageRange, Region, VmError};

use super::Tree;
use super::find::{self, Look};
use super::locking::Locks;
use super::rwlock::WriteGuard;
use super::vma::Vma;

/// It derefs to the tree, to look at.
pub(super) struct Edit<'a> {
    writer: Writer<'a, u64, Vma>,
    locks: &'a Locks,
    faults: Option<WriteGuard<'a>>,
    _space: WriteGuard<'a>,
}

impl<'a> Deref for Edit<'a> {
    type Target = Look<'a>;
    fn deref(&self) -> &Look<'a> {
        &self.writer
    }
}

impl Drop for Edit<'_> {
    fn drop(&mut self) {
        self.locks.unlock_vmas();
    }
}

impl<'a> Edit<'a> {
    pub(super) fn begin<D: Handle>(locks: &'a Locks, tree: &'a Tree<D>, pin: &'a Pinned) -> Self {
        let space = locks.write();
        Self { writer: tree.write(pin), locks, faults: None, _space: space }
    }

    /// Marks the start of changes that faults may see. (In the paper, until then the operation has only
    /// looked.)
    fn touch(&mut self) {
        if self.faults.is_none() {
            self.faults = self.locks.exclude_faults();
        }
    }

    /// Returns the region that begins at `start`, locked, to be changed.
    fn change(&mut self, start: PageNum) -> &Vma {
        self.touch();
        let Some(vma) = self.writer.get(start.get()) else { unreachable!("no region begins there") };
        self.locks.lock_vma(&vma.lock);
        vma
    }

    /// Sees to it that there is a region at `start`, if only one that is gone.
    pub(super) fn reserve(&mut self, start: PageNum) -> Result<(), VmError> {
        self.touch();
        let _tree = self.locks.change_tree();
        self.writer.insert_new(start.get(), Vma::gone(start)).map_err(|_| VmError::OutOfMemory)?;
        Ok(())
    }

    /// Opens the region that was reserved at the start of `pages`.
    pub(super) fn open(&mut self, pages: PageRange, mapping: Mapping) {
        self.change(pages.start()).open(pages.end(), mapping);
    }

    /// Splits the region that reaches across `at`.
    fn split(&mut self, at: PageNum) -> Result<(), VmError> {
        let Some(whole) = find::at(self, at).filter(|region| region.pages.start() < at) else {
            return Ok(());
        };
        self.reserve(at)?;
        self.open(PageRange::between(at, whole.pages.end()), whole.mapping);
        self.set_end(whole.pages.start(), at);
        Ok(())
    }

    /// Splits the regions that stick out of `pages` at its ends.
    pub(super) fn split_at_ends(&mut self, pages: PageRange) -> Result<(), VmError> {
        self.split(pages.start())?;
        self.split(pages.end())
    }

    /// Locks the regions that begin in `pages`, which are about to change with slots locked. A fault that
    /// holds a region waits for slots, so regions come first. (Joining, which changes what is outside, waits
    /// until the slots are unlocked.)
    pub(super) fn hold(&mut self, pages: PageRange) {
        self.touch();
        for (_, vma) in self.within(pages) {
            self.locks.lock_vma(&vma.lock);
        }
    }

    /// Returns the regions that begin in `pages`, including those that are gone and lie in no other region.
    fn within(&self, pages: PageRange) -> impl Iterator<Item = (PageNum, &Vma)> {
        let mut from = pages.start();
        iter::from_fn(move || {
            let (start, vma) = (from < pages.end()).then(|| self.writer.ceiling(from.get()))??;
            let start = PageNum::new(start);
            from = vma.region(start).map_or(PageRange::one(start).end(), |region| region.pages.end());
            (start < pages.end()).then_some((start, vma))
        })
    }

    pub(super) fn set_end(&mut self, start: PageNum, end: PageNum) {
        self.change(start).set_end(end);
    }

    /// Gives each region of `pages`, out of which none sticks, the mapping that `change` says.
    pub(super) fn set_mappings(&mut self, pages: PageRange, change: impl Fn(Mapping) -> Mapping) {
        self.touch();
        for (start, vma) in self.within(pages) {
            let changed = |region: &Region| change(region.mapping) != region.mapping;
            if let Some(region) = vma.region(start).filter(changed) {
                self.locks.lock_vma(&vma.lock);
                vma.open(region.pages.end(), change(region.mapping));
            }
        }
    }

    /// Closes the regions of `pages`, so that no fault uses them any more. None extends beyond `pages`.
    pub(super) fn close(&mut self, pages: PageRange) {
        self.touch();
        for (_, vma) in self.within(pages) {
            self.locks.lock_vma(&vma.lock);
            vma.close();
        }
    }

    /// The closed regions of `pages` are shown to `visit`, and gone.
    pub(super) fn bury(&mut self, pages: PageRange, mut visit: impl FnMut(Region)) {
        for (start, vma) in self.within(pages) {
            vma.region(start).into_iter().for_each(&mut visit);
            vma.set_end(start);
        }
    }

    /// Takes the regions out that begin in `pages`, and are gone.
    pub(super) fn clean(&mut self, pages: PageRange) {
        let mut rest = pages;
        while let Some(start) = self.first_start(rest) {
            let _tree = self.locks.change_tree();
            // Without memory it stays, and says nothing.
            let _ = self.writer.remove(start.get());
            rest = PageRange::between(PageRange::one(start).end(), pages.end());
        }
    }

    /// Returns where the first region begins of those that begin in `pages`.
    fn first_start(&self, pages: PageRange) -> Option<PageNum> {
        self.within(pages).next().map(|(start, _)| start)
    }

    /// Joins the regions that meet in `pages`, or at an end of it, if they are alike.
    pub(super) fn join_all(&mut self, pages: PageRange) {
        self.join(pages.start());
        let mut rest = pages;
        while let Some(region) = self.first(rest).filter(|region| region.pages.end() <= pages.end()) {
            self.join(region.pages.end());
            rest = PageRange::between(region.pages.end(), pages.end());
        }
    }

    /// The region before `at` takes over the one that begins there, if they are alike.
    pub(super) fn join(&mut self, at: PageNum) {
        let neighbours = at.get().checked_sub(1).map(|last| find::around(self, PageNum::new(last)));
        let Some([Some(before), Some(after)]) = neighbours else { return };
        let meet = before.pages.end() == at && after.pages.start() == at;
        if meet && before.mapping == after.mapping {
            self.set_end(before.pages.start(), after.pages.end());
            self.change(at).close();
            self.set_end(at, at);
            self.clean(PageRange::one(at));
        }
    }

    fn first(&self, pages: PageRange) -> Option<Region> {
        find::all(self, pages).next()
    }
}
