//! Weak words: readers against the reviewer.

use std::sync::atomic::Ordering;

use crate::world::{Name, World, panics, roomy};

#[test]
fn a_reader_brings_a_dying_object_back() {
    let mut world = World::new(roomy(2));
    let object = world.weak_object(1);
    world.adjust(0, object, -1);
    world.turns(2);
    assert!(world.is_dying(object));
    assert!(world.revive(1, object));
    world.adjust(1, object, 1);
    assert!(!world.is_dying(object));
    world.turns(6);
    assert!(!object.is_released());
    assert!(!world.is_dying(object), "an object in use is not marked");
    world.adjust(0, object, -1);
    world.turns(6);
    assert!(object.is_released());
    assert!(!world.revive(1, object), "the word of a released object is empty");
}

#[test]
fn a_revived_object_that_is_not_counted_is_reviewed_again() {
    let mut world = World::new(roomy(1));
    let object = world.weak_object(1);
    world.adjust(0, object, -1);
    world.turns(2);
    assert!(world.revive(0, object));
    assert_eq!((world.tick(0).freed, object.is_released()), (0, false), "the reviewer lost the race");
    world.turns(1);
    assert!(!object.is_released());
    world.turns(1);
    assert!(object.is_released());
}

#[test]
fn the_owners_lock_keeps_the_object() {
    let mut world = World::new(roomy(1));
    let object = world.weak_object(1);
    object.object().word.0.fetch_or(1 | 4, Ordering::Relaxed);
    world.adjust(0, object, -1);
    world.turns(8);
    assert!(!object.is_released());
    object.object().word.0.fetch_and(!1, Ordering::Relaxed);
    world.turns(3);
    assert!(object.is_released());
    assert_eq!(object.object().word.0.load(Ordering::Relaxed), 0, "the owner's bits are cleared too");
}

#[test]
fn no_flush_under_a_loan() {
    let mut world = World::new(roomy(1));
    let object = world.weak_object(1);
    let (refcache, pin) = (&world.refcache, world.pin(0));
    let loan = refcache.loan(pin);
    assert!(world.revive(0, object));
    assert!(panics(|| refcache.tick(pin)));
    assert!(panics(|| refcache.offline(pin)));
    assert!(panics(|| refcache.drain(pin)));
    drop(loan);
    assert!(refcache.tick(pin).flushed);
}

/// Returns an object with a weak word that waits for its review on core 0. A reference comes and goes
/// meanwhile, by entries in two caches, which makes the object dirty.
fn dirty_object(world: &mut World) -> Name {
    let object = world.weak_object(1);
    world.adjust(0, object, -1);
    world.turn();
    world.adjust(0, object, 1);
    world.adjust(1, object, -1);
    object
}

/// No reader was there, so the mark stays.
#[test]
fn a_dirty_object_stays_dying() {
    let mut world = World::new(roomy(2));
    let object = dirty_object(&mut world);
    for _ in 0..3 {
        world.turn();
        assert!(world.is_dying(object) && !object.is_released());
    }
    world.turn();
    assert!(object.is_released());
}

#[test]
fn the_owners_bit_outlives_the_object() {
    let mut world = World::new(roomy(1));
    let object = world.weak_object(1);
    object.object().word.0.fetch_or(refcache::KEPT, Ordering::Relaxed);
    world.adjust(0, object, -1);
    world.turns(6);
    assert!(object.is_released());
    assert_eq!(object.object().word.0.load(Ordering::Relaxed), refcache::KEPT);
    assert_ne!(refcache::KEPT, 0);
}

/// The count is 0 in the header, and was not 0 a moment ago: a reference is in a core's cache. The object's
/// word gets another name then.
#[test]
fn a_dirty_object_stays_dirty_when_its_word_is_renamed() {
    let mut world = World::new(roomy(2));
    let object = dirty_object(&mut world);
    world.turn();
    world.adjust(1, object, 1);
    object.object().header().unname();
    world.turns(6);
    assert!(!object.is_released());
    world.adjust(0, object, -1);
    world.turns(6);
    assert!(object.is_released());
}
