//! Schedules written out: one thread plays all cores.
#![cfg(not(loom))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use percore::{CoreId, Pinned};
use rcu::{Config, Domain, Owned};

/// Counts its drops.
struct Tracked(Arc<AtomicUsize>);

impl Drop for Tracked {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A machine of cores, all online, and the number of values that were dropped.
struct Machine {
    domain: Domain,
    drops: Arc<AtomicUsize>,
}

/// Returns the token of a core. The test is the only flow of control, and plays every core.
fn core(core: usize) -> Pinned {
    // SAFETY: one thread plays all cores, as said above.
    unsafe { Pinned::assume(CoreId::new(core)) }
}

fn machine(cores: usize, bound: usize) -> Machine {
    let domain = Domain::new(Config { cores, batch: 3, bound });
    (0..cores).for_each(|at| domain.online(&core(at)));
    Machine { domain, drops: Arc::default() }
}

impl Machine {
    fn retire(&self, at: usize) {
        self.domain.retire(&core(at), Owned::try_new(Tracked(Arc::clone(&self.drops))).unwrap());
    }

    fn drops(&self) -> usize {
        self.drops.load(Relaxed)
    }

    fn rounds(&self, rounds: usize) {
        for _ in 0..rounds {
            (0..self.domain.cores()).for_each(|at| _ = self.domain.quiesce(&core(at)));
        }
    }
}

#[test]
fn a_core_alone_needs_no_patience() {
    let machine = machine(1, 10);
    machine.retire(0);
    assert_eq!((machine.drops(), machine.domain.backlog()), (0, 1));
    assert_eq!(machine.domain.quiesce(&core(0)), 1);
    assert_eq!((machine.drops(), machine.domain.backlog()), (1, 0));
}

#[test]
fn a_reader_holds_the_grace_period() {
    let machine = machine(2, 10);
    let reader = core(1);
    let guard = machine.domain.read(&reader);
    machine.retire(0);
    (0..10).for_each(|_| _ = machine.domain.quiesce(&core(0)));
    assert_eq!(machine.drops(), 0, "freed under a reader");
    drop(guard);
    machine.rounds(3);
    assert_eq!(machine.drops(), 1);
}

#[test]
fn epochs_stand_still_while_nothing_waits() {
    let machine = machine(3, 10);
    machine.rounds(5);
    let epoch = machine.domain.epoch();
    assert!(!machine.domain.wants_quiesce(&core(1)));
    machine.rounds(5);
    assert_eq!(machine.domain.epoch(), epoch);
    machine.retire(2);
    assert!(machine.domain.wants_quiesce(&core(2)));
}

#[test]
fn no_core_waits_for_one_that_is_offline() {
    let machine = machine(3, 10);
    machine.domain.offline(&core(1));
    machine.retire(0);
    (0..4).for_each(|_| [0, 2].iter().for_each(|&at| _ = machine.domain.quiesce(&core(at))));
    assert_eq!(machine.drops(), 1);
}

#[test]
fn orphaned_callbacks_are_adopted() {
    let machine = machine(2, 10);
    machine.retire(1);
    machine.domain.offline(&core(1));
    assert_eq!(machine.domain.backlog(), 1);
    assert!(machine.domain.wants_quiesce(&core(0)));
    assert_eq!(machine.domain.quiesce(&core(0)), 1);
    assert_eq!((machine.drops(), machine.domain.backlog()), (1, 0));
}

/// The older of two values is dropped first, and the grace period of the younger one continues. Then the
/// epoch stands still.
#[test]
fn a_younger_value_is_not_forgotten() {
    let machine = machine(2, 10);
    machine.retire(0);
    machine.rounds(1);
    machine.retire(0);
    machine.rounds(8);
    assert_eq!((machine.drops(), machine.domain.backlog()), (2, 0));
    let epoch = machine.domain.epoch();
    machine.rounds(3);
    assert_eq!(machine.domain.epoch(), epoch);
}

/// Adopted callbacks may be older than those that wait already: the grace period continues for the younger
/// ones all the same.
#[test]
fn old_orphans_hold_nothing_up() {
    let machine = machine(2, 10);
    machine.retire(1);
    machine.retire(0);
    machine.domain.quiesce(&core(0));
    machine.retire(0);
    machine.domain.offline(&core(1));
    machine.rounds(5);
    assert_eq!((machine.drops(), machine.domain.backlog()), (3, 0));
}

/// Before a core sleeps, its host asks whether it has callbacks, or whether others have left some.
#[test]
fn a_core_knows_what_waits_for_it() {
    let machine = machine(2, 10);
    let waits = || [0, 1].map(|at| machine.domain.has_waiting(&core(at)));
    assert_eq!(waits(), [false, false]);
    machine.retire(0);
    assert_eq!(waits(), [true, false]);
    machine.domain.offline(&core(0));
    assert_eq!(waits(), [true, true], "orphans wait for any core");
    machine.domain.quiesce(&core(1));
    assert_eq!(
        (waits(), machine.drops()),
        ([false, false], 1),
        "the last core awake ends grace periods alone"
    );
}

#[test]
fn batches_are_bounded() {
    let machine = machine(1, 10);
    (0..7).for_each(|_| machine.retire(0));
    let ran: Vec<_> = (0..4).map(|_| machine.domain.quiesce(&core(0))).collect();
    assert_eq!(ran, [3, 3, 1, 0]);
}

/// Callbacks that are ripe run without another quiescent state. Those that are not stay.
#[test]
fn ripe_callbacks_run_in_batches() {
    let machine = machine(2, 10);
    (0..7).for_each(|_| machine.retire(0));
    assert_eq!(machine.domain.run_ripe(&core(0)), 0);
    machine.rounds(2);
    machine.domain.quiesce(&core(1));
    assert_eq!(machine.drops(), 0);
    assert_eq!(machine.domain.quiesce(&core(0)), 3);
    machine.retire(0);
    let ran: Vec<_> = (0..3).map(|_| machine.domain.run_ripe(&core(0))).collect();
    assert_eq!((ran.as_slice(), machine.domain.backlog()), ([3, 1, 0].as_slice(), 1));
    machine.rounds(4);
    assert_eq!(machine.drops(), 8);
}

#[test]
fn a_backlog_asks_for_haste_until_it_had_a_grace_period() {
    let machine = machine(2, 2);
    // The epoch is a late one: a request to hurry lasts for one grace period, no matter how many there were
    // before.
    (0..5).for_each(|_| {
        machine.retire(1);
        machine.rounds(4);
    });
    let before = machine.drops();
    (0..2).for_each(|_| machine.retire(0));
    assert!(!machine.domain.is_forced() && !machine.domain.is_over_bound(&core(0)));
    machine.retire(0);
    assert!(machine.domain.is_forced() && machine.domain.is_over_bound(&core(0)));
    machine.rounds(4);
    assert!(!machine.domain.is_forced() && !machine.domain.is_over_bound(&core(0)));
    assert_eq!(machine.drops(), before + 3);
}

#[test]
fn waiting_for_readers_that_are_away() {
    let machine = machine(2, 10);
    machine.domain.offline(&core(1));
    let before = machine.domain.epoch();
    machine.domain.synchronize(&core(0));
    assert!(machine.domain.epoch() >= before + 3);
    machine.retire(0);
    assert_eq!(machine.domain.drain_while(&core(0), || true), 1);
    machine.domain.online(&core(1));
    machine.retire(1);
    assert_eq!(machine.domain.drain_while(&core(0), || false), 0, "told not to go on");
    assert_eq!(machine.drops(), 1);
}

#[test]
fn a_domain_that_goes_runs_what_waits() {
    let machine = machine(3, 10);
    machine.retire(0);
    machine.retire(2);
    machine.retire(1);
    machine.domain.offline(&core(1));
    let drops = Arc::clone(&machine.drops);
    drop(machine);
    assert_eq!(drops.load(Relaxed), 3);
}

#[test]
fn misuse_is_refused() {
    let machine = machine(2, 10);
    let pin = core(0);
    let refused = |act: &dyn Fn()| catch_unwind(AssertUnwindSafe(act)).is_err();
    let guard = machine.domain.read(&pin);
    assert!(refused(&|| _ = machine.domain.quiesce(&pin)), "quiescent inside a section");
    assert!(refused(&|| machine.domain.offline(&pin)), "offline inside a section");
    assert!(refused(&|| machine.domain.synchronize(&pin)), "waits for itself");
    drop(guard);
    machine.domain.offline(&pin);
    assert!(refused(&|| drop(machine.domain.read(&pin))), "a section offline");
    assert!(refused(&|| machine.domain.synchronize(&pin)), "waits offline");
    assert_eq!(machine.domain.quiesce(&pin), 0);
}
