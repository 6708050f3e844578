//! Checks of the reports of a space: its list of regions, and its counts.

use percore::Pinned;
use vm::{Detail, Event, Flags, HUGE_PAGES, PageNum, PageRange, Prot, Region, Resident};

use crate::{Model, Shows, World};

/// Pages whose translations faults filled in. A fill fault may have been one of a huge page, so a space with
/// huge pages counts as if all were.
pub(crate) fn filled(world: &World) -> u64 {
    let huge = world.count(Event::HugeFault) + world.count(Event::Promotion);
    let most = if huge > 0 { HUGE_PAGES } else { 1 };
    let faults: u64 = [
        Event::AllocFault,
        Event::HugeFault,
        Event::FillFault,
        Event::CowCopy,
        Event::CowReuse,
        Event::PageIn,
    ]
    .map(|event| world.count(event))
    .iter()
    .sum();
    faults * most
}

/// Targets of shootdowns, interrupted or not.
pub(crate) fn shot(world: &World) -> u64 {
    world.count(Event::IpiTarget) + world.count(Event::AvoidedIpi)
}

/// Checks that the list of regions agrees with the model on each page, that no two regions could be one, and
/// that an overview agrees.
pub(crate) fn judge_regions(world: &World, model: &Model, pin: &Pinned, user: PageRange) {
    let regions = world.regions(pin, user);
    let mappings = regions.iter().map(|region| Region { resident: Resident::default(), ..*region });
    let mappings: Vec<_> = mappings.collect();
    for most in [1, 3, usize::MAX] {
        assert_eq!(overview(world, pin, user, Detail::Resident, most), regions);
        assert_eq!(overview(world, pin, user, Detail::Mappings, most), mappings);
    }
    assert_eq!(regions.iter().map(|region| region.pages.pages()).sum::<u64>(), model.len() as u64);
    for pair in regions.windows(2) {
        let apart = pair[0].pages.end() < pair[1].pages.start();
        assert!(apart || pair[0].pages.end() == pair[1].pages.start() && pair[0].mapping != pair[1].mapping);
    }
    let mut resident = 0;
    let _holes = world.space.resident(pin, user, &mut |run| resident += run.pages());
    assert_eq!(regions.iter().map(|region| region.resident.total()).sum::<u64>(), resident);
    for region in regions {
        region.pages.iter().for_each(|page| assert_eq!(model.describe(page), describe(world, &region, page)));
    }
}

/// Returns the regions, as overviews of at most `most` regions report them.
fn overview(world: &World, pin: &Pinned, user: PageRange, detail: Detail, most: usize) -> Vec<Region> {
    let (mut regions, mut rest) = (Vec::<Region>::new(), user);
    while !rest.is_empty() {
        let mut shown = 0;
        let end = world.space.overview(pin, rest, detail, most, &mut |next| {
            shown += 1;
            match regions.last().and_then(|last| last.joined(*next)) {
                Some(joined) => {
                    assert_eq!(shown, 1, "one overview shows two parts of the region {joined:?}");
                    *regions.last_mut().expect("it was joined") = joined;
                }
                None => regions.push(*next),
            }
        });
        assert!(shown <= most && end > rest.start());
        rest = PageRange::between(end, rest.end());
    }
    regions
}

fn describe(world: &World, region: &Region, page: PageNum) -> Option<(Prot, Flags, Shows)> {
    let (prot, flags) = (region.mapping.prot(), region.mapping.flags());
    let (shared, sealed) = (flags.contains(Flags::SHARED), flags.contains(Flags::SEALED));
    let shows = match region.mapping.backing().map(|backing| world.machine.files.shown(backing, page)) {
        None => Shows::Zeroes,
        Some((file, index)) if sealed => Shows::Sealed(file, index),
        Some((file, index)) if shared => Shows::Shared(file, index),
        Some((file, index)) => Shows::Private(file, index),
    };
    Some((prot, flags & Flags::ADVICE, shows))
}
