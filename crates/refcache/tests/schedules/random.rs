//! Random legal histories against an oracle that knows the true counts: no object with a reference is
//! released, and every object without one is, once. Cores come and go, caches are tiny, references travel.

use refcache::Config;

use crate::world::{Name, World, roomy};

/// The generator xorshift64*, which is enough to pick schedules, and the same everywhere.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

struct History {
    world: World,
    cores: usize,
    dice: Dice,
    /// The objects, and the number of references to each.
    held: Vec<(Name, i64)>,
}

impl History {
    fn new(config: Config, objects: usize, seed: u64) -> Self {
        let mut world = World::new(config);
        let held = (0..objects).map(|_| (world.weak_object(1), 1)).collect();
        Self { world, cores: config.cores, dice: Dice(seed), held }
    }

    fn step(&mut self) {
        let core = self.dice.below(self.cores);
        let at = self.dice.below(self.held.len());
        if !self.world.refcache.is_online(self.world.pin(core)) {
            self.world.refcache.online(self.world.pin(core));
        }
        match self.dice.below(20) {
            0..=5 => self.take(core, at),
            6..=11 => self.drop_reference(core, at),
            12 => self.find(core, at),
            13 => self.world.refcache.offline(self.world.pin(core)),
            14 => _ = self.world.refcache.doze(self.world.pin(core), at),
            _ => drop(self.world.tick(core)),
        }
        self.check();
    }

    fn take(&mut self, core: usize, at: usize) {
        let (object, count) = &mut self.held[at];
        if *count > 0 {
            *count += 1;
            self.world.adjust(core, *object, 1);
        }
    }

    fn drop_reference(&mut self, core: usize, at: usize) {
        let (object, count) = &mut self.held[at];
        if *count > 0 {
            *count -= 1;
            self.world.adjust(core, *object, -1);
        }
    }

    /// Finds the object by its weak word, and may count a reference.
    fn find(&mut self, core: usize, at: usize) {
        let (object, count) = &mut self.held[at];
        let found = self.world.revive(core, *object);
        assert_eq!(found, !object.is_released(), "the word and the object disagree");
        if found && self.dice.below(2) == 0 {
            *count += 1;
            self.world.adjust(core, *object, 1);
        }
    }

    fn check(&self) {
        for (object, count) in &self.held {
            assert!(*count == 0 || !object.is_released(), "released with {count} references");
        }
    }

    /// Drops every reference and checks that every object is released.
    fn end(mut self) {
        (0..self.cores).for_each(|core| self.world.refcache.online(self.world.pin(core)));
        for (object, count) in self.held.iter().filter(|(_, count)| *count > 0) {
            self.world.adjust(self.dice.below(self.cores), *object, -count);
        }
        self.world.turns(10);
        assert!(self.held.iter().all(|(object, _)| object.is_released()), "an object was lost");
        assert_eq!(self.world.refcache.garbage(), 0);
    }
}

fn histories(config: Config, objects: usize) {
    let (seeds, steps) = if cfg!(miri) { (2, 300) } else { (200, 3_000) };
    for seed in 1..=seeds {
        let mut history = History::new(config, objects, seed);
        (0..steps).for_each(|_| history.step());
        history.end();
    }
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
