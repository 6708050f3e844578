//! Memory maps as firmware makes them, and worse.

use firmware::{FRAME, GIB, MIB_2, Memory, MemoryMap, Pages};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
const LIMIT: u64 = 16 * TIB;
/// Bytes that the kernel keeps for each frame.
const EACH: u64 = 65;
const SHARE: u64 = 8;

fn usable(start: u64, end: u64) -> Memory {
    Memory { start, end, usable: true }
}

fn reserved(start: u64, end: u64) -> Memory {
    Memory { start, end, usable: false }
}

fn map(entries: &[Memory]) -> MemoryMap {
    MemoryMap::new(entries.iter().copied(), LIMIT)
}

fn regions(map: &MemoryMap) -> Vec<(u64, u64)> {
    map.iter().collect()
}

#[test]
fn unsorted_and_overlapping_entries_are_one_set() {
    let map = map(&[
        usable(8 * MIB, 16 * MIB),
        usable(MIB, 4 * MIB),
        usable(2 * MIB, 9 * MIB),
        usable(MIB, 2 * MIB),
    ]);
    assert_eq!(regions(&map), [(MIB, 16 * MIB)]);
    assert_eq!((map.frames(), map.end_frame(), map.lost()), (15 * MIB / FRAME, 16 * MIB / FRAME, 0));
}

#[test]
fn parts_of_pages_are_not_used() {
    let map = map(&[
        usable(100, 3 * FRAME + 1),
        usable(5 * FRAME + 7, 6 * FRAME - 1),
        reserved(FRAME + 5, FRAME + 6),
    ]);
    assert_eq!(regions(&map), [(2 * FRAME, 3 * FRAME)]);
}

#[test]
fn other_claims_to_memory_win_in_any_order() {
    let hole = reserved(2 * MIB, 3 * MIB);
    for entries in [[usable(MIB, 4 * MIB), hole], [hole, usable(MIB, 4 * MIB)]] {
        assert_eq!(regions(&map(&entries)), [(MIB, 2 * MIB), (3 * MIB, 4 * MIB)]);
    }
}

#[test]
fn entries_that_wrap_around_or_are_empty_do_no_harm() {
    let entries =
        [usable(u64::MAX - 5, u64::MAX), usable(7 * MIB, MIB), reserved(9, 9), reserved(5 * TIB, u64::MAX)];
    assert_eq!(regions(&map(&entries)), []);
    assert_eq!(map(&entries).end_frame(), 0);
}

#[test]
fn memory_beyond_the_limit_is_counted_as_lost() {
    let map = map(&[usable(LIMIT - MIB, LIMIT + 2 * MIB), usable(20 * TIB, 21 * TIB)]);
    assert_eq!((regions(&map), map.lost()), (vec![(LIMIT - MIB, LIMIT)], TIB + 2 * MIB));
}

#[test]
fn of_more_pieces_than_there_is_room_for_the_largest_stay() {
    let piece = |n: u64| usable(n * MIB, n * MIB + (n % 200 + 1) * FRAME);
    let map = MemoryMap::new((0..1000).map(piece), LIMIT);
    let kept = regions(&map);
    let all: u64 = (0..1000).map(|n| n % 200 + 1).sum();
    assert_eq!(map.frames() + map.lost() / FRAME, all);
    assert!(kept.len() >= 100 && kept.is_sorted(), "{}", kept.len());
    assert!(kept.iter().all(|(start, end)| end - start > 150 * FRAME), "{kept:?}");
}

#[test]
fn tables_come_from_the_highest_memory_that_the_boot_map_shows() {
    let mut map = map(&[usable(MIB, 64 * MIB), usable(4 * GIB, 64 * GIB)]);
    assert_eq!(map.carve(FRAME, 4 * GIB), Some(64 * MIB - FRAME));
    assert_eq!(map.carve(1, 4 * GIB), Some(64 * MIB - 2 * FRAME));
    assert_eq!(map.carve(GIB, u64::MAX), Some(63 * GIB));
    assert_eq!(map.carve(GIB, 4 * GIB), None);
    assert_eq!(regions(&map), [(MIB, 64 * MIB - 2 * FRAME), (4 * GIB, 63 * GIB)]);
}

#[test]
fn a_region_across_the_limit_is_carved_below_it() {
    let mut map = map(&[usable(3 * GIB, 5 * GIB)]);
    assert_eq!(map.carve(MIB, 4 * GIB), Some(4 * GIB - MIB));
    assert_eq!(regions(&map), [(3 * GIB, 4 * GIB - MIB), (4 * GIB, 5 * GIB)]);
}

/// The tables of the frames fit in machines up to a tebibyte, also where nearly all memory lies above 4 GiB.
#[test]
fn every_size_up_to_a_tebibyte_affords_its_tables() {
    for gib in [1, 2, 3, 4, 6, 8, 16, 100, 1024] {
        for low in [64 * MIB, 2 * GIB, 3 * GIB] {
            let high = (gib * GIB).saturating_sub(low);
            let mut map = map(&[usable(MIB, low.min(gib * GIB)), usable(4 * GIB, 4 * GIB + high)]);
            map.lose_unaffordable(EACH, SHARE);
            assert_eq!(map.lost(), 0, "{gib} GiB, {low:#x} below");
            let end = map.end_frame();
            assert!(map.carve(end, u64::MAX).is_some() && map.carve(64 * end, u64::MAX).is_some());
        }
    }
}

#[test]
fn a_little_memory_far_away_is_left_out() {
    let mut far = map(&[usable(MIB, 2 * GIB), usable(TIB, TIB + GIB)]);
    far.lose_unaffordable(EACH, SHARE);
    assert_eq!((regions(&far), far.lost()), (vec![(MIB, 2 * GIB)], GIB));
    let mut much = map(&[usable(MIB, 2 * GIB), usable(TIB, 2 * TIB)]);
    much.lose_unaffordable(EACH, SHARE);
    assert_eq!(much.lost(), 0);
}

fn shown(map: &MemoryMap, has_gib: bool) -> Vec<firmware::Page> {
    let pages: Vec<_> = Pages::new(map, has_gib).collect();
    assert!(pages.windows(2).all(|two| two[0].at + two[0].bytes <= two[1].at), "sorted and disjoint");
    assert!(pages.iter().all(|page| page.at.is_multiple_of(page.bytes)));
    for (start, end) in map.iter() {
        let first = pages.partition_point(|page| page.at + page.bytes <= start);
        let mut at = start;
        for page in pages[first..].iter().take_while(|page| page.at < end) {
            assert!(page.at <= at && page.is_memory, "{at:#x} is not shown");
            at = page.at + page.bytes;
        }
        assert!(at >= end, "{at:#x} is not shown");
    }
    pages
}

#[test]
fn all_memory_is_shown_and_holes_cost_nothing() {
    let near = map(&[usable(MIB, 3 * GIB), usable(4 * GIB, 5 * GIB + 3 * MIB)]);
    let far = map(&[usable(MIB, 3 * GIB), usable(TIB, TIB + GIB + 3 * MIB)]);
    for has_gib in [false, true] {
        assert_eq!(shown(&near, has_gib).len(), shown(&far, has_gib).len());
    }
    assert_eq!(shown(&near, false).len() as u64, 4 * GIB / MIB_2 + GIB / MIB_2 + 2);
    assert_eq!(shown(&near, true).len() as u64, 4 * GIB / MIB_2 + 1 + 2);
}

#[test]
fn devices_are_shown_below_four_gibibytes_only() {
    let pages = shown(&map(&[usable(MIB, 2 * GIB)]), true);
    assert_eq!(pages.last().map(|page| page.at + page.bytes), Some(4 * GIB));
    assert!(pages.iter().all(|page| page.is_memory == (page.at < 2 * GIB)));
}

#[test]
fn a_tebibyte_takes_few_pages() {
    let map = map(&[usable(MIB, 2 * GIB), usable(4 * GIB, TIB + 2 * GIB)]);
    assert_eq!(shown(&map, true).len() as u64, 4 * GIB / MIB_2 + 1022);
    assert_eq!(shown(&map, false).len() as u64, (TIB + 2 * GIB) / MIB_2);
}

proptest! {
    /// Compares with a set of frames: any entries, any pieces removed or carved.
    #[test]
    fn a_map_is_the_set_of_its_frames(
        entries in prop::collection::vec((0u64..300 * FRAME, 0u64..80 * FRAME, prop::bool::weighted(0.7)), 0..24),
        removed in prop::collection::vec((0u64..300 * FRAME, 0u64..40 * FRAME), 0..8),
        carved in prop::collection::vec(1u64..12 * FRAME, 0..6),
    ) {
        let entries: Vec<_> = entries.into_iter()
            .map(|(start, bytes, usable)| Memory { start, end: start + bytes, usable }).collect();
        let mut map = map(&entries);
        let whole = |entry: &Memory, frame| entry.start <= frame && frame + FRAME <= entry.end;
        let touched = |start: u64, end: u64, frame| start < end && start < frame + FRAME && frame < end;
        let mut model: Vec<u64> = (0..400).map(|frame| frame * FRAME).filter(|&frame| {
            entries.iter().any(|entry| entry.usable && whole(entry, frame))
                && !entries.iter().any(|entry| !entry.usable && touched(entry.start, entry.end, frame))
        }).collect();
        for (start, bytes) in removed {
            map.remove((start, start + bytes));
            model.retain(|&frame| !touched(start, start + bytes, frame));
        }
        for bytes in carved {
            if let Some(at) = map.carve(bytes, 200 * FRAME) {
                prop_assert!(at + bytes <= 200 * FRAME);
                let before = model.len() as u64;
                model.retain(|&frame| !touched(at, at + bytes, frame));
                prop_assert_eq!(before - model.len() as u64, bytes.div_ceil(FRAME));
            }
        }
        let frames: Vec<u64> = map.iter().flat_map(|(start, end)| (start..end).step_by(FRAME as usize)).collect();
        prop_assert_eq!(frames, model);
        prop_assert_eq!(map.lost(), 0);
    }
}
