//! A configuration that every core reads all the time and one core replaces.
//!
//! Four threads play four cores. Each clones and drops a `Ref` to the configuration many times. With `Arc`
//! every clone would write the one counter, and its cache line would travel between the cores. Here a clone
//! writes the core's own delta cache. The end shows the price: the old configuration is dropped some epochs
//! after its last reference.
//!
//! Run it with `cargo run --example shared_config`.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread;

use percore::CoreId;
use refcache::{Config, Ref, Refcache};

const CORES: usize = 4;
const CLONES: usize = 100;

/// A domain lives for ever, as a kernel's does, because references point to it.
static DOMAIN: LazyLock<Refcache> =
    LazyLock::new(|| Refcache::new(Config { cores: CORES, cache_slots: 64, review_budget: 64 }));

static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct Settings {
    timeout: u32,
}

impl Drop for Settings {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

fn main() {
    let domain: &'static Refcache = &DOMAIN;
    let current = Mutex::new(Ref::new(domain, Settings { timeout: 30 }));

    let sum: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..CORES)
            .map(|core| {
                scope.spawn({
                    let current = &current;
                    move || on_core(domain, core, current)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).sum()
    });
    println!("{CORES} cores took {sum} references");

    let _core = percore::threads::enter(CoreId::new(0));
    let pin = percore::pin();
    domain.online(&pin);
    let name = current.lock().expect("nobody panicked").downgrade();
    println!("the timeout is {}", name.try_get().expect("it is in use").timeout);

    *current.lock().expect("nobody panicked") = Ref::new(domain, Settings { timeout: 60 });
    println!("replaced: {} dropped at once", DROPPED.load(Ordering::Relaxed));
    let mut ticks = 0;
    while DROPPED.load(Ordering::Relaxed) == 0 {
        domain.tick(&pin);
        ticks += 1;
    }
    println!(
        "after {ticks} ticks of the only core that is online: {} dropped",
        DROPPED.load(Ordering::Relaxed)
    );
    assert!(name.try_get().is_none(), "a weak reference finds nothing now");
    drop((name, current));
    domain.drain(&pin);
}

/// Plays `core` and clones the current settings many times. Returns the number of clones.
fn on_core(domain: &Refcache, core: usize, current: &Mutex<Ref<Settings>>) -> usize {
    let _core = percore::threads::enter(CoreId::new(core));
    let pin = percore::pin();
    domain.online(&pin);
    let mine = current.lock().expect("nobody panicked").clone();
    let taken = (0..CLONES).filter(|_| mine.clone().timeout == 30).count();
    drop(mine);
    // Flushes this core's deltas. The domain no longer waits for it.
    domain.offline(&pin);
    taken
}

#[test]
#[cfg_attr(miri, ignore = "the tests of this crate check the same calls")]
fn runs() {
    main();
}
