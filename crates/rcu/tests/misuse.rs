//! Misuse by safe code ends in a panic that names it, or works. Nothing is leaked.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fuzzing::{attempt, forever};
use percore::threads;
use percore::{CoreId, Pinned};
use rcu::{Config, Domain, Guard, Owned};
use test_memory::{Failing, owned};

/// Counts the allocations of each thread.
#[global_allocator]
static ALLOCATOR: Failing = Failing;

const CORES: usize = 32;

fn domain() -> &'static Domain {
    forever(Domain::new(Config { cores: CORES, batch: 64, bound: 1000 }))
}

/// Calls its function when it is dropped.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)()
    }
}

fn retire(domain: &Domain, pin: &Pinned, act: impl Fn() + Send + 'static) {
    domain.retire(pin, Owned::try_new(OnDrop(act)).unwrap());
}

/// Drains, even if callbacks panic meanwhile, and returns the messages.
fn drain(domain: &Domain, pin: &Pinned) -> Vec<String> {
    let mut messages = Vec::new();
    while let Err(message) = attempt(|| domain.drain_while(pin, || true)) {
        messages.push(message);
        assert!(messages.len() < 100, "{messages:?}");
    }
    assert_eq!(domain.backlog(), 0, "something waits for ever");
    messages
}

/// The domain and the core of code that runs while the core waits.
#[derive(Clone, Copy)]
struct Waiting {
    domain: &'static Domain,
    pin: &'static Pinned,
    act: fn(Waiting),
}

thread_local! {
    static WAITING: Cell<Option<Waiting>> = const { Cell::new(None) };
    static KEPT: RefCell<Option<Guard<'static>>> = const { RefCell::new(None) };
}

/// Runs `act` while this core waits for a grace period that another core holds up until then. Returns the
/// reason why the wait ended early.
fn while_it_waits(act: fn(Waiting)) -> String {
    static ACTED: AtomicBool = AtomicBool::new(false);
    let wait = move |domain: &'static Domain| {
        let core = threads::enter_any(CORES);
        let pin = forever(percore::pin());
        domain.online(pin);
        WAITING.set(Some(Waiting { domain, pin, act }));
        core.on_relax(|| {
            if let Some(waiting) = WAITING.take() {
                (waiting.act)(waiting);
            }
            ACTED.store(true, Ordering::Release);
        });
        let refused = attempt(|| domain.synchronize(pin));
        ACTED.store(true, Ordering::Release);
        drop(KEPT.take());
        domain.offline(pin);
        // The thread stays pinned for ever.
        std::mem::forget(core);
        refused.expect_err("a grace period passed by a core that was not quiescent")
    };
    ACTED.store(false, Ordering::Relaxed);
    let domain = domain();
    let core = threads::enter_any(CORES);
    let pin = percore::pin();
    domain.online(&pin);
    let waiter = thread::spawn(move || wait(domain));
    while !ACTED.load(Ordering::Acquire) {
        thread::yield_now();
    }
    while !waiter.is_finished() {
        domain.quiesce(&pin);
        thread::yield_now();
    }
    domain.offline(&pin);
    drop((pin, core));
    waiter.join().unwrap()
}

/// A core that waits for others announces again and again that it is quiescent, and must be so each time.
#[test]
fn code_run_in_a_wait_keeps_a_reader_or_leaves() {
    let message = while_it_waits(|waiting| KEPT.set(Some(waiting.domain.read(waiting.pin))));
    assert_eq!(message, "a core is not quiescent inside a read section");
    let message = while_it_waits(|waiting| waiting.domain.offline(waiting.pin));
    assert_eq!(message, "a core that is offline cannot wait for a grace period");
}

#[test]
fn a_value_is_quiescent_or_leaves() {
    let domain = domain();
    let core = threads::enter_any(CORES);
    let pin = percore::pin();
    domain.online(&pin);
    let acts: [fn(&Domain, &Pinned); 5] = [
        |domain, pin| _ = domain.quiesce(pin),
        |domain, pin| _ = domain.run_ripe(pin),
        |domain, pin| domain.synchronize(pin),
        |domain, pin| _ = domain.drain_while(pin, || true),
        |domain, pin| domain.offline(pin),
    ];
    for act in acts {
        // A drain of nothing does nothing, so one more callback waits behind them.
        (0..3).for_each(|_| retire(domain, &pin, move || act(domain, &percore::pin())));
        retire(domain, &pin, || ());
        let messages = drain(domain, &pin);
        assert_eq!(messages.len(), 3);
        assert!(messages.iter().all(|message| message.contains("a callback, must n")));
    }
    domain.offline(&pin);
    drop((pin, core));
}

#[test]
fn values_that_panic_are_freed() {
    let domain = domain();
    let core = threads::enter_any(CORES);
    let pin = percore::pin();
    domain.online(&pin);
    let before = owned();
    let witness = Arc::new(());
    for at in 0..20 {
        let held = witness.clone();
        retire(domain, &pin, move || assert!(Arc::strong_count(&held) > 0 && at % 2 == 0, "odd"));
    }
    let messages = drain(domain, &pin);
    assert_eq!((messages.len(), messages[0].as_str(), Arc::strong_count(&witness)), (10, "odd", 1));
    drop((messages, witness));
    let panics = attempt(|| drop(Owned::try_new(OnDrop(|| panic!("at once"))).unwrap()));
    assert_eq!(panics.unwrap_err(), "at once");
    assert_eq!(owned(), before, "a block was leaked");
    domain.offline(&pin);
    drop((pin, core));
}

/// Code that runs inside a drain takes the core offline: the drain does not wait for ever.
#[test]
fn a_drain_on_a_core_that_leaves_meanwhile() {
    let domain = domain();
    let core = threads::enter_any(CORES);
    let pin = percore::pin();
    domain.online(&pin);
    retire(domain, &pin, || ());
    let go = || {
        domain.offline(&pin);
        true
    };
    let message = attempt(|| domain.drain_while(&pin, go)).unwrap_err();
    assert_eq!(message, "a core that is offline cannot wait for a grace period");
    drop((pin, core));
}

#[test]
fn sizes_that_cannot_be() {
    let new = |cores, batch| attempt(|| Domain::new(Config { cores, batch, bound: 9 })).unwrap_err();
    assert_eq!(new(0, 1), "a domain needs a core");
    assert_eq!(new(300, 1), "a machine has at most 256 cores");
    assert_eq!(new(1, 0), "a quiescent core must be allowed to run something");
}

#[test]
fn a_core_that_the_domain_does_not_have() {
    let core = threads::enter(CoreId::new(CORES + 1));
    let pin = percore::pin();
    let message = attempt(|| domain().online(&pin)).unwrap_err();
    assert_eq!(message, "core 33 used what was made for 32 cores, numbered from 0");
    drop((pin, core));
}
