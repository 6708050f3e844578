//! The search for a hole: unmapped pages in a row, from the top down.

use core::ops::Range;

/// Pages of a leaf node, of a table page, and of a large page. Larger mappings start at a multiple of it.
pub(crate) const LARGE: u64 = 512;

/// Number of pages in one slot two levels above the leaves. Mappings of at least this size start at a
/// multiple of it, so that most of such a mapping is few slots and no nodes.
const VAST: u64 = 512 * LARGE;

/// A look at the map: where the lowest used slot that overlaps a range starts, if there is one.
///
/// The rest of the range above that slot is too small for a hole of the range's size. So in densely used
/// parts a search for `n` pages costs one look for every `n` pages, and looks at no page twice in vain.
pub trait Look: Fn(Range<u64>) -> Option<u64> {}

impl<F: Fn(Range<u64>) -> Option<u64>> Look for F {}

/// Returns the highest hole of `pages` pages in `within`: an aligned one if there is one.
pub fn any_hole(within: Range<u64>, pages: u64, look: &impl Look) -> Option<u64> {
    let aligned = hole_below(within.clone(), pages, look).ok();
    if pages < LARGE { aligned } else { aligned.or_else(|| hole_aligned(within, pages, 1, look).ok()) }
}

/// Returns the highest aligned hole of `pages` pages in `within`, or else how far down it was searched for:
/// no such hole ends above that page.
pub(crate) fn hole_below(within: Range<u64>, pages: u64, look: &impl Look) -> Result<u64, u64> {
    hole_aligned(within, pages, alignment(pages), look)
}

/// [`hole_below`] at multiples of `align` only.
fn hole_aligned(within: Range<u64>, pages: u64, align: u64, look: &impl Look) -> Result<u64, u64> {
    let mut end = within.end;
    loop {
        let start = end.checked_sub(pages).ok_or(end)? / align * align;
        if start < within.start {
            return Err(end);
        }
        match look(start..start + pages) {
            None => return Ok(start),
            Some(used) => end = used,
        }
    }
}

/// Returns the alignment, in pages, of a mapping of `pages` pages.
#[inline]
pub(crate) fn alignment(pages: u64) -> u64 {
    match pages {
        VAST.. => VAST,
        LARGE.. => LARGE,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// Searches pages 0 to 3000, of which some are `used`, and counts the looks.
    fn search(used: impl Fn(u64) -> bool, pages: u64) -> (Result<u64, u64>, u64) {
        let looks = Cell::new(0);
        let look = |mut pages: Range<u64>| {
            looks.set(looks.get() + 1);
            pages.find(|&page| used(page))
        };
        (hole_below(0..3000, pages, &look), looks.get())
    }

    #[test]
    fn the_highest_hole_is_found_wherever_the_used_pages_lie() {
        assert_eq!(search(|_| false, 7).0, Ok(2993));
        assert_eq!(search(|page| page == 2995, 7).0, Ok(2988));
        assert_eq!(search(|page| page == 2990 || page == 2993, 6).0, Ok(2994));
        assert_eq!(search(|page| page >= 2990, 512).0, Ok(2048));
        assert_eq!(search(|page| page >= 10, 11).0, Err(10));
    }

    #[test]
    fn a_mapping_begins_where_a_slot_of_its_size_begins() {
        let end = 5 * VAST + 1000;
        let start = |pages| hole_below(0..end, pages, &|_: Range<u64>| None);
        assert_eq!(start(VAST), Ok(4 * VAST));
        assert_eq!(start(VAST + 1001), Ok(3 * VAST));
        assert_eq!(start(VAST - 1), Ok((end - VAST + 1) / LARGE * LARGE));
        assert_eq!(start(LARGE - 1), Ok(end - LARGE + 1));
    }

    #[test]
    fn dense_land_costs_a_look_for_each_time_the_size_of_the_request() {
        assert_eq!(search(|page| page >= 100, 100), (Ok(0), 30));
    }
}
