//! Misuse by safe code ends in a panic that names it, or works. Nothing is leaked.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::thread;

use fuzzing::{attempt, forever};
use percore::threads::{self, ThreadCore};
use percore::{CoreId, Pinned};
use refcache::{Config, Loan, Ref, Refcache};
use test_memory::{Failing, owned};

/// Counts the allocations of each thread.
#[global_allocator]
static ALLOCATOR: Failing = Failing;

const CORES: usize = 32;

/// Returns a domain of one core, which is online.
fn alone() -> (&'static Refcache, ThreadCore) {
    let domain = domain(CORES);
    let core = threads::enter_any(CORES);
    domain.online(&percore::pin());
    (domain, core)
}

fn domain(cores: usize) -> &'static Refcache {
    forever(Refcache::new(Config { cores, cache_slots: 64, review_budget: 64 }))
}

/// Drains, even if values panic meanwhile, and returns the messages.
fn drain(domain: &Refcache) -> Vec<String> {
    let pin = percore::pin();
    let mut messages = Vec::new();
    while let Err(message) = attempt(|| domain.drain(&pin)) {
        messages.push(message);
        assert!(messages.len() < 100, "{messages:?}");
    }
    assert_eq!(domain.garbage(), 0, "something waits for ever");
    messages
}

/// Calls its function when it is dropped.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)()
    }
}

fn on_drop(act: impl Fn() + Send + Sync + 'static) -> impl Send + Sync + 'static {
    OnDrop(act)
}

thread_local! {
    static KEPT: RefCell<Option<Loan<'static>>> = const { RefCell::new(None) };
    static PIN: Cell<Option<&'static Pinned>> = const { Cell::new(None) };
}

/// A core lets no epoch pass while it has a loan, no matter when the loan began.
#[test]
fn a_value_keeps_a_loan() {
    let test = || {
        let (domain, core) = alone();
        let pin = forever(percore::pin());
        PIN.set(Some(pin));
        let keep = || KEPT.with(|kept| *kept.borrow_mut() = Some(domain.loan(PIN.get().unwrap())));
        drop(Ref::new(domain, on_drop(keep)));
        let dropped_in = loop {
            let epoch = domain.epoch();
            if let Err(message) = attempt(|| domain.tick(pin)) {
                assert!(message.contains("a core with a Loan must not flush"), "{message}");
                break epoch;
            }
            assert!(KEPT.with(|kept| kept.borrow().is_none()), "flushed with a loan");
        };
        for _ in 0..3 {
            attempt(|| domain.tick(pin)).unwrap_err();
            attempt(|| domain.offline(pin)).unwrap_err();
            attempt(|| domain.drain(pin)).unwrap_err();
        }
        assert_eq!(domain.epoch(), dropped_in, "the epoch passed a core with a loan");
        KEPT.take();
        assert!(drain(domain).is_empty());
        // The thread stays pinned for ever.
        std::mem::forget(core);
    };
    thread::spawn(test).join().unwrap();
}

#[test]
fn a_value_ticks_drains_or_leaves() {
    let (domain, _core) = alone();
    let acts: [fn(&Refcache, &Pinned); 3] = [
        |domain, pin| _ = domain.tick(pin),
        |domain, pin| _ = domain.drain(pin),
        |domain, pin| domain.offline(pin),
    ];
    let before = owned();
    for act in acts {
        for _ in 0..3 {
            drop(Ref::new(domain, on_drop(move || act(domain, &percore::pin()))));
        }
        let messages = drain(domain);
        assert_eq!(messages.len(), 3);
        assert!(
            messages.iter().all(|message| message.contains("must neither tick nor drain nor go offline"))
        );
        drop(messages);
        assert_eq!(owned(), before, "a block was leaked");
    }
    domain.offline(&percore::pin());
}

#[test]
fn values_that_panic_are_released() {
    let (domain, _core) = alone();
    let before = owned();
    let witness = Arc::new(());
    for at in 0..20 {
        let held = witness.clone();
        let complain = move || assert!(Arc::strong_count(&held) > 0 && at % 2 == 0, "odd");
        drop(Ref::new(domain, on_drop(complain)));
    }
    let messages = drain(domain);
    assert_eq!((messages.len(), messages[0].as_str(), Arc::strong_count(&witness)), (10, "odd", 1));
    drop((messages, witness));
    assert_eq!(owned(), before, "a block was leaked");
    domain.offline(&percore::pin());
}

/// The last references are dropped where nothing can be counted: on a thread without a core, also when it
/// panics, on a core that is offline, and on one that the domain does not have.
#[test]
fn references_are_dropped_anywhere() {
    let (domain, _core) = alone();
    let witness = Arc::new(());
    let make = || (Ref::new(domain, witness.clone()), Ref::new(domain, witness.clone()).downgrade());
    let [plain, panicking, offline] = [make(), make(), make()];
    let refused = |message: String| assert!(message.contains("plays no core"), "{message}");
    thread::spawn(move || {
        assert!(attempt(percore::pin).is_err());
        refused(attempt(|| plain.0.clone()).unwrap_err());
        refused(attempt(|| plain.0.downgrade()).unwrap_err());
        refused(attempt(|| plain.1.try_get()).unwrap_err());
        drop(plain);
        attempt(move || {
            let _dropped_while_unwinding = panicking;
            panic!();
        })
        .unwrap_err();
    })
    .join()
    .unwrap();
    domain.offline(&percore::pin());
    let message = attempt(|| offline.0.clone()).map(drop).unwrap_err();
    assert!(message.contains("a core that is offline"), "{message}");
    drop(offline);
    domain.online(&percore::pin());
    assert!(drain(domain).is_empty());
    assert_eq!(Arc::strong_count(&witness), 1);
    domain.offline(&percore::pin());
}

#[test]
fn a_core_that_the_domain_does_not_have() {
    let domain = domain(1);
    let held = Ref::new(domain, 5);
    thread::spawn(move || {
        let _core = threads::enter(CoreId::new(CORES + 1));
        let message = attempt(|| domain.online(&percore::pin())).unwrap_err();
        assert!(message.contains("made for 1 cores"), "{message}");
        drop(held);
    })
    .join()
    .unwrap();
    assert_eq!(domain.garbage(), 1);
}

#[test]
fn sizes_that_cannot_be() {
    let new = |cores, cache_slots, review_budget| {
        attempt(|| Refcache::new(Config { cores, cache_slots, review_budget })).unwrap_err()
    };
    assert_eq!(new(0, 64, 64), "a domain needs a core");
    assert_eq!(new(300, 64, 64), "a machine has at most 256 cores");
    assert_eq!(new(1, 3, 64), "the delta cache needs a power of two of slots");
    assert_eq!(new(1, 64, 0), "a tick must be allowed to review something");
}

/// Code that runs inside a drain takes the core offline: the drain does not wait for ever.
#[test]
fn a_drain_on_a_core_that_leaves_meanwhile() {
    let (domain, _core) = alone();
    let pin = percore::pin();
    let go = || {
        domain.offline(&pin);
        true
    };
    let message = attempt(|| domain.drain_while(&pin, go)).unwrap_err();
    assert_eq!(message, "a core that is offline cannot force epochs");
}

#[test]
fn a_visit_that_panics_ends() {
    let (domain, _core) = alone();
    let pin = percore::pin();
    domain.offline(&pin);
    attempt(|| domain.while_online(&pin, || panic!())).map(drop).unwrap_err();
    assert!(!domain.is_online(&pin));
    let message = attempt(|| domain.while_online(&pin, || std::mem::forget(domain.loan(&pin)))).unwrap_err();
    assert!(message.contains("a core with a Loan"), "{message}");
    assert!(domain.is_online(&pin), "it has a loan for ever");
}

#[test]
fn a_visit_that_panics_with_a_loan_stays() {
    let (domain, _core) = alone();
    let pin = percore::pin();
    domain.offline(&pin);
    let visit = || {
        std::mem::forget(domain.loan(&pin));
        panic!();
    };
    attempt(|| domain.while_online(&pin, visit)).map(drop).unwrap_err();
    assert!(domain.is_online(&pin));
}
