//! Every counter against a naive one: by one flow of control that plays all cores, and by threads.
#![cfg(not(loom))]

#[path = "support/forgetful.rs"]
mod forgetful;

use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use baselines::{
    Asked, ClaimedCount, ClaimedSet, Deltas, EmbeddedCount, Locked, PayGo, Scheme, Shared, Shown, Sloppy,
    Slots, Snzi, Taken, Tenant, Uncounted, Zero,
};
use forgetful::Forgetful;
use percore::{CoreId, Pinned, threads};
use proptest::prelude::*;
use refcache::Config;

const CORES: usize = 5;
const THREADS: u64 = 3;
const ROUNDS: u64 = if cfg!(miri) { 50 } else { 200_000 };
/// Ticks of all cores after which a review by epochs has decided.
const REVIEW_TICKS: usize = 20;
const SLOPPY: Sloppy = Sloppy { threshold: 3 };

/// Makes a scheme with one entry for each core, so that two objects conflict.
fn paygo() -> PayGo {
    PayGo::new(CORES, 1)
}

/// Makes a scheme with one entry for each core, so that two objects conflict.
fn deltas<'c>() -> Deltas<'c> {
    Deltas::new(Config { cores: CORES, cache_slots: 1, review_budget: 4 })
}

/// Counts of two objects.
fn counts<'c, S: Scheme<'c>>() -> [S::Count; 2] {
    [(); 2].map(|()| S::count(CORES).unwrap())
}

/// The answers of a scheme on two objects, beside the truth.
struct World<'c, S: Scheme<'c>> {
    scheme: &'c S,
    counts: &'c [S::Count; 2],
    held: [Vec<S::Token>; 2],
    told: [usize; 2],
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Inc { object: usize, core: usize },
    Dec { object: usize, core: usize, which: usize },
    Settle { object: usize, core: usize },
    Tick { core: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (object, core) = (0..2_usize, 0..CORES);
    let pair = (object, core.clone());
    let step = prop_oneof![
        4 => pair.clone().prop_map(|(object, core)| Step::Inc { object, core }),
        4 => (pair.clone(), any::<usize>()).prop_map(|((object, core), which)| Step::Dec { object, core, which }),
        1 => pair.prop_map(|(object, core)| Step::Settle { object, core }),
        1 => core.prop_map(|core| Step::Tick { core }),
    ];
    prop::collection::vec(step, 0..if cfg!(miri) { 30 } else { 200 })
}

/// Returns the token of a core for the calling thread, which is the only one.
fn as_core(core: usize) -> Pinned {
    // SAFETY: one thread plays all cores of the scheme, in turn.
    unsafe { Pinned::assume(CoreId::new(core)) }
}

impl<'c, S: Scheme<'c>> World<'c, S> {
    fn new(scheme: &'c S, counts: &'c [S::Count; 2]) -> Self {
        (0..CORES).for_each(|core| scheme.online(&as_core(core)));
        Self { scheme, counts, held: [(); 2].map(|()| vec![S::FIRST]), told: [0; 2] }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Inc { object, core } => self.inc(object, core),
            Step::Dec { object, core, which } => self.dec(object, core, which),
            Step::Settle { object, core } => self.settle(object, core),
            Step::Tick { core } => self.scheme.tick(&as_core(core)),
        }
    }

    fn inc(&mut self, object: usize, core: usize) {
        if !self.held[object].is_empty() {
            let token = self.scheme.inc(&as_core(core), &self.counts[object]);
            self.held[object].push(token);
        }
    }

    fn dec(&mut self, object: usize, core: usize, which: usize) {
        let held = &mut self.held[object];
        if !held.is_empty() {
            let token = held.swap_remove(which % held.len());
            let last = self.scheme.dec(&as_core(core), &self.counts[object], token);
            assert!(S::ZERO != Zero::AtOnce || last == held.is_empty(), "not told at once");
            self.hear(object, last);
        }
    }

    fn settle(&mut self, object: usize, core: usize) {
        let last = self.scheme.settle(&as_core(core), &self.counts[object]);
        self.hear(object, last);
    }

    fn hear(&mut self, object: usize, last: bool) {
        assert!(!last || self.held[object].is_empty(), "an object in use is said to be nobody's");
        self.told[object] += usize::from(last);
    }

    /// Drops all references. Checks that each object was reported free once, as soon as it may be.
    fn end(mut self) {
        for object in 0..2 {
            while !self.held[object].is_empty() {
                self.dec(object, CORES - 1, 0);
            }
        }
        let rounds = if S::ZERO == Zero::ByEpoch { REVIEW_TICKS } else { 1 };
        for core in (0..rounds).flat_map(|_| 0..CORES) {
            self.scheme.tick(&as_core(core));
        }
        (0..2).for_each(|object| self.settle(object, 0));
        assert_eq!(self.told, [1, 1], "{}", S::NAME);
        (0..2).for_each(|object| self.settle(object, 0));
        assert_eq!(self.told, [1, 1], "{} says it twice", S::NAME);
        (0..CORES).for_each(|core| self.scheme.offline(&as_core(core)));
    }
}

fn follow<'c, S: Scheme<'c>>(scheme: &'c S, counts: &'c [S::Count; 2], steps: &[Step]) {
    let mut world = World::new(scheme, counts);
    steps.iter().for_each(|&step| world.step(step));
    world.end();
}

fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 2 } else { 400 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn as_a_naive_count(steps in steps()) {
        follow(&Shared, &counts::<Shared>(), &steps);
        follow(&Locked, &counts::<Locked>(), &steps);
        follow(&Snzi, &counts::<Snzi>(), &steps);
        follow(&Forgetful, &counts::<Forgetful>(), &steps);
        follow(&SLOPPY, &counts::<Sloppy>(), &steps);
        follow(&paygo(), &counts::<PayGo>(), &steps);
        let counts = counts::<Deltas<'_>>();
        follow(&deltas(), &counts, &steps);
    }
}

/// Objects that threads pass around. They are overwritten once they are reported free.
struct Shelf<'c, S: Scheme<'c>> {
    scheme: &'c S,
    counts: &'c [S::Count; 2],
    /// One reference to each object, for any thread to take.
    places: [Mutex<Option<S::Token>>; 2],
    told: [AtomicUsize; 2],
}

impl<'c, S: Scheme<'c>> Shelf<'c, S> {
    /// Takes a reference for the caller, by the one on the shelf.
    fn take(&self, object: usize, pin: &Pinned) -> S::Token {
        let shelf = self.places[object].lock().unwrap();
        assert!(shelf.is_some(), "the shelf is emptied at the end");
        self.check(object);
        self.scheme.inc(pin, &self.counts[object])
    }

    /// Puts the caller's reference on the shelf, and drops the one that was there.
    fn swap(&self, object: usize, token: S::Token, pin: &Pinned) {
        let before = self.places[object].lock().unwrap().replace(token);
        self.dec(object, before.unwrap(), pin);
    }

    fn dec(&self, object: usize, token: S::Token, pin: &Pinned) {
        self.check(object);
        let last = self.scheme.dec(pin, &self.counts[object], token);
        self.told[object].fetch_add(last.into(), Ordering::Relaxed);
    }

    fn settle(&self, object: usize, pin: &Pinned) {
        let last = self.scheme.settle(pin, &self.counts[object]);
        self.told[object].fetch_add(last.into(), Ordering::Relaxed);
    }

    /// Checks that an object is in use. The caller or the shelf has a reference.
    fn check(&self, object: usize) {
        let told = self.told[object].load(Ordering::Relaxed);
        assert_eq!(told, 0, "{}: an object in use is said to be nobody's", S::NAME);
    }

    fn play(&self, seed: u64) {
        let _core = threads::enter_any(256);
        // SAFETY: threads have different seeds, and no other thread plays cores of this scheme now.
        let pin = unsafe { Pinned::assume(CoreId::new(seed as usize)) };
        self.scheme.online(&pin);
        for round in 0..ROUNDS {
            let dice = (round * THREADS + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            self.one_round(dice, &pin);
        }
        self.scheme.offline(&pin);
    }

    fn one_round(&self, dice: u64, pin: &Pinned) {
        let object = (dice % 2) as usize;
        match dice / 2 % 8 {
            0..4 => {
                let (first, second) = (self.take(object, pin), self.take(object, pin));
                self.dec(object, first, pin);
                self.dec(object, second, pin);
            }
            4..7 => self.swap(object, self.take(object, pin), pin),
            _ if (dice / 16).is_multiple_of(512) => self.settle(object, pin),
            _ => self.scheme.tick(pin),
        }
    }

    fn end(self) {
        let (scheme, counts) = (self.scheme, self.counts);
        let held = self.places.map(|place| Vec::from_iter(place.into_inner().unwrap()));
        World { scheme, counts, held, told: self.told.map(AtomicUsize::into_inner) }.online().end();
    }
}

impl<'c, S: Scheme<'c>> World<'c, S> {
    fn online(self) -> Self {
        (0..CORES).for_each(|core| self.scheme.online(&as_core(core)));
        self
    }
}

fn pass_around<'c, S: Scheme<'c>>(scheme: &'c S, counts: &'c [S::Count; 2]) {
    let places = [(); 2].map(|()| Mutex::new(Some(S::FIRST)));
    let shelf = Shelf { scheme, counts, places, told: Default::default() };
    std::thread::scope(|scope| {
        let shelf = &shelf;
        (0..THREADS).for_each(|seed| drop(scope.spawn(move || shelf.play(seed))));
    });
    shelf.end();
}

#[test]
fn threads_pass_references_around() {
    pass_around(&Shared, &counts::<Shared>());
    pass_around(&Locked, &counts::<Locked>());
    pass_around(&Snzi, &counts::<Snzi>());
    pass_around(&Forgetful, &counts::<Forgetful>());
    pass_around(&SLOPPY, &counts::<Sloppy>());
    pass_around(&paygo(), &counts::<PayGo>());
    let counts = counts::<Deltas<'_>>();
    pass_around(&deltas(), &counts);
}

#[test]
fn an_uncounted_object_is_never_dead() {
    let pin = as_core(0);
    assert!(!Uncounted.dec(&pin, &(), ()));
    assert!(!Uncounted.settle(&pin, &()));
}

/// Checks the table in the crate's documentation.
#[test]
fn the_bytes_of_an_object() {
    for cores in [1, 4, 64] {
        assert_eq!((Uncounted::object_bytes(cores), Shared::object_bytes(cores)), (0, 8));
        assert_eq!((Locked::object_bytes(cores), PayGo::object_bytes(cores)), (16, 16));
        assert!(Deltas::object_bytes(cores) <= 48);
        assert!((128 * cores..128 * (cores + 1)).contains(&Sloppy::object_bytes(cores)));
        assert!(Snzi::object_bytes(cores) >= 128 * cores);
    }
    assert_eq!(Snzi::object_bytes(64), size_of::<baselines::SnziCount>() + 128 * (64 + 21));
}

/// Another object may claim the word when it counts nothing, and a question frees it.
#[test]
fn a_claimed_count_keeps_its_object_while_it_counts() {
    let word = ClaimedCount::default();
    let take = |object| word.take(object, 0).is_some();
    assert!(!take(1) && word.claim(1, 0) && word.claim(1, 0));
    assert!((0..0x7f).all(|_| take(1)) && !take(1) && !take(2));
    assert!(word.is_used() && word.has(1) && !word.has(2) && !word.claim(2, 0));
    (0..0x7f).for_each(|_| word.leave());
    assert!(!word.is_used() && !word.has(2) && take(1));
    word.leave();
    assert!(!word.has(1) && !take(1), "the question frees the word");
    assert!(word.claim(2, 0) && take(2) && !word.has(1) && word.has(2));
}

/// A taker learns who took before, and takes at once only where that was itself and none is counted.
#[test]
fn takers_of_a_claimed_count_find_out_about_each_other() {
    let (word, last) = (ClaimedCount::default(), ClaimedCount::TAKERS - 1);
    assert!(word.claim(1, 2) && !word.take_first(1, last) && word.take(1, last) == Some(2));
    assert!(!word.take_first(1, last) && word.take(1, 3) == Some(last));
    (0..2).for_each(|_| word.leave());
    assert!(!word.is_used() && !word.take_first(1, last) && !word.take_first(2, 3) && word.take_first(1, 3));
    assert!(word.has(1) && word.take(1, last) == Some(3));
}

/// A read of another object does not write the word, whose line other threads of the process may read. Memory
/// that is only read shows it: a compare-and-swap there ends the test, also one that fails.
#[test]
#[cfg(not(miri))]
fn a_claimed_count_of_another_object_is_only_read() {
    static WORDS: [u64; 2] = [0, 1 << 16 | 1 << 15];
    assert_eq!(size_of::<ClaimedCount>(), size_of::<u64>());
    for word in &WORDS {
        let word = std::hint::black_box(&raw const *word).cast::<ClaimedCount>();
        // SAFETY: a counter is a word, which begins as any value, and it is only loaded.
        assert!(unsafe { &*word }.take(2, 0).is_none() && !unsafe { &*word }.take_first(2, 0));
    }
}

/// Eight objects that all begin at the same place of a set count side by side. A ninth gets the word of one
/// that has not been read between two of its claims, and none while all are read.
#[test]
fn eight_objects_of_a_set_do_not_push_each_other_out() {
    let (set, place) = (ClaimedSet::default(), 3);
    let read = |object| set.take(object, 0).map(|(word, _)| word.leave()).is_some();
    assert!((1..=8).all(|object| set.claim(place, object, 0) && !set.claim(place, object, 0)));
    for _ in 0..10 {
        assert!((1..=8).all(read), "each keeps its word");
        assert!(!set.claim(place, 9, 0) && !read(9));
    }
    assert!((1..=8).filter(|&object| object != 6).all(read));
    assert!(set.claim(place, 9, 0) && read(9) && !read(6), "6 gives way");
}

/// An object has the word at the place that it begins at, and keeps it for a while before it is read.
#[test]
fn an_object_of_a_set_has_a_word_at_its_place_from_the_claim_on() {
    let (set, size) = (ClaimedSet::default(), size_of::<ClaimedCount>());
    let place = |word: &ClaimedCount| (&raw const *word as usize - &raw const set as usize) / size;
    let at = |first, object| (set.claim(first, object, 0), set.take(object, 0).map(|(word, _)| place(word)));
    assert_eq!(at(3, 1), (true, Some(3)));
    assert!(set.is_used(), "one of the words counts");
    assert_eq!((at(3, 2), at(7, 3), at(7, 4)), ((true, Some(4)), (true, Some(7)), (true, Some(0))));
    let fresh = ClaimedSet::default();
    assert!((1..=8).all(|object| fresh.claim(0, object, 0)));
    assert_eq!([fresh.claim(0, 9, 0), fresh.claim(0, 9, 0)], [false, true]);
}

/// A word that counts does not give way, however long ago it was used.
#[test]
fn an_object_of_a_set_keeps_its_word_while_it_counts() {
    let set = ClaimedSet::default();
    let held: Vec<_> =
        (1..=8).filter_map(|object| (set.claim(0, object, 0), set.take(object, 0)).1).collect();
    assert!(!set.claim(0, 9, 0) && !set.claim(0, 9, 0) && held.len() == 8);
    assert!(set.is_used() && (1..=8).all(|object| set.has(object)) && !set.has(9));
    held.iter().for_each(|(word, _)| word.leave());
    assert!(
        !set.is_used() && (1..=8).all(|object| set.take(object, 0).map(|(word, _)| word.leave()).is_some())
    );
    assert!((1..=8).all(|object| !set.has(object) && set.take(object, 0).is_none()), "questions free words");
}

/// A question passes over the slots of other groups, goes on where the last piece ended or a block counted,
/// and ends when all have been looked at.
#[test]
fn a_question_looks_at_each_slot_once() {
    let slots = Slots::<u32, 100>::new();
    let blocks: Vec<u32> = (0..100).collect();
    assert!(
        blocks
            .iter()
            .all(|block| slots.insert(block.into(), *block as usize, |_| ()) == Some(*block as usize))
    );
    assert!(slots.insert((&0).into(), 0, |_| ()).is_none() && slots.end() == 100);
    // SAFETY: the blocks live until the end of the test.
    let number = |block: NonNull<u32>| unsafe { *block.as_ref() };
    let groups = Slots::<u32, 100>::group(3) | Slots::<u32, 100>::group(64);
    let (mut seen, mut answers, mut from, mut is_held) = (Vec::new(), Vec::new(), 0, true);
    loop {
        let has = |block| {
            seen.push(number(block));
            number(block) == 64 && std::mem::take(&mut is_held)
        };
        answers.push(slots.ask(groups, from, 3, has));
        match answers.last() {
            Some(Asked::Held(next) | Asked::Unfinished(next)) => from = *next,
            _ => break,
        }
    }
    assert_eq!(seen, [2, 3, 33, 34, 64, 64, 65, 95, 96]);
    assert_eq!(answers, [Asked::Unfinished(34), Asked::Held(64), Asked::Unfinished(96), Asked::Free]);
    slots.remove(7);
    slots.remove(5);
    assert!(slots.get(5).is_none() && slots.get(6).is_some());
    assert_eq!([(); 3].map(|()| slots.insert((&0).into(), 0, |_| ())), [Some(5), Some(7), None]);
}

/// Blocks of users that belong together have slots of one group, as long as it has room.
#[test]
fn blocks_that_belong_together_are_in_one_group() {
    let slots = Slots::<u32, 100>::new();
    let insert = |wanted| slots.insert((&0).into(), wanted, |_| ());
    assert_eq!([7, 7, 38, 69].map(insert), [Some(7), Some(38), Some(69), Some(70)]);
    assert!(!slots.is_half_full() && (0..47).all(|_| insert(5).is_some()) && slots.is_half_full());
    slots.remove(7);
    assert!(!slots.is_half_full(), "half of the slots have blocks");
}

/// A user's new block may come into the slot of the one before. In another slot, the one before is told.
#[test]
fn a_user_remembers_the_slot_of_its_block() {
    let slots = Slots::<u32, 4>::new();
    let (none, user) = (AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut()));
    user.store((&raw const none).cast_mut(), Ordering::Relaxed);
    let remember = |block: &u32, wanted| {
        let old = user.load(Ordering::Relaxed);
        let at = slots.insert(block.into(), wanted, |_| ()).unwrap();
        slots.remember(&user, old, at, block.into())
    };
    assert_eq!(remember(&10, 0), None, "its first slot is none of the table's");
    slots.remove(0);
    assert_eq!(remember(&11, 0), None, "it came into the same slot");
    assert_eq!(remember(&12, 1), slots.get(0));
    let late = NonNull::from(&13);
    assert_eq!(slots.remember(&user, (&raw const none).cast_mut(), 2, late), Some(late));
    assert!(ptr::eq(user.load(Ordering::Relaxed), slots.slot(1).unwrap()));
}

/// A block whose user does not count between two sweeps is taken away.
#[test]
fn a_sweep_takes_blocks_from_users_that_do_not_count() {
    let tenant = Tenant::new(16);
    for _ in 0..3 {
        assert!(!tenant.sweep() && tenant.is(16) && !tenant.is(32));
    }
    assert!(!tenant.sweep() && tenant.sweep() && !tenant.sweep() && !tenant.is(16) && !tenant.end(16));
    assert!(Tenant::new(16).end(16) && !Tenant::new(32).end(16));
    let swept = Tenant::new(16);
    assert!(!swept.sweep() && swept.end(16) && !swept.end(16), "a block that was swept once is its user's");
}

/// The count stops at its most and at 0, and leaves the other bits of the word alone.
#[test]
fn an_embedded_count_stays_in_its_bits() {
    const COUNT: EmbeddedCount = EmbeddedCount::new(52, 7);
    // The bit above the count is always 0.
    const OTHERS: u64 = !(0xff << 52);
    let (word, mine) = (sync::atomic::AtomicU64::new(OTHERS), Shown { mask: OTHERS, value: OTHERS });
    let other = Shown { mask: OTHERS, value: OTHERS - 1 };
    let take = |count| {
        assert_eq!(COUNT.of(word.load(Ordering::Relaxed)), count);
        COUNT.take(&word, mine).unwrap()
    };
    let taken: Vec<Taken> = (0..127).map(take).collect();
    assert!(COUNT.take(&word, mine).is_none() && COUNT.take(&word, other).is_none());
    assert_eq!(word.load(Ordering::Relaxed), OTHERS | 0x7f << 52);
    // Each but the last one finds a value other than its own.
    assert!(!COUNT.leave(&word, &taken[0], other));
    assert!(taken.iter().all(|taken| COUNT.leave(&word, taken, mine)));
    assert!(taken.iter().all(|taken| !COUNT.leave(&word, taken, mine)));
    assert_eq!(word.load(Ordering::Relaxed), OTHERS);
    let first = COUNT.take_first(&word, mine).unwrap();
    assert!(COUNT.take_first(&word, mine).is_none() && COUNT.of(word.load(Ordering::Relaxed)) == 1);
    assert!(COUNT.leave(&word, &first, mine) && COUNT.take_first(&word, other).is_none());
    // The count may be at the end of the word.
    let high = EmbeddedCount::new(62, 1);
    let all = Shown { mask: 1, value: 1 };
    assert!(high.take_first(&sync::atomic::AtomicU64::new(1), all).is_some());
    assert!([2, 1 << 62 | 1].iter().all(|&value| high.take_first(&value.into(), all).is_none()));
    // One finds its own, also if the word has shown something else meanwhile.
    let taken = COUNT.take(&word, mine).unwrap();
    let value = word.swap(0, Ordering::Relaxed);
    assert!(!COUNT.leave(&word, &taken, mine));
    word.store(value, Ordering::Relaxed);
    assert!(COUNT.leave(&word, &taken, other) && word.load(Ordering::Relaxed) == OTHERS);
}
