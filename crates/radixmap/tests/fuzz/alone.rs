//! One core: the model gets each change as it happens, so it agrees with the map after a panic.

use std::mem;
use std::ops::{ControlFlow, Range};

use fuzzing::Dice;
use percore::Pinned;
use radixmap::{Always, BLOCK, Expand, IfDiffering, IfPresent, Never, RangeGuard, Run};
use refcache::Refcache;

use crate::segments::{Model, Segments};
use crate::trap::{Call, Trap, step};
use crate::{CORES, END, Map, block_of, domain, key, keys, part_of, provoke, settle, value};

const STEPS: usize = if cfg!(miri) { 12 } else { 60 };

pub fn round(dice: &mut Dice) {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain(dice);
    refcache.online(&pin);
    let mut trial = Trial {
        map: Map::new(&pin, &refcache).unwrap(),
        model: Model::new(),
        pin: &pin,
        refcache: &refcache,
    };
    for _ in 0..STEPS {
        trial.step(dice);
    }
    trial.judge(0..END);
    if dice.one_in(4) && !cfg!(miri) {
        // The map's keys, and the domain's epochs, do not change. The map can be dropped all the same.
        mem::forget(trial.map.lock_range(&pin, keys(dice), Always).unwrap());
        return;
    }
    trial.map.destroy(&pin);
    settle(&refcache, &pin);
    refcache.offline(&pin);
}

struct Trial<'a> {
    map: Map<'a>,
    model: Model,
    pin: &'a Pinned,
    refcache: &'a Refcache,
}

impl Trial<'_> {
    fn step(&mut self, dice: &mut Dice) {
        let keys = keys(dice);
        let Self { map, model, pin, refcache } = self;
        provoke(dice, |dice| match dice.below(16) {
            0..6 => exactly(&mut map.lock_range(pin, keys.clone(), Always).unwrap(), model, dice),
            6 => clear_or_raise(&mut map.lock_range(pin, keys.clone(), IfPresent).unwrap(), model, dice),
            7 => whole_slots(map.lock_range(pin, keys.clone(), IfDiffering).unwrap(), model, dice),
            8 => whole_slots(map.lock_whole(pin, keys.clone()), model, dice),
            9 | 10 => one_key(map, model, pin, dice),
            11 => look(map, model, pin, keys.clone()),
            12 => copy(map, model, pin, dice),
            13 => wait_for_oneself(map, pin, keys.clone(), dice),
            14 => map.each_leaf(pin, |leaf| {
                leaf.hold();
                leaf.release(1);
                step(Call::Closure);
            }),
            _ => (0..dice.below(6)).for_each(|_| _ = refcache.tick(pin)),
        });
        self.judge(keys);
    }

    /// Checks that the map has the model's values.
    fn judge(&self, keys: Range<u64>) {
        assert_eq!(contents(&mut self.map.lock_whole(self.pin, keys.clone())), self.model.used(keys));
    }
}

/// Adds the values of the keys of a slot.
fn told(segments: &mut Segments, keys: Range<u64>, value: Option<Trap>) {
    match value.filter(|value| value.parted) {
        Some(Trap { number, .. }) => {
            keys.for_each(|key| segments.push(key..key + 1, Some(number + key % BLOCK)));
        }
        None => segments.push(keys, value.map(|value| value.number)),
    }
}

fn contents<E: Expand>(guard: &mut RangeGuard<'_, Trap, E>) -> Vec<(Range<u64>, u64)> {
    let mut segments = Segments::default();
    guard.for_each(|entry| told(&mut segments, entry.keys(), entry.value()));
    segments.0
}

/// Does random operations on a range that is held exactly.
fn exactly(guard: &mut RangeGuard<'_, Trap>, model: &mut Model, dice: &mut Dice) {
    for _ in 0..1 + dice.below(4) {
        let (held, value) = (guard.keys(), value(dice));
        let part = part_of(&held, dice);
        match dice.below(10) {
            0 | 1 => {
                guard.fit(held.clone(), value).unwrap();
                guard.fill(value);
                model.set(held, Some(value.number));
            }
            2 => {
                guard.split(part.clone()).unwrap();
                guard.fit(part.clone(), value).unwrap();
                guard.fill_in(part.clone(), value);
                model.set(part, Some(value.number));
            }
            3 => {
                guard.fit(part.clone(), value).unwrap();
                let key = part.start;
                guard.with_key(key, |entry| entry.set(value)).unwrap();
                model.set(key..key + 1, Some(value.number));
            }
            4 => fold(guard, model, block_of(part.start), dice),
            5 => guard.for_each(|entry| {
                let keys = entry.keys();
                if dice.one_in(2) {
                    entry.clear();
                    model.set(keys, None);
                } else {
                    step(Call::Closure);
                    entry.set(value);
                    model.set(keys, Some(value.number));
                }
            }),
            6 => runs(guard, model, dice),
            7 => assert_eq!(guard.is_empty(), model.used(held).is_empty()),
            8 => _ = guard.widen(part),
            _ => {
                _ = guard.with_leaf(|leaf| {
                    leaf.hold();
                    leaf.release(1);
                })
            }
        }
    }
}

/// Folds a block, each key of which may have another number.
fn fold(guard: &mut RangeGuard<'_, Trap>, model: &mut Model, block: Range<u64>, dice: &mut Dice) {
    let value = Trap { parted: dice.one_in(2), ..value(dice) };
    guard.fold(block.clone(), value).unwrap();
    match value.parted {
        true => block.for_each(|key| model.set(key..key + 1, Some(value.number + key % BLOCK))),
        false => model.set(block, Some(value.number)),
    }
}

fn runs(guard: &mut RangeGuard<'_, Trap>, model: &mut Model, dice: &mut Dice) {
    guard.for_each_used(|run| {
        for _ in 0..dice.below(4) {
            let keys = run.keys();
            if dice.one_in(2) {
                run.clear();
                model.set(keys, None);
            } else {
                let value = Trap::new(dice.below(9) as u64);
                run.whole().unwrap().set(value);
                model.set(keys, Some(value.number));
            }
            step(Call::Closure);
        }
    });
}

fn clear_or_raise(guard: &mut RangeGuard<'_, Trap, IfPresent>, model: &mut Model, dice: &mut Dice) {
    let clears = dice.one_in(2);
    guard.for_each(|entry| {
        let keys = entry.keys();
        if clears {
            entry.clear();
            model.set(keys, None);
        } else if let Some((mut entry, Trap { number, .. })) = entry.used() {
            step(Call::Closure);
            entry.set(Trap::new(number % 9));
            model.set(keys, Some(number % 9));
        }
    });
}

fn whole_slots<E: Expand>(mut guard: RangeGuard<'_, Trap, E>, model: &mut Model, dice: &mut Dice) {
    if dice.one_in(3) {
        guard.split(part_of(&guard.keys(), dice)).unwrap();
    }
    if dice.one_in(3) {
        guard.for_each_used(|run| {
            if let Some(mut run) = run.whole() {
                run.clear();
                model.set(run.keys(), None);
            }
        });
    }
    guard.for_each(|entry| {
        if let Some(mut entry) = entry.whole().filter(|_| dice.one_in(3)) {
            entry.set(Trap::new(5));
            model.set(entry.keys(), Some(5));
        }
    });
    assert_eq!(contents(&mut guard), model.used(guard.keys()));
}

/// Does a fault, of a key or of its block.
fn one_key(map: &Map<'_>, model: &mut Model, pin: &Pinned, dice: &mut Dice) {
    let (key, wanted) = (key(dice), dice.one_in(2));
    let whole = |_| {
        step(Call::Closure);
        wanted
    };
    let locked = map.lock_key_or_block(pin, key, whole).unwrap();
    assert_eq!(locked.is_some(), model.get(key).is_some());
    let Some(mut guard) = locked else { return };
    assert!(guard.keys() == (key..key + 1) || wanted && guard.keys() == block_of(key));
    exactly(&mut guard, model, dice);
}

fn look(map: &Map<'_>, model: &Model, pin: &Pinned, keys: Range<u64>) {
    let seen = map.peek(pin, keys.start);
    assert!(seen.span.contains(&keys.start) && seen.used == model.get(keys.start).is_some());
    let near = keys.start..keys.end.min(keys.start + 4096);
    let first = map.first_used(pin, near.clone()).map(|span| span.start.max(near.start));
    assert_eq!(first, model.used(near).first().map(|(segment, _)| segment.start));
    assert_eq!(map.leaf_word(pin, keys.start).is_some(), seen.span.end - seen.span.start == 1);
    map.each_frame(pin, &mut |_| step(Call::Closure));
}

/// Copies into a map that is then dismantled.
fn copy(map: &Map<'_>, model: &mut Model, pin: &Pinned, dice: &mut Dice) {
    let mut twin = Map::new(pin, map.domain()).unwrap();
    let made = |run: &mut Run<'_, Trap>| {
        step(Call::Closure);
        Ok(Some(run.value()))
    };
    match dice.one_in(2) {
        true => map.copy_to(pin, &twin, 0..END, made).unwrap(),
        false => map.lock_all(pin).copy_to(pin, &twin, made).unwrap(),
    }
    assert_eq!(contents(&mut twin.lock_all(pin)), model.used(0..END));
    let mut segments = Segments::default();
    twin.dismantle(pin, |keys, value| told(&mut segments, keys, Some(value)), |_| step(Call::Closure));
    assert_eq!(segments.0, model.used(0..END));
}

/// Makes a second guard of keys that are held, in builds that detect it.
fn wait_for_oneself(map: &Map<'_>, pin: &Pinned, keys: Range<u64>, dice: &mut Dice) {
    let mut guard = map.lock_whole(pin, keys.clone());
    if cfg!(debug_assertions) {
        drop(map.lock_range(pin, part_of(&keys, dice), Never));
        drop(map.lock_key(pin, keys.start));
    }
    let _ = guard.try_for_each_in(self::keys(dice), |_| ControlFlow::<()>::Continue(()));
}
