//! Artificial spaces that are mostly empty. They show the cost of metadata and tables when pages share
//! nothing with a neighbour.
//!
//! Linux's part is computed, not measured: its tables from the addresses, and a `vm_area_struct` for each
//! region with the region's share of the tree.

use std::collections::HashSet;

use super::live::VMA_BYTES;
use super::snapshot::{Linux, Region, Snapshot};
use super::tables::LEVELS;

/// The bytes of a region's share of Linux's maple tree. A node of 256 bytes has sixteen slots, of which a
/// region takes one and the gap behind it another. In Linux's favour all nodes are full, and there are none
/// above.
const TREE_BYTES: u64 = 2 * 256 / 16;
/// The first page of all these spaces.
const FIRST: u64 = 1 << 30;
/// log2 of the pages that a page table covers.
const TABLE: u32 = LEVELS[0];

/// Returns all spaces.
pub fn all() -> Vec<Snapshot> {
    vec![
        snapshot("500 pages at odd places", odd_places().map(|page| region(page, 1, vec![(0, 1)])).collect()),
        snapshot("one page in 512", vec![region(FIRST, 500 << TABLE, every_table(500))]),
    ]
}

/// Returns 500 pages of the 2^26 in 256 GiB: the upper bits of a linear generator.
fn odd_places() -> impl Iterator<Item = u64> {
    let next = |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    let random = std::iter::successors(Some(1_u64), next).skip(1).map(|state| state >> 38);
    let mut places: Vec<u64> = random.take(500).map(|place| FIRST + place).collect();
    places.sort_unstable();
    places.into_iter()
}

/// Returns the first page of each of `tables` tables.
fn every_table(tables: u64) -> Vec<(u64, u64)> {
    (0..tables).map(|table| (table << TABLE, 1)).collect()
}

fn region(start: u64, pages: u64, resident: Vec<(u64, u64)>) -> Region {
    Region { start, pages, rights: [true, true, false], shared: false, file: None, resident }
}

fn snapshot(program: &str, regions: Vec<Region>) -> Snapshot {
    let linux = Linux {
        vmas: regions.len() as u64,
        vma_bytes: VMA_BYTES + TREE_BYTES,
        table_bytes: 4096 * tables(&regions) as u64,
    };
    Snapshot { program: program.to_owned(), linux, regions }
}

/// Returns the number of page tables, of all levels, that lead to the pages with memory.
fn tables(regions: &[Region]) -> usize {
    let runs = regions
        .iter()
        .flat_map(|region| region.resident.iter().map(|(first, pages)| (region.start + first, *pages)));
    let pages = runs.flat_map(|(first, pages)| first..first + pages);
    pages.flat_map(|page| LEVELS.map(|bits| (bits, page >> bits))).collect::<HashSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::super::row::Row;
    use super::*;
    use abi::config::Tables;

    /// The most that our core may cost, as a multiple of Linux.
    const MOST: f64 = 1.5;

    #[test]
    fn pages_far_apart_have_tables_of_their_own() {
        let all = all();
        assert_eq!(all.iter().map(Snapshot::resident).collect::<Vec<_>>(), [500, 500]);
        assert!(all[0].linux.table_bytes > 700 * 4096 && all[0].linux.vmas == 500, "{:?}", all[0].linux);
        assert_eq!(all[1].linux.table_bytes, (500 + 1 + 1 + 1) * 4096);
        assert!(all.iter().all(|snapshot| snapshot.to_string().parse::<Snapshot>().unwrap() == *snapshot));
    }

    #[test]
    fn pages_far_apart_cost_little_more_than_on_linux() {
        for row in all().iter().map(|snapshot| Row::of(snapshot, Tables::Adaptive).unwrap()) {
            assert!(row.ratio <= MOST, "{row:?}");
        }
    }
}
