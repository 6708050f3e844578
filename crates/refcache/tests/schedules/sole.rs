//! The answers that holders get, schedule by schedule.

use refcache::Config;

use crate::world::{World, roomy};

#[test]
fn a_new_object_is_its_makers() {
    let mut world = World::new(roomy(2));
    let (one, two, plain) = (world.watched_object(1), world.watched_object(2), world.object(1));
    assert_eq!([one, two, plain].map(|object| object.is_sole()), [true, false, false]);
    world.turns(5);
    assert!(one.is_sole() && !two.is_sole());
    assert_eq!(world.refcache.garbage(), 0);
}

#[test]
fn an_added_reference_shows_before_any_flush() {
    let mut world = World::new(roomy(2));
    let object = world.watched_object(1);
    world.share(0, object);
    assert!(!object.is_sole());
    world.turns(5);
    assert!(!object.is_sole());
}

#[test]
fn the_last_of_two_holders_knows_two_epochs_after_the_flush() {
    let mut world = World::new(roomy(2));
    let object = world.watched_object(2);
    world.adjust(1, object, -1);
    world.turn();
    assert_eq!((object.is_sole(), world.refcache.garbage()), (false, 1), "the flush found the one");
    world.turn();
    assert!(!object.is_sole(), "a whole epoch must pass");
    world.turn();
    assert_eq!((object.is_sole(), object.is_released(), world.refcache.garbage()), (true, false, 0));
}

/// The holder added a reference when the object was sole, and that reference was dropped before the flush.
/// The mark that the header got then must not count against the reference that the flush finds.
#[test]
fn a_reference_that_came_and_went_delays_no_more_than_one_that_went() {
    let mut world = World::new(roomy(2));
    let object = world.watched_object(1);
    world.share(1, object);
    world.adjust(1, object, -1);
    world.turns(3);
    assert!(object.is_sole());
}

#[test]
fn a_decrement_that_overtakes_an_increment_makes_no_holder_sole() {
    let mut world = World::new(Config { cache_slots: 1, ..roomy(2) });
    let (object, other) = (world.watched_object(2), world.object(1));
    world.tick(1);
    world.share(1, object);
    world.adjust(0, object, -1);
    world.adjust(0, other, 1);
    assert_eq!(world.refcache.garbage(), 1, "the global count is one, the true one is two");
    for _ in 0..10 {
        world.tick(0);
        world.tick(1);
        assert!(!object.is_sole());
    }
    assert_eq!(world.refcache.garbage(), 0);
}

#[test]
fn a_reference_added_before_the_review_dirties_the_one() {
    let mut world = World::new(roomy(2));
    let object = world.watched_object(2);
    world.adjust(0, object, -1);
    world.turns(2);
    world.share(1, object);
    let review = world.tick(0);
    assert_eq!(
        (review.reviewed, object.is_sole()),
        (1, false),
        "core 1 added a reference that is not flushed"
    );
}

#[test]
fn a_sole_holder_gives_up_and_the_object_goes() {
    let mut world = World::new(roomy(2));
    let object = world.watched_object(1);
    world.adjust(1, object, -1);
    world.turns(3);
    assert!(object.is_released());
}

#[test]
fn an_object_remade_by_its_sole_holder_is_counted_from_one() {
    let mut world = World::new(roomy(2));
    let object = world.watched_object(2);
    world.adjust(0, object, -1);
    world.turns(3);
    world.renew(object);
    world.share(1, object);
    world.adjust(0, object, -1);
    world.turns(5);
    assert!(!object.is_released());
    world.adjust(0, object, -1);
    world.turns(4);
    assert!(object.is_released());
}

#[test]
fn a_core_that_leaves_hands_the_one_on() {
    let mut world = World::new(roomy(2));
    let object = world.watched_object(2);
    world.adjust(1, object, -1);
    world.refcache.offline(world.pin(1));
    assert_eq!(world.refcache.garbage(), 1, "an orphan");
    world.turns(4);
    assert!(object.is_sole());
}
