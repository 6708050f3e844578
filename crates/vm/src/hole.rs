//! The search for a hole: unmapped pages in a row, from the top down.

use core::ops::Range;

/// Pages of a leaf node, of a table page, and of a large page. Larger mappings start at a multiple of it.
pub(crate) const LARGE: u64 = 512;

/// What one look at the map says about a page: how far down the same holds, and whether it is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) start: u64,
    pub(crate) used: bool,
}

/// The highest hole of `pages` pages in `within`: an aligned one if there is one.
pub(crate) fn any_hole(within: Range<u64>, pages: u64, look: &impl Fn(u64) -> Look) -> Option<u64> {
    let aligned = hole_below(within.clone(), pages, look);
    if pages < LARGE { aligned } else { aligned.or_else(|| hole_aligned(within, pages, 1, look)) }
}

/// The highest aligned hole of `pages` pages in `within`. Looks at each page at most once, alignment aside.
pub(crate) fn hole_below(within: Range<u64>, pages: u64, look: &impl Fn(u64) -> Look) -> Option<u64> {
    hole_aligned(within, pages, alignment(pages), look)
}

/// [`hole_below`] at multiples of `align` only.
fn hole_aligned(within: Range<u64>, pages: u64, align: u64, look: &impl Fn(u64) -> Look) -> Option<u64> {
    let mut end = within.end;
    loop {
        let start = end.checked_sub(pages)? / align * align;
        if start < within.start {
            return None;
        }
        match used_in(start..start + pages, look) {
            None => return Some(start),
            Some(used) => end = used,
        }
    }
}

/// Where the highest used slot that overlaps `range` starts.
fn used_in(range: Range<u64>, look: &impl Fn(u64) -> Look) -> Option<u64> {
    let mut at = range.end;
    while at > range.start {
        let Look { start, used } = look(at - 1);
        if used {
            return Some(start);
        }
        at = start;
    }
    None
}

/// Where a mapping of `pages` pages may start: at multiples of this.
pub(crate) fn alignment(pages: u64) -> u64 {
    if pages < LARGE { 1 } else { LARGE }
}
