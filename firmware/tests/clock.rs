//! Two counters, and messages that take their time.

use firmware::Offset;
use proptest::prelude::*;

/// Returns the offset found when `theirs` is ours + `offset`, by exchanges that take these ticks there and
/// back.
fn found(offset: i64, exchanges: &[(u64, u64)]) -> i64 {
    let mut known = Offset::unknown();
    let mut now = 1000u64;
    for (there, back) in exchanges {
        let before = now;
        let theirs = (before + there).wrapping_add_signed(offset);
        now = before + there + back;
        known.narrow(before, theirs, now);
    }
    known.value()
}

#[test]
fn counters_that_agree_stay_as_they_are() {
    assert_eq!(found(0, &[(900, 3), (5, 8000), (40, 60)]), 0);
    assert_eq!(Offset::unknown().value(), 0);
}

#[test]
fn the_quickest_exchange_decides() {
    assert_eq!(found(5000, &[(900, 300), (50, 50), (7000, 100)]), 5000);
    assert_eq!(found(-1 << 40, &[(1, 1)]), -1 << 40);
    assert_eq!(found(i64::MAX / 2, &[(10, 10), (1 << 50, 10)]), i64::MAX / 2);
}

#[test]
fn counters_that_drift_are_as_far_apart_as_seen_last() {
    let mut known = Offset::unknown();
    known.narrow(1000, 2000, 1010);
    known.narrow(2000, 4000, 2010);
    assert_eq!(known.value(), 1995);
}

proptest! {
    /// A clock that is set so never shows less than another core's did before a message: the error is at most
    /// half an exchange.
    #[test]
    fn a_message_never_arrives_before_it_was_sent(
        offset in -1i64 << 50..1 << 50,
        exchanges in prop::collection::vec((1u64..5000, 1u64..5000), 1..20),
    ) {
        let error = (found(offset, &exchanges) - offset).unsigned_abs();
        let shortest = exchanges.iter().map(|(there, back)| there + back).min().unwrap_or(0);
        prop_assert!(error <= shortest, "{error} of {shortest}");
        let slowest_way = exchanges.iter().map(|(there, back)| *there.max(back)).min().unwrap_or(0);
        prop_assert!(error <= slowest_way.max(shortest.div_ceil(2)));
    }
}
