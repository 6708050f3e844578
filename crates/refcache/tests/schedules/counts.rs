//! Counts, flushes and reviews, schedule by schedule.

use refcache::Config;

use crate::world::{World, roomy};

#[test]
fn an_object_lives_until_its_last_reference_is_flushed_and_reviewed() {
    let mut world = World::new(roomy(2));
    let object = world.object(1);
    world.turns(6);
    assert!(!object.is_released());
    world.adjust(1, object, -1);
    world.turn();
    assert_eq!(world.refcache.garbage(), 1, "the flush found the zero");
    world.turn();
    assert!(!object.is_released(), "a whole epoch must pass");
    world.turn();
    assert!(object.is_released());
    assert_eq!(world.refcache.garbage(), 0);
}

/// The picture at the head of `lib.rs`.
#[test]
fn the_picture() {
    let mut world = World::new(roomy(2));
    let object = world.object(1);
    let first = world.refcache.epoch();
    let garbage = |world: &World| (world.refcache.epoch() - first + 1, world.refcache.garbage());

    world.adjust(1, object, 1);
    world.adjust(0, object, -1);
    world.tick(0);
    assert_eq!(garbage(&world), (1, 1), "Q");
    world.tick(1);

    world.adjust(1, object, -1);
    world.tick(0);
    world.tick(1);

    let r1 = world.tick(0);
    assert_eq!((r1.reviewed, r1.freed), (1, 0), "dirty");
    assert_eq!(garbage(&world), (3, 1));
    world.tick(1);

    world.turn();
    let r2 = world.tick(0);
    assert_eq!((r2.reviewed, r2.freed), (1, 1));
    assert_eq!(garbage(&world), (5, 0));
    assert!(object.is_released());
}

#[test]
fn a_decrement_that_overtakes_an_increment_frees_nothing() {
    let mut world = World::new(roomy(2));
    let object = world.object(1);
    world.tick(1);
    world.adjust(1, object, 1);
    world.adjust(0, object, -1);
    world.tick(0);
    assert_eq!(world.refcache.garbage(), 1, "the global count is zero, the true one is not");
    world.turns(5);
    assert!(!object.is_released());
    assert_eq!(world.refcache.garbage(), 0, "the object is off the queue");
}

/// The hole in the paper's figure 2, which flushes only deltas that are not zero. One reference travels
/// between two cores, always just ahead of the flushes: every delta is back at zero when its core flushes. If
/// those flushes record nothing, the global count is zero and clean for a whole epoch, while the reference is
/// there all the time.
#[test]
fn a_reference_that_dodges_every_flush_keeps_its_object() {
    let mut world = World::new(roomy(2));
    let object = world.object(1);
    world.adjust(1, object, 1);
    world.adjust(0, object, -1);
    world.tick(0);
    assert_eq!(world.refcache.garbage(), 1);
    for (from, to) in [(1, 0), (0, 1), (1, 0), (0, 1), (1, 0), (0, 1)] {
        world.adjust(to, object, 1);
        world.adjust(from, object, -1);
        world.tick(from);
        assert!(!object.is_released(), "the reference on core {to} was overlooked");
    }
    world.adjust(1, object, -1);
    world.turns(6);
    assert!(object.is_released());
}

#[test]
fn a_zero_that_was_left_and_found_again_is_dirty() {
    let mut world = World::new(roomy(2));
    let object = world.object(1);
    world.adjust(1, object, 1);
    world.adjust(0, object, -1);
    world.turn();
    world.tick(0);
    world.adjust(0, object, 1);
    world.adjust(1, object, -1);
    world.tick(1);
    let review = world.tick(0);
    assert_eq!((review.reviewed, review.freed), (1, 0), "core 0 has a reference that is not flushed");
    world.turns(6);
    assert!(!object.is_released());
}

#[test]
fn a_zero_found_after_the_flush_is_dated_late() {
    let mut world = World::new(Config { cache_slots: 1, ..roomy(2) });
    let (object, other) = (world.object(1), world.object(1));
    // Core 0 has arrived, so its next zero may belong to the next epoch already.
    world.tick(0);
    world.adjust(0, object, -1);
    world.adjust(0, other, 1);
    assert_eq!(world.refcache.garbage(), 1, "the conflict evicted the decrement");
    world.tick(1);
    world.turns(2);
    assert!(!object.is_released(), "no whole epoch of both cores is known to have passed");
    world.turn();
    assert!(object.is_released());
}

#[test]
fn conflicts_in_the_cache_lose_nothing() {
    let mut world = World::new(Config { cache_slots: 1, ..roomy(2) });
    let objects: Vec<_> = (0..10).map(|_| world.object(1)).collect();
    for round in 0..20 {
        for (at, &object) in objects.iter().enumerate() {
            world.adjust((round + at) % 2, object, 1);
            world.adjust((round + at + 1) % 2, object, -1);
        }
        if round % 3 == 0 {
            world.tick(round % 2);
        }
    }
    world.turns(6);
    assert!(objects.iter().all(|object| !object.is_released()));
    objects.iter().for_each(|&object| world.adjust(1, object, -1));
    world.turns(8);
    assert!(objects.iter().all(|object| object.is_released()));
}

#[test]
fn a_tick_reviews_no_more_than_its_budget() {
    let mut world = World::new(Config { review_budget: 3, ..roomy(1) });
    let objects: Vec<_> = (0..8).map(|_| world.object(1)).collect();
    objects.iter().for_each(|&object| world.adjust(0, object, -1));
    world.turns(2);
    let mut freed = Vec::new();
    while world.refcache.garbage() > 0 {
        assert!(world.refcache.wants_tick(world.pin(0)));
        freed.push(world.tick(0).freed);
    }
    assert_eq!(freed, [3, 3, 2]);
}

#[test]
fn ripe_objects_beyond_the_budget_want_another_tick_in_the_same_epoch() {
    let mut world = World::new(Config { review_budget: 1, ..roomy(2) });
    let objects = [world.object(1), world.object(1)];
    objects.iter().for_each(|&object| world.adjust(0, object, -1));
    world.turns(2);
    assert!(world.tick(0).flushed);
    assert!(world.refcache.wants_tick(world.pin(0)), "a ripe object is left");
    let again = world.tick(0);
    assert_eq!((again.flushed, again.freed), (false, 1));
    assert!(!world.refcache.wants_tick(world.pin(0)));
}

#[test]
fn a_chain_is_released_link_by_link_and_not_recursively() {
    let mut world = World::new(roomy(1));
    let length = if cfg!(miri) { 50 } else { 20_000 };
    let mut chain = vec![world.object(1)];
    (1..length).for_each(|at| chain.push(world.object_holding(1, chain[at - 1])));
    world.adjust(0, chain[length - 1], -1);
    let mut most = 0;
    while !chain[0].is_released() {
        most = most.max(world.tick(0).freed);
    }
    assert_eq!(most, 1, "the next link's zero is found by a flush, not inside the release");
    assert!(chain.iter().all(|link| link.is_released()));
}

#[test]
fn counts_may_move_by_many() {
    let mut world = World::new(roomy(2));
    let object = world.object(512);
    world.adjust(0, object, -500);
    world.turns(4);
    world.adjust(1, object, 1 << 40);
    world.adjust(0, object, -12);
    world.turns(4);
    assert!(!object.is_released());
    world.adjust(0, object, -(1 << 40));
    world.turns(4);
    assert!(object.is_released());
}

/// Space is objects + cores: a header is the same few words for any number of cores, and a queue needs no
/// more.
#[test]
fn space_is_objects_plus_cores() {
    assert!(size_of::<refcache::Header>() <= 64, "{} bytes", size_of::<refcache::Header>());
    let mut world = World::new(Config { cache_slots: 2, ..roomy(64) });
    let objects: Vec<_> = (0..100).map(|_| world.object(64)).collect();
    for core in 0..64 {
        objects.iter().for_each(|&object| world.adjust(core, object, -1));
    }
    world.turns(6);
    assert!(objects.iter().all(|object| object.is_released()));
}

/// Two references come and go while the object waits for its review, which must wait for both.
#[test]
fn an_object_that_is_dirty_twice_is_dirty() {
    let mut world = World::new(roomy(4));
    let object = world.object(1);
    world.adjust(0, object, -1);
    world.turn();
    for (core, delta) in [1, -1, 1, -1].into_iter().enumerate() {
        world.adjust(core, object, delta);
    }
    for _ in 0..3 {
        world.turn();
        assert!(!object.is_released());
    }
    world.turn();
    assert!(object.is_released());
}
