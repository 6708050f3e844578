//! A panic of any code that the map calls leaves no slot locked, no count wrong, and no memory leaked.
// Miri would need many minutes for all these maps.
#![cfg(not(any(loom, miri)))]
#![forbid(unsafe_code)]

#[path = "common/trap.rs"]
mod trap;

use std::ops::{ControlFlow, Range};

use percore::Pinned;
use radixmap::{Always, BLOCK, IfDiffering, IfPresent, KEY_END, RadixMap, Run};
use refcache::{Config, Refcache};
use test_memory::{Failing, owned};
use trap::{CALLS, Call, Trap, WIDE, disarm, step, trap};

#[global_allocator]
static ALLOCATOR: Failing = Failing;

type Map<'r> = RadixMap<Trap, &'r Refcache>;

/// Test threads of one binary play different cores.
const CORES: usize = 16;
/// A block, parted and wide, in a gigabyte of which no other key is used.
const PARTED: Range<u64> = 3 * BLOCK..4 * BLOCK;
const FOLDED: Range<u64> = 1 << 27..2 << 27;
const PART: Trap = Trap { number: WIDE, parted: true };
/// Keys of a leaf.
const PAGES: Range<u64> = 9 * BLOCK + 5..9 * BLOCK + 14;

/// Fills a map with one thing of each kind.
fn prepare(map: &Map<'_>, pin: &Pinned) {
    let fill = |keys: Range<u64>, value: Trap| {
        let mut guard = map.lock_range(pin, keys.clone(), Always).unwrap();
        guard.fit(keys, value).unwrap();
        guard.fill(value);
    };
    fill(PARTED, PART);
    fill(FOLDED, Trap::new(7));
    PAGES.for_each(|key| fill(key..key + 1, Trap::new(key % 4)));
}

/// Runs `act`, in which the call number `after` of this kind panics. Returns whether it did.
fn with_trap(call: Call, after: usize, act: impl FnOnce()) -> bool {
    trap(call, after);
    let outcome = fuzzing::attempt(act);
    let sprung = !disarm();
    assert_eq!(outcome.err().as_deref(), sprung.then_some("sprung"));
    sprung
}

/// Makes the first, second, ... call of each kind panic in `operation`, each time on new maps, until there
/// are no more calls.
fn panics_cleanly(operation: impl Fn(&Map<'_>, &Map<'_>, &Pinned)) {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = Refcache::new(Config { cores: CORES, cache_slots: 64, review_budget: 64 });
    refcache.online(&pin);
    let sprung = |call: Call, after: usize| {
        let before = owned();
        let (map, twin) = (Map::new(&pin, &refcache).unwrap(), Map::new(&pin, &refcache).unwrap());
        prepare(&map, &pin);
        let sprung = with_trap(call, after, || operation(&map, &twin, &pin));
        for map in [&map, &twin] {
            // This waits for ever for a slot that was left locked.
            map.lock_range(&pin, 0..KEY_END, IfPresent).unwrap().for_each(|entry| entry.clear());
        }
        (0..32).for_each(|_| _ = refcache.tick(&pin));
        assert_eq!((map.stats().live(), twin.stats().live()), (1, 1), "{call:?} {after}: only roots stay");
        drop((map, twin));
        refcache.drain(&pin);
        assert_eq!(refcache.garbage(), 0);
        assert_eq!(owned(), before, "{call:?} {after}: memory was leaked");
        sprung
    };
    // Runs once for the memory that the first panic of a process allocates.
    with_trap(Call::Closure, 0, || step(Call::Closure));
    let calls = CALLS.map(|call| (0..40).take_while(|&after| sprung(call, after)).count());
    assert!(calls.iter().sum::<usize>() > 0, "nothing panicked");
}

#[test]
fn locking_a_key_of_a_block() {
    panics_cleanly(|map, _, pin| {
        let whole = |value: Trap| {
            step(Call::Closure);
            value.number == 0
        };
        drop(map.lock_key_or_block(pin, PARTED.start + 9, whole).unwrap());
    });
}

#[test]
fn locking_a_range_with_both_ends_in_folded_slots() {
    panics_cleanly(|map, _, pin| {
        drop(map.lock_range(pin, PARTED.start + 9..FOLDED.start + 9, IfPresent).unwrap());
    });
    panics_cleanly(|map, _, pin| {
        drop(map.lock_range(pin, PARTED.start - 1..PARTED.start + 9, IfDiffering).unwrap());
    });
}

#[test]
fn changing_what_is_held() {
    panics_cleanly(|map, _, pin| {
        let mut guard = map.lock_range(pin, 0..FOLDED.end, Always).unwrap();
        guard.for_each(|entry| match entry.used() {
            Some((mut entry, value)) => {
                entry.clear();
                step(Call::Closure);
                entry.set(Trap::new(value.number + 4));
                entry.clear();
            }
            None => step(Call::Closure),
        });
    });
}

#[test]
fn changing_what_is_used() {
    panics_cleanly(|map, _, pin| {
        map.lock_all(pin).for_each_used(|run| {
            run.clear();
            step(Call::Closure);
            run.set(Trap::new(run.value().number & 3));
            step(Call::Closure);
            run.clear();
            run.clear();
        });
    });
}

#[test]
fn filling_splitting_and_folding() {
    panics_cleanly(|map, _, pin| {
        let mut guard = map.lock_range(pin, PARTED.start..PAGES.end, Always).unwrap();
        guard.split(PARTED.start + 1..PARTED.start + 2).unwrap();
        guard.fit(PARTED.clone(), Trap::new(WIDE)).unwrap();
        guard.fill_in(PARTED.start + 1..PARTED.start + 2, Trap::new(WIDE));
        guard.fold(PARTED.clone(), PART).unwrap();
        let seen = guard.with_key(PARTED.start + 7, |entry| {
            step(Call::Closure);
            entry.value().unwrap().number
        });
        assert_eq!(seen, Ok(WIDE + 7));
        let _ = guard.try_for_each_in(PAGES, |entry| match entry.value() {
            Some(_) => {
                step(Call::Closure);
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        });
    });
}

fn copied(run: &mut Run<'_, Trap>) -> Result<Option<Trap>, radixmap::OutOfMemory> {
    step(Call::Closure);
    let value = run.value();
    if value.number % 4 == 3 {
        run.clear();
    }
    step(Call::Closure);
    Ok((value.number % 4 > 0).then_some(value))
}

#[test]
fn copying_a_map_that_is_held() {
    panics_cleanly(|map, twin, pin| map.lock_all(pin).copy_to(pin, twin, copied).unwrap());
}

#[test]
fn copying_a_map_slot_by_slot() {
    panics_cleanly(|map, twin, pin| map.copy_to(pin, twin, 0..KEY_END, copied).unwrap());
}

#[test]
fn holding_leaves() {
    panics_cleanly(|map, _, pin| {
        map.each_leaf(pin, |leaf| {
            leaf.hold();
            leaf.hold();
            leaf.release(2);
            step(Call::Closure);
        });
    });
}

/// The map can be dismantled once more, or dropped as it is.
#[test]
fn taking_a_map_apart() {
    panics_cleanly(|map, _, pin| {
        let mut other = Map::new(pin, map.domain()).unwrap();
        prepare(&other, pin);
        other.dismantle(pin, |_, _| step(Call::Closure), |_| step(Call::Closure));
    });
}
