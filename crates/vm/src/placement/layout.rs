//! Which addresses may be mapped, and where each core looks first.

use core::ops::Range;

use crate::PageRange;

/// The addresses that may be mapped.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Cores of the machine.
    pub cores: usize,
    /// Every page that may be mapped.
    pub user: PageRange,
    /// The range where mappings without a fixed address go first and the cores' arenas lie. Within `user`.
    pub anywhere: PageRange,
    /// A random number, without which the starts of the arenas cannot be guessed (see
    /// `docs/design/arenas.md`).
    pub seed: u64,
}

/// How `anywhere` is divided: along the largest node boundaries that give each core a part.
#[derive(Debug)]
pub(crate) struct Split {
    grain: u64,
    units: Range<u64>,
    cores: u64,
}

impl Split {
    pub(crate) fn of(layout: &Layout) -> Self {
        let (cores, within) = (layout.cores as u64, layout.anywhere);
        let split = |shift: u32| Self { grain: 1 << shift, units: units(within, 1 << shift), cores };
        let fits = |split: &Self| split.units.end.saturating_sub(split.units.start) >= cores;
        [27, 18, 9].map(split).into_iter().find(fits).unwrap_or_else(|| split(0))
    }

    /// Returns the part of `core`.
    pub(crate) fn part(&self, core: usize) -> Range<u64> {
        let units = self.units.end - self.units.start;
        let bound = |core: u64| (self.units.start + units * core / self.cores) * self.grain;
        bound(core as u64)..bound(core as u64 + 1)
    }
}

/// Pages in a piece of the yard: 128 MiB. Slots of two pieces' leaves lie in different cache lines.
const PIECE: u64 = 1 << 15;

/// The range where the cores' arenas begin: a piece for each, side by side. Eight of them are within 1 GiB,
/// so that a core which uses what others have mapped needs few upper tables.
#[derive(Debug)]
pub(crate) struct Yard {
    start: u64,
    pieces: u64,
    /// The index of core 0's piece.
    first: u64,
}

impl Yard {
    /// Somewhere in `anywhere`, if that is much larger.
    pub(crate) fn of(layout: &Layout) -> Option<Self> {
        let pieces = (layout.cores as u64).next_power_of_two();
        let places = units(layout.anywhere, pieces * PIECE);
        let count = places.end.checked_sub(places.start).filter(|&count| count >= 16)?;
        let start = (places.start + mix(layout.seed) % count) * pieces * PIECE;
        Some(Self { start, pieces, first: mix(!layout.seed) % pieces })
    }

    /// Returns the part of `core`.
    pub(crate) fn piece(&self, core: usize) -> Range<u64> {
        let start = self.start + (self.first + core as u64) % self.pieces * PIECE;
        start..start + PIECE
    }
}

/// Spreads a seed over all bits (the last steps of SplitMix64).
pub(crate) fn mix(seed: u64) -> u64 {
    let seed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ seed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ seed >> 31
}

fn units(within: PageRange, grain: u64) -> Range<u64> {
    within.start().get().div_ceil(grain)..within.end().get() / grain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageNum;

    fn layout(cores: usize, pages: Range<u64>) -> Layout {
        let all = PageRange::between(PageNum::new(pages.start), PageNum::new(pages.end));
        Layout { cores, user: all, anywhere: all, seed: 0 }
    }

    #[test]
    fn parts_are_disjoint_ordered_and_cover_at_least_half() {
        for cores in [1, 2, 7, 64, 256] {
            for pages in [16..1 << 35, 0..1 << 36, 700..(1 << 20) + 3, 3..2000, 5..9] {
                let split = Split::of(&layout(cores, pages.clone()));
                let parts: alloc::vec::Vec<_> = (0..cores).map(|core| split.part(core)).collect();
                assert!(
                    parts.windows(2).all(|pair| pair[0].end == pair[1].start),
                    "{cores} cores, {pages:?}"
                );
                assert!(pages.start <= parts[0].start && parts[cores - 1].end <= pages.end);
                let covered = parts[cores - 1].end - parts[0].start;
                assert!(2 * covered >= pages.end - pages.start, "{cores} cores, {pages:?}: {covered} pages");
                let largest = if pages.end > 1 << 34 && cores <= 64 { 1 << 27 } else { 1 };
                assert!(parts.iter().all(|part| part.start % largest == 0));
            }
        }
    }

    #[test]
    fn pieces_are_disjoint_and_lie_within_few_upper_tables() {
        for (cores, seed) in [(1, 5), (7, 6), (64, 7), (256, u64::MAX)] {
            let layout = Layout { seed, ..layout(cores, 16..1 << 35) };
            let yard = Yard::of(&layout).unwrap();
            let mut pieces: alloc::vec::Vec<_> = (0..cores).map(|core| yard.piece(core)).collect();
            pieces.sort_by_key(|piece| piece.start);
            assert!(pieces.windows(2).all(|pair| pair[0].end <= pair[1].start));
            let (first, last) = (pieces[0].start, pieces[cores - 1].end - 1);
            assert!(16 <= first && last < 1 << 35 && first >> 27 == last >> 27);
            assert!((last >> 18) - (first >> 18) <= cores as u64 / 8);
        }
    }

    #[test]
    fn the_yard_lies_where_mappings_may_go() {
        for (cores, seed) in [1, 7, 256].into_iter().flat_map(|cores| (0..100).map(move |seed| (cores, seed)))
        {
            let within = 3 << 32..1 << 35;
            let yard = Yard::of(&Layout { seed, ..layout(cores, within.clone()) }).unwrap();
            let pieces = (0..cores).map(|core| yard.piece(core));
            assert!(pieces.into_iter().all(|piece| within.start <= piece.start && piece.end <= within.end));
        }
    }

    #[test]
    fn a_small_space_has_no_yard() {
        assert!(Yard::of(&layout(4, 0..1 << 20)).is_none());
    }
}
