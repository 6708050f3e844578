//! Random legal histories of objects that tell their sole holders, against the true counts. A holder that is
//! told so is alone, and the domain has no record of the object, so that its header may be made anew. A
//! holder that stays alone is told.

use refcache::Config;

use crate::random::Dice;
use crate::world::{Name, World, roomy};

struct History {
    world: World,
    cores: usize,
    dice: Dice,
    /// The objects, and the number of references to each, which is at least one.
    held: Vec<(Name, i64)>,
    /// Number of times that a holder was told, and made the object anew.
    renewed: usize,
}

impl History {
    fn new(config: Config, objects: usize, seed: u64) -> Self {
        let mut world = World::new(config);
        let held = (1..=objects as i64).map(|count| (world.watched_object(count), count)).collect();
        Self { world, cores: config.cores, dice: Dice(seed), held, renewed: 0 }
    }

    fn step(&mut self) {
        let core = self.dice.below(self.cores);
        let at = self.dice.below(self.held.len());
        self.world.refcache.online(self.world.pin(core));
        match self.dice.below(20) {
            0..=2 => self.add(core, at),
            3..=6 => self.drop_reference(core, at),
            7 => self.hand_on(core, at),
            8 => self.ask(at),
            9 => self.world.refcache.offline(self.world.pin(core)),
            10 => _ = self.world.refcache.doze(self.world.pin(core), at),
            _ => drop(self.world.tick(core)),
        }
        self.check();
    }

    fn add(&mut self, core: usize, at: usize) {
        self.held[at].1 += 1;
        self.world.share(core, self.held[at].0);
    }

    /// Drops a reference. The last one is replaced by a reference to a new object in the same place, and the
    /// old object is released by itself.
    fn drop_reference(&mut self, core: usize, at: usize) {
        let (object, count) = self.held[at];
        self.world.adjust(core, object, -1);
        self.held[at] = match count {
            1 => (self.world.watched_object(1), 1),
            _ => (object, count - 1),
        };
    }

    /// Hands a reference on to `core` by counting it there.
    fn hand_on(&mut self, core: usize, at: usize) {
        let from = self.dice.below(self.cores);
        self.world.refcache.online(self.world.pin(from));
        self.world.share(core, self.held[at].0);
        self.world.adjust(from, self.held[at].0, -1);
    }

    fn ask(&mut self, at: usize) {
        let object = self.held[at].0;
        if object.is_sole() {
            self.world.renew(object);
            self.renewed += 1;
        }
    }

    fn check(&self) {
        for (object, count) in &self.held {
            assert!(!object.is_released(), "released with {count} references");
            assert!(
                *count == 1 || !object.is_sole(),
                "{count} references, and one holder was told that it is alone"
            );
        }
    }

    /// Drops all but one reference of each object, and checks that every holder is told.
    fn end(mut self) -> usize {
        (0..self.cores).for_each(|core| self.world.refcache.online(self.world.pin(core)));
        for (object, count) in self.held.iter().filter(|(_, count)| *count > 1) {
            self.world.adjust(self.dice.below(self.cores), *object, 1 - count);
        }
        self.world.turns(4);
        (0..100).take_while(|_| self.world.refcache.garbage() > 0).for_each(|_| self.world.turn());
        assert!(self.held.iter().all(|(object, _)| object.is_sole()), "a sole holder was not told");
        assert_eq!(self.world.refcache.garbage(), 0);
        self.renewed
    }
}

fn histories(config: Config, objects: usize) {
    let (seeds, steps) = if cfg!(miri) { (2, 300) } else { (200, 2_000) };
    let mut renewed = 0;
    for seed in 1..=seeds {
        let mut history = History::new(config, objects, seed);
        (0..steps).for_each(|_| history.step());
        renewed += history.end();
    }
    assert!(renewed > seeds as usize, "a holder was told {renewed} times: no test");
}

#[test]
fn two_cores_and_one_object() {
    histories(roomy(2), 1);
}

#[test]
fn four_cores_with_conflicts() {
    histories(Config { cache_slots: 1, ..roomy(4) }, 3);
}

#[test]
fn three_cores_with_a_small_budget() {
    histories(Config { cache_slots: 4, review_budget: 1, ..roomy(3) }, 8);
}
