//! Lookup of regions. A caller that does not hold the space's lock may find an outdated state.

use core::iter;

use bonsai::Reader;
use vm::{PageNum, PageRange, Region};

use super::vma::Vma;

pub(super) type Look<'a> = Reader<'a, u64, Vma>;

type Entry<'l> = Option<(u64, &'l Vma)>;

/// Returns the last region that begins at `at` or before, and is not gone.
#[inline]
pub(super) fn floor<'l>(tree: &'l Look<'_>, at: PageNum) -> Option<(PageNum, &'l Vma)> {
    not_gone(tree.floor(at.get()), |start| tree.floor(start.checked_sub(1)?))
}

/// Returns the last region that begins at `at` or before, and the first one after it.
pub(super) fn around(tree: &Look<'_>, at: PageNum) -> [Option<Region>; 2] {
    let [below, above] = tree.around(at.get());
    let below = not_gone(below, |start| tree.floor(start.checked_sub(1)?));
    let above = not_gone(above, |start| tree.ceiling(start + 1));
    [below, above].map(|found| found.and_then(|(start, vma)| vma.region(start)))
}

/// Returns the first that is not gone of `found` and those that `beyond` leads to.
#[inline]
fn not_gone<'l>(mut found: Entry<'l>, beyond: impl Fn(u64) -> Entry<'l>) -> Option<(PageNum, &'l Vma)> {
    loop {
        let (start, vma) = found?;
        if !vma.is_gone(PageNum::new(start)) {
            return Some((PageNum::new(start), vma));
        }
        found = beyond(start);
    }
}

/// Returns the region that has `at`.
pub(super) fn at(tree: &Look<'_>, at: PageNum) -> Option<Region> {
    let (start, vma) = floor(tree, at)?;
    vma.region(start).filter(|region| region.pages.contains(at))
}

/// Returns the first region that ends after `from`.
pub(super) fn next(tree: &Look<'_>, from: PageNum) -> Option<Region> {
    let [below, above] = around(tree, from);
    below.filter(|region| region.pages.contains(from)).or(above)
}

/// Returns the regions that have pages of `within`, from the left, not clipped to it.
pub(super) fn all<'l>(tree: &'l Look<'_>, within: PageRange) -> impl Iterator<Item = Region> + 'l {
    let mut from = within.start();
    iter::from_fn(move || {
        let rest = from < within.end();
        let region = rest.then(|| next(tree, from))?.filter(|region| region.pages.start() < within.end())?;
        from = region.pages.end();
        Some(region)
    })
}

/// Returns whether nothing is mapped in `pages`.
pub(super) fn is_free(tree: &Look<'_>, pages: PageRange) -> bool {
    all(tree, pages).next().is_none()
}
