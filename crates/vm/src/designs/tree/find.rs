//! Looking regions up. Whoever does not hold the space's lock finds what was there a moment ago.

use core::iter;

use bonsai::Reader;

use super::vma::Vma;
use crate::{PageNum, PageRange, Region};

pub(super) type Look<'a> = Reader<'a, u64, Vma>;

/// The last region that begins at `at` or before, and is not gone.
#[inline]
pub(super) fn floor<'l>(tree: &'l Look<'_>, at: PageNum) -> Option<(PageNum, &'l Vma)> {
    let mut below = at.get();
    loop {
        let (start, vma) = tree.floor(below)?;
        if !vma.is_gone(PageNum::new(start)) {
            return Some((PageNum::new(start), vma));
        }
        below = start.checked_sub(1)?;
    }
}

/// The region that has `at`.
pub(super) fn at(tree: &Look<'_>, at: PageNum) -> Option<Region> {
    let (start, vma) = floor(tree, at)?;
    vma.region(start).filter(|region| region.pages.contains(at))
}

/// The first region that ends after `from`.
pub(super) fn next(tree: &Look<'_>, from: PageNum) -> Option<Region> {
    at(tree, from).or_else(|| {
        let mut above = from.get();
        loop {
            let (start, vma) = tree.ceiling(above)?;
            match vma.region(PageNum::new(start)) {
                None => above = start + 1,
                region => return region,
            }
        }
    })
}

/// The regions that have pages of `within`, from the left; what sticks out is not cut off.
pub(super) fn all<'l>(tree: &'l Look<'_>, within: PageRange) -> impl Iterator<Item = Region> + 'l {
    let mut from = within.start();
    iter::from_fn(move || {
        let rest = from < within.end();
        let region = rest.then(|| next(tree, from))?.filter(|region| region.pages.start() < within.end())?;
        from = region.pages.end();
        Some(region)
    })
}

/// Whether nothing is mapped in `pages`.
pub(super) fn is_free(tree: &Look<'_>, pages: PageRange) -> bool {
    all(tree, pages).next().is_none()
}
