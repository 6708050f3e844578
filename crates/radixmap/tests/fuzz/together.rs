//! Several cores at once. No model checks the values, but they are whole, all keys can be locked in the end,
//! and all memory is freed.

use std::ops::Range;
use std::thread;

use fuzzing::Dice;
use percore::Pinned;
use radixmap::{Always, ExpandUsed, IfDiffering, IfPresent, RangeGuard};
use refcache::Refcache;

use crate::trap::{Call, Trap, step};
use crate::{CORES, END, Map, block_of, domain, key, keys, part_of, provoke, settle, value};

const THREADS: usize = if cfg!(miri) { 2 } else { 4 };
const STEPS: usize = if cfg!(miri) { 8 } else { 200 };

pub fn round(dice: &mut Dice) {
    let refcache = &domain(dice);
    let map = {
        let _core = percore::threads::enter_any(CORES);
        let pin = percore::pin();
        refcache.while_online(&pin, || Map::new(&pin, refcache).unwrap())
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (map, dice) = (&map, dice.split());
            scope.spawn(move || play(map, refcache, dice));
        }
    });
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    refcache.online(&pin);
    map.lock_range(&pin, 0..END, IfPresent).unwrap().for_each(|entry| entry.clear());
    map.destroy(&pin);
    settle(refcache, &pin);
}

fn play(map: &Map<'_>, refcache: &Refcache, mut dice: Dice) {
    let _core = percore::threads::enter_any(CORES);
    refcache.online(&percore::pin());
    for _ in 0..STEPS {
        let pin = percore::pin();
        provoke(&mut dice, |dice| act(map, &pin, keys(dice), dice));
        if dice.one_in(2) {
            refcache.tick(&pin);
        }
    }
    refcache.offline(&percore::pin());
}

fn act(map: &Map<'_>, pin: &Pinned, keys: Range<u64>, dice: &mut Dice) {
    match dice.below(12) {
        0..4 => exactly(&mut map.lock_range(pin, keys, Always).unwrap(), dice),
        4 => change(&mut map.lock_range(pin, keys, IfPresent).unwrap(), dice),
        5 => map.lock_range(pin, keys, IfDiffering).unwrap().for_each_used(|run| {
            step(Call::Closure);
            run.whole().into_iter().for_each(|mut run| run.clear());
        }),
        6 => {
            let mut guard = map.lock_whole(pin, keys.clone());
            guard.split(part_of(&keys, dice)).unwrap();
            guard.for_each(|entry| entry.whole().into_iter().for_each(|mut entry| entry.clear()));
        }
        7 | 8 => {
            let whole = |value: Trap| {
                step(Call::Closure);
                value.number.is_multiple_of(2)
            };
            let locked = map.lock_key_or_block(pin, key(dice), whole).unwrap();
            locked.into_iter().for_each(|mut guard| exactly(&mut guard, dice));
        }
        9 => {
            // The range is to the right of all held keys.
            let _left = map.lock_range(pin, keys.clone(), IfPresent).unwrap();
            let right = keys.end.min(END - 1)..END.min(keys.end + 9);
            if right.start == keys.end {
                drop(map.lock_range(pin, right, IfPresent).unwrap());
            }
        }
        10 => {
            let twin = Map::new(pin, map.domain()).unwrap();
            let copied = map.copy_to(pin, &twin, 0..END, |run| {
                step(Call::Closure);
                Ok((run.value().number % 3 > 0).then_some(run.value()))
            });
            copied.unwrap();
            let mut seen = 0;
            twin.lock_all(pin).for_each_used(|run| seen += run.value().number % 3);
        }
        _ => {
            assert!(map.peek(pin, keys.start).span.contains(&keys.start));
            map.first_used(pin, keys.start..keys.end.min(keys.start + 4096));
            map.each_leaf(pin, |leaf| {
                leaf.hold();
                leaf.release(1);
                step(Call::Closure);
            });
        }
    }
}

fn exactly(guard: &mut RangeGuard<'_, Trap>, dice: &mut Dice) {
    let (held, value) = (guard.keys(), value(dice));
    let part = part_of(&held, dice);
    match dice.below(5) {
        0 | 1 => {
            guard.fit(held, value).unwrap();
            guard.fill(value);
        }
        2 => {
            guard.fit(part.clone(), value).unwrap();
            guard.with_key(part.start, |entry| entry.set(value)).unwrap();
        }
        3 => guard.fold(block_of(part.start), Trap { parted: dice.one_in(2), ..value }).unwrap(),
        _ => change(guard, dice),
    }
}

fn change<E: ExpandUsed>(guard: &mut RangeGuard<'_, Trap, E>, dice: &mut Dice) {
    let clears = dice.one_in(2);
    guard.for_each(|entry| {
        step(Call::Closure);
        match entry.used().filter(|_| !clears) {
            Some((mut entry, value)) => entry.set(Trap::new(value.number % 7)),
            None => entry.clear(),
        }
    });
}
