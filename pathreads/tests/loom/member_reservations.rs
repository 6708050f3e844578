//! A member maps, opens and unmaps its reservation without the lock, as `isolate/reservations.rs` of the
//! runtime does, while another one touches its part, or makes it ordinary and unmaps it, under the lock.
//!
//! Requests interrupt the member between any two steps of a model ([`Member::step`]).

use std::sync::Arc;

use pathreads::member_reservation::{Reservations, Seen, Slot, State};
use pathreads::reservation::Part;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::loom::cell::Cell;
use sync::loom::thread;

use crate::explore;

const SLOT: Slot = Slot { member: 0, class: 0, number: 0 };
const OWNER: usize = 0;
const OTHER: usize = 1;
const THIRD: usize = 2;
const PAGES: u64 = 4096;

/// The part, as one member has it mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mapping {
    No,
    Inaccessible,
    Writable,
}

/// The regions of the reservation.
#[derive(Clone, Copy)]
struct Recorded {
    is_there: bool,
    /// Whether the part is recorded with its rights.
    is_open: bool,
    /// Whether each member may have it mapped.
    holders: [bool; 3],
}

struct World {
    table: Reservations,
    version: AtomicU64,
    lock: AtomicU32,
    recorded: Cell<Recorded>,
    content: Cell<u32>,
    /// Whether the owner is asked to unmap it, and whether it is there to answer.
    pending: AtomicU32,
    is_there: AtomicU32,
    /// Whether the program has passed the address on.
    passed: AtomicBool,
}

struct Member {
    world: Arc<World>,
    me: usize,
    mapping: std::cell::Cell<Mapping>,
    synced: std::cell::Cell<u64>,
    seen: std::cell::Cell<u32>,
}

fn seen(state: State) -> Seen {
    Seen { state, length: 2 * PAGES, part: Part { start: 0, end: PAGES } }
}

impl World {
    /// Makes one in which the owner has kept the reservation.
    fn new() -> Arc<Self> {
        let table = Reservations::new();
        table.change(SLOT, Seen::default(), seen(State::Kept));
        Arc::new(World {
            table,
            version: AtomicU64::new(1),
            lock: AtomicU32::new(0),
            recorded: Cell::new(Recorded { is_there: true, is_open: true, holders: [true, false, false] }),
            content: Cell::new(0),
            pending: AtomicU32::new(0),
            is_there: AtomicU32::new(1),
            passed: AtomicBool::new(false),
        })
    }

    fn member(self: &Arc<Self>, me: usize, mapping: Mapping) -> Member {
        let seen = self.table.uses(OWNER).into();
        Member { world: self.clone(), me, mapping: mapping.into(), synced: 1.into(), seen }
    }
}

fn run(member: Member, f: impl FnOnce(&Member) + 'static) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        f(&member);
        member.locked(|recorded| {
            recorded.holders[member.me] = false;
            if member.me == OWNER {
                member.world.is_there.store(0, Ordering::Relaxed);
            }
        });
    })
}

impl Member {
    /// Answers a request, if there is one.
    fn step(&self) {
        if self.me == OWNER && self.world.pending.load(Ordering::Acquire) != 0 {
            self.mapping.set(Mapping::No);
            self.world.pending.store(0, Ordering::Release);
        }
    }

    fn locked<R>(&self, f: impl FnOnce(&mut Recorded) -> R) -> R {
        let lock = &self.world.lock;
        while lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.step();
            thread::yield_now();
        }
        let mut recorded = self.world.recorded.get();
        let result = f(&mut recorded);
        self.world.recorded.set(recorded);
        lock.store(0, Ordering::Release);
        self.step();
        result
    }

    fn announce(&self) {
        let version = self.world.version.load(Ordering::Relaxed);
        self.world.version.store(version + 1, Ordering::Relaxed);
        if self.synced.get() == version {
            self.synced.set(version + 1);
        }
    }

    /// Changes the rights, as `mprotect` does.
    fn protect(&self, mapping: Mapping) -> bool {
        self.step();
        let is_mapped = self.mapping.get() != Mapping::No;
        if is_mapped {
            self.mapping.set(mapping);
        }
        self.step();
        is_mapped
    }

    fn write(&self, value: u32) -> bool {
        self.step();
        let can = self.mapping.get() == Mapping::Writable;
        if can {
            self.world.content.set(value);
        }
        can
    }

    /// Maps the kept reservation.
    fn map(&self) -> bool {
        self.world.table.change(SLOT, seen(State::Kept), seen(State::Reserved))
    }

    /// Opens the part, without the lock or with it.
    fn open(&self) {
        let table = &self.world.table;
        if table.change(SLOT, seen(State::Reserved), seen(State::Opening)) {
            if !self.protect(Mapping::Writable) {
                table.change(SLOT, seen(State::Opening), seen(State::Reserved));
            } else if table.change(SLOT, seen(State::Opening), seen(State::Open)) {
                return;
            } else {
                self.restore();
            }
        }
        self.locked(|recorded| {
            self.settle(recorded);
            assert!(recorded.is_there, "a reservation of the program is not recorded");
            recorded.is_open = true;
            self.mapping.set(Mapping::Writable);
            self.announce();
        });
    }

    /// Gives the part the rights that are recorded.
    fn restore(&self) {
        self.locked(|recorded| {
            if recorded.is_there && recorded.holders[self.me] {
                self.mapping.set(if recorded.is_open { Mapping::Writable } else { Mapping::Inaccessible });
            }
        });
    }

    /// Unmaps the reservation, without the lock or with it.
    fn unmap(&self) {
        let table = &self.world.table;
        if table.change(SLOT, seen(State::Open), seen(State::Closing)) {
            let is_closed = self.write(0) && self.protect(Mapping::Inaccessible);
            if !is_closed {
                if !table.change(SLOT, seen(State::Closing), seen(State::Open)) {
                    return;
                }
            } else {
                if !table.change(SLOT, seen(State::Closing), seen(State::Kept)) {
                    self.restore();
                }
                return;
            }
        }
        self.locked(|recorded| {
            self.settle(recorded);
            self.remove(recorded);
        });
    }

    /// Unmaps memory that the record alone describes. The lock is held.
    fn remove(&self, recorded: &mut Recorded) {
        if !recorded.is_there {
            return;
        }
        recorded.is_there = false;
        self.mapping.set(Mapping::No);
        let is_asked = recorded.holders[OWNER] && self.me != OWNER;
        if is_asked && self.world.is_there.load(Ordering::Relaxed) != 0 {
            self.world.pending.store(1, Ordering::Release);
            while self.world.pending.load(Ordering::Acquire) != 0 {
                thread::yield_now();
            }
        }
        self.world.content.set(0);
    }

    /// Makes the reservation ordinary. The lock is held.
    fn settle(&self, recorded: &mut Recorded) {
        let World { table, version, .. } = &*self.world;
        if !recorded.is_there || table.see(SLOT).state == State::Ordinary {
            return;
        }
        match self.me {
            OWNER => self.announce(),
            _ => version.store(version.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
        }
        let was = table.end(SLOT);
        if !was.is_programs() {
            self.remove(recorded);
        } else if !was.is_open() {
            recorded.is_open = false;
        }
    }

    /// Maps the part, if it is the program's. The lock is held.
    fn take(&self, recorded: &mut Recorded) {
        if recorded.is_there && recorded.is_open && !recorded.holders[self.me] && self.is_open() {
            self.mapping.set(Mapping::Writable);
            recorded.holders[self.me] = true;
        }
    }

    fn is_open(&self) -> bool {
        let table = &self.world.table;
        loop {
            let was = table.see(SLOT);
            if !was.is_open() || was.state == State::Ordinary {
                return was.is_open();
            }
            self.announce();
            if table.change(SLOT, was, Seen::default()) {
                return true;
            }
        }
    }

    fn is_synced(&self) -> bool {
        self.world.version.load(Ordering::Relaxed) == self.synced.get()
    }

    /// Has the part mapped before a call that names it.
    fn touch(&self) {
        let may_be_others = || self.world.table.see(SLOT).state != State::Ordinary;
        if !(self.is_synced() && !may_be_others() && self.is_synced()) {
            self.locked(|recorded| self.take(recorded));
        }
    }

    /// Has everything mapped before a call of which the memory is not known.
    fn sync(&self) {
        let table = &self.world.table;
        if !self.is_synced() || table.uses(OWNER) != self.seen.get() {
            self.locked(|recorded| {
                self.seen.set(table.uses(OWNER));
                self.take(recorded);
                self.synced.set(self.world.version.load(Ordering::Relaxed));
            });
        }
    }
}

/// Another member names the place at any moment, as a call that is given a wrong address does.
#[test]
fn a_reservation_is_the_members_until_it_is_ordinary() {
    explore(3, || {
        let world = World::new();
        let other =
            run(world.member(OTHER, Mapping::No), |other| other.locked(|recorded| other.settle(recorded)));
        let own = run(world.member(OWNER, Mapping::Inaccessible), |own| {
            if !own.map() {
                return;
            }
            own.open();
            assert!(own.write(1), "an open part is not accessible");
            own.unmap();
            assert!(own.mapping.get() != Mapping::Writable, "memory can be touched after it was unmapped");
            if own.map() {
                own.step();
                assert_eq!(own.world.content.get(), 0, "a new reservation is not zero");
                assert!(own.mapping.get() != Mapping::Writable, "a part is open that has no rights");
                own.open();
                assert!(own.write(2));
            }
        });
        own.join().unwrap();
        other.join().unwrap();
    });
}

/// Another member unmaps what the program has, and maps memory of its own there.
#[test]
fn what_another_maps_at_the_place_keeps_its_content() {
    explore(2, || {
        let world = World::new();
        let other = run(world.member(OTHER, Mapping::No), |other| {
            let is_placed = other.locked(|recorded| {
                other.settle(recorded);
                let is_free = !recorded.is_there;
                if is_free {
                    *recorded = Recorded { is_there: true, is_open: true, holders: [false, true, false] };
                    other.mapping.set(Mapping::Writable);
                }
                is_free
            });
            if is_placed {
                assert_eq!(other.world.content.get(), 0);
                assert!(other.write(9));
                assert_eq!(other.world.content.get(), 9, "another member has written to it");
            }
        });
        let own = run(world.member(OWNER, Mapping::Inaccessible), |own| {
            if own.map() {
                own.open();
                assert!(own.write(1));
                own.unmap();
            }
        });
        own.join().unwrap();
        other.join().unwrap();
    });
}

/// A member that was given the address reaches the part, by a call that names it, by one of which the memory
/// is not known, and by itself.
#[test]
fn a_part_that_was_opened_is_reached_by_others() {
    for is_named in [true, false] {
        explore(3, move || {
            let world = World::new();
            let other = run(world.member(OTHER, Mapping::No), move |other| {
                other.sync();
                if other.world.passed.load(Ordering::Acquire) {
                    if is_named {
                        other.touch()
                    } else {
                        other.sync()
                    }
                    assert_eq!(other.mapping.get(), Mapping::Writable, "a call cannot reach the part");
                    assert_eq!(other.world.content.get(), 1);
                }
            });
            let own = run(world.member(OWNER, Mapping::Inaccessible), |own| {
                assert!(own.map());
                own.open();
                assert!(own.write(1));
                own.world.passed.store(true, Ordering::Release);
            });
            own.join().unwrap();
            other.join().unwrap();
        });
    }
}

/// One member makes the part ordinary, because a call names it in either way, while another one has a call
/// with it.
#[test]
fn a_part_that_becomes_ordinary_is_reached_by_a_third() {
    for is_settled in [true, false] {
        explore(3, move || {
            let world = World::new();
            let own = world.member(OWNER, Mapping::Inaccessible);
            assert!(own.map());
            own.open();
            assert!(own.write(1));
            let touch = |member: &Member| {
                member.touch();
                assert_eq!(member.mapping.get(), Mapping::Writable, "a call cannot reach the part");
            };
            let other = run(world.member(OTHER, Mapping::No), move |other| match is_settled {
                true => other.locked(|recorded| other.settle(recorded)),
                false => touch(other),
            });
            let third = run(world.member(THIRD, Mapping::No), touch);
            other.join().unwrap();
            third.join().unwrap();
        });
    }
}

/// A member that makes the reservation ordinary finds the part that its own member has copied from a file.
#[test]
fn a_part_that_was_copied_is_known() {
    explore(3, || {
        let world = World::new();
        let own = world.member(OWNER, Mapping::Inaccessible);
        assert!(own.map());
        own.open();
        let other = run(world.member(OTHER, Mapping::No), |other| {
            other.locked(|_| {
                let World { table, content, .. } = &*other.world;
                if table.end(SLOT).state == State::Open {
                    assert_eq!(content.get() == 5, table.copied(SLOT).length() > 0);
                }
            });
        });
        let own = run(own, |own| {
            let table = &own.world.table;
            if table.change(SLOT, seen(State::Open), seen(State::Copying)) {
                assert!(own.write(5));
                table.set_copied(SLOT, seen(State::Open).part);
                table.change(SLOT, seen(State::Copying), seen(State::Open));
            }
        });
        own.join().unwrap();
        other.join().unwrap();
    });
}
