//! Small types with units, and the sums that a space reports.

use vm::{
    Access, BackingError, BackingNum, Counters, Detail, Event, FaultError, Flags, Mapping, OutOfMemory,
    PAGE_SIZE, PageNum, PageRange, Placement, Prot, Resident, Tables, Usage, VirtAddr, VmError,
};
use vm_testkit::{ALL_TABLES, Design, Setup, Shows, World, for_each_design};

const RW: Prot = Prot::from_bits(3);

fn range(start: u64, pages: u64) -> PageRange {
    PageRange::new(PageNum::new(start), pages).unwrap()
}

#[test]
fn an_address_has_a_page_and_an_offset() {
    let at = VirtAddr::new(3 * PAGE_SIZE + 0x123);
    assert_eq!((at.get(), at.page(), at.offset()), (0x3123, PageNum::new(3), 0x123));
}

#[test]
fn rights_are_a_set() {
    assert_eq!((RW & Prot::READ, RW & Prot::EXEC, RW | Prot::EXEC), (Prot::READ, Prot::NONE, Prot::ALL));
    assert_eq!((RW - Prot::READ, RW | RW), (Prot::WRITE, RW));
    assert!(RW.allows(Access::Write) && !RW.allows(Access::Exec));
}

#[test]
fn ranges_have_a_hull_and_pages_in_common() {
    let (low, high) = (range(10, 5), range(15, 5));
    assert_eq!((low.hull(high), low.hull(PageRange::EMPTY)), (range(10, 10), low));
    assert_eq!(PageRange::EMPTY.hull(high), high);
    assert_eq!((low.common(high), low.common(range(12, 9))), (PageRange::EMPTY, range(12, 3)));
}

#[test]
fn a_mapping_keeps_what_it_is_made_of() {
    let backing = BackingNum::new(5);
    let mapping = Mapping::private(RW, backing).with(Flags::HUGE).with(Flags::HUGE).with(Flags::LOCKED);
    assert_eq!((mapping.prot(), mapping.backing()), (RW, Some(backing)));
    assert_eq!(mapping.flags(), Flags::HUGE | Flags::HUGE | Flags::LOCKED);
    let sealed = Mapping::shared(RW, backing).sealed();
    assert_eq!((sealed, sealed.prot()), (sealed.sealed(), Prot::READ));
    assert!(sealed.flags().contains(Flags::SHARED) && sealed.flags().contains(Flags::SEALED));
}

#[test]
fn sums_add_up() {
    let resident = Resident { alone: 1, huge: 1, counted: 10, shown: 100, compressed: 1000 };
    assert_eq!((resident.total(), resident.own()), (111, 1011));
    assert_eq!(Usage { mapped: 1000, own: 10, shown: 1 }.resident(), 11);
}

#[test]
fn errors_have_messages_of_their_own() {
    let refused = [
        VmError::Empty,
        VmError::OutOfRange,
        VmError::NoSpace,
        VmError::OutOfMemory,
        VmError::Exists,
        VmError::NotMapped,
        VmError::Denied,
        VmError::Mixed,
    ];
    let faults = [FaultError::NotMapped, FaultError::Denied, FaultError::OutOfMemory, FaultError::BeyondEnd];
    let backings = [BackingError::OutOfMemory, BackingError::BeyondEnd];
    let mut all: Vec<String> = refused.iter().map(VmError::to_string).collect();
    all.extend(faults.iter().map(FaultError::to_string));
    all.extend(backings.iter().map(BackingError::to_string));
    all.push(OutOfMemory.to_string());
    let count = all.len();
    all.sort();
    all.dedup();
    assert!(all.len() == count && all.iter().all(|message| message.contains(' ')), "{all:?}");
}

#[test]
fn a_space_sums_its_cores_and_its_pages() {
    for_each_design(Setup::new(), |world| {
        let file = world.machine.files.create(4);
        world.machine.on(0, |pin| {
            world.map(pin, Placement::Fixed(PageNum::new(100)), 4, RW, Shows::Private(file, 0)).unwrap();
            world.load(pin, PageNum::new(101), 0).unwrap();
        });
        assert_eq!(world.space.usage(), Usage { mapped: 4, own: 0, shown: 1 });
        world.machine.on(1, |pin| world.store(pin, PageNum::new(101), 0, 1).unwrap());
        assert_eq!(world.space.usage(), Usage { mapped: 4, own: 1, shown: 0 });
        let mut sum = Counters::default();
        (0..world.machine.cores())
            .for_each(|core| sum += world.space.core_counters(percore::CoreId::new(core)));
        sum += Counters::default();
        assert_eq!(sum, world.space.counters());
        assert_eq!((sum[Event::Mmap], sum[Event::CowCopy]), (1, 1));
        world.finish();
    });
}

/// The file gives its page up, so the space is the only one that has the frame, and needs no copy.
#[test]
fn a_page_of_a_file_that_is_given_up_is_the_spaces_own_once_it_is_written() {
    for_each_design(Setup::new(), |world| {
        let file = world.machine.files.create(1);
        let frames = world.frames();
        world.machine.on(0, |pin| {
            world.map(pin, Placement::Fixed(PageNum::new(100)), 1, RW, Shows::Private(file, 0)).unwrap();
            world.load(pin, PageNum::new(100), 0).unwrap();
            world.machine.files.set_len(file, 0);
            world.machine.files.drop_beyond(pin, frames, file);
        });
        world.machine.settle();
        assert_eq!(world.space.usage(), Usage { mapped: 1, own: 0, shown: 1 });
        world.machine.on(0, |pin| world.store(pin, PageNum::new(100), 0, 1).unwrap());
        assert_eq!(world.space.usage(), Usage { mapped: 1, own: 1, shown: 0 });
        world.finish();
    });
}

/// A file's page, and a page of zeroes beside it that is not mapped by the same call.
fn with_both(test: impl Fn(&World)) {
    for_each_design(Setup::new(), |world| {
        let file = world.machine.files.create(1);
        world.machine.on(0, |pin| {
            world.map(pin, Placement::Fixed(PageNum::new(100)), 1, RW, Shows::Shared(file, 0)).unwrap();
            world.map(pin, Placement::Fixed(PageNum::new(101)), 2, RW, Shows::Zeroes).unwrap();
            world.map(pin, Placement::Fixed(PageNum::new(103)), 1, Prot::READ, Shows::Zeroes).unwrap();
            world.store(pin, PageNum::new(102), 0, 1).unwrap();
        });
        test(&world);
        world.finish();
    });
}

#[test]
fn residence_says_whether_a_page_has_a_backing() {
    with_both(|world| {
        let resident = |pages| {
            let mut found = Vec::new();
            let backed =
                world.machine.on(0, |pin| world.space.resident(pin, pages, &mut |run| found.push(run)));
            (backed, found)
        };
        assert_eq!(resident(range(100, 4)), (Ok(true), vec![range(102, 1)]));
        assert_eq!(resident(range(101, 3)), (Ok(false), vec![range(102, 1)]));
        assert_eq!(resident(range(101, 4)).0, Err(VmError::NotMapped));
    });
}

#[test]
fn one_overview_shows_as_many_regions_as_are_asked_for() {
    with_both(|world| {
        for (most, shown, end) in [(usize::MAX, 3, 1000), (3, 3, 104), (2, 2, 103), (1, 1, 101)] {
            let mut found = Vec::new();
            let all = PageRange::between(PageNum::new(50), PageNum::new(1000));
            let next = world.machine.on(0, |pin| {
                world.space.overview(pin, all, Detail::Resident, most, &mut |region| found.push(*region))
            });
            assert_eq!(found.len(), shown);
            assert!((PageNum::new(end.min(104))..=PageNum::new(1000)).contains(&next), "{most}: {next:?}");
        }
    });
}

/// Touches one page in `stride` of a long region. Returns how far one overview looks.
fn looked_at(tables: Tables, stride: u64) -> u64 {
    let (world, start) = (World::radix(Setup::new(), tables), PageNum::new(1 << 18));
    let all = range(1 << 18, 2000 * stride);
    let next = world.machine.on(0, |pin| {
        world.map(pin, Placement::Fixed(start), all.pages(), RW, Shows::Zeroes).unwrap();
        for page in all.iter().step_by(stride as usize) {
            world.store(pin, page, 0, 1).unwrap();
        }
        world.space.overview(pin, all, Detail::Resident, usize::MAX, &mut |_| {})
    });
    world.finish();
    next.get() - start.get()
}

/// A run of pages is a step, and so are 16 pages of it.
#[test]
fn one_overview_ends_after_512_steps() {
    for tables in ALL_TABLES {
        assert_eq!(looked_at(tables, 1), 512);
        // 1 step for a touched page, and 1 + 3 for the 63 pages behind it.
        assert_eq!(looked_at(tables, 64), 512_u64.div_ceil(5) * 64);
    }
}

#[test]
fn a_range_that_is_protected_and_back_is_one_region() {
    for_each_design(Setup::new(), |world| {
        world.machine.on(0, |pin| {
            world.map(pin, Placement::Fixed(PageNum::new(100)), 8, RW, Shows::Zeroes).unwrap();
            let middle = range(102, 2);
            world.space.protect(pin, middle, Prot::READ).unwrap();
            assert_eq!(world.regions(pin, range(0, 200)).len(), 3);
            world.space.protect(pin, middle, RW).unwrap();
            assert_eq!(world.regions(pin, range(0, 200)).len(), 1);
        });
        world.finish();
    });
}

#[test]
fn only_adaptive_tables_link_leaves() {
    for design in Design::ALL {
        let world = World::new(Setup::new(), design);
        world.machine.on(0, |pin| {
            world.map(pin, Placement::Fixed(PageNum::new(100)), 1, RW, Shows::Zeroes).unwrap();
            world.store(pin, PageNum::new(100), 0, 1).unwrap();
            let leaf = world.space.walk(pin, PageNum::new(100));
            assert!(design != Design::Radix(Tables::Adaptive) || leaf.is_some_and(|(_, word)| word != 0));
            assert!(!matches!(design, Design::Tree(_)) || leaf.is_none(), "{design:?}: {leaf:?}");
        });
        world.finish();
    }
}
