//! `Ref` and `Weak` behave like `Arc` and its `Weak`, later.
#![cfg(not(loom))]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use percore::threads::{self, ThreadCore};
use refcache::{Config, Ref, Refcache, Weak};

const CORES: usize = 16;

/// Returns a domain for one test, and a core for its thread.
fn start(domain: &'static OnceLock<Refcache>) -> (&'static Refcache, ThreadCore) {
    let config = Config { cores: CORES, cache_slots: 64, review_budget: 100 };
    let domain = domain.get_or_init(|| Refcache::new(config));
    let core = threads::enter_any(CORES);
    domain.online(&percore::pin());
    (domain, core)
}

fn drain(domain: &Refcache) -> usize {
    domain.drain(&percore::pin())
}

/// A value that counts its drop.
struct Mourned(&'static AtomicU32);

impl Drop for Mourned {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_value_is_dropped_once_after_its_last_ref() {
    static DOMAIN: OnceLock<Refcache> = OnceLock::new();
    static ENDS: AtomicU32 = AtomicU32::new(0);
    let (domain, _core) = start(&DOMAIN);
    let first = Ref::new(domain, Mourned(&ENDS));
    let clones: Vec<_> = (0..5).map(|_| first.clone()).collect();
    drop(first);
    drain(domain);
    assert_eq!(ENDS.load(Ordering::Relaxed), 0);
    drop(clones);
    assert_eq!(ENDS.load(Ordering::Relaxed), 0, "dropping a Ref does not drop the value");
    assert_eq!(drain(domain), 2, "the value, then its block");
    assert_eq!(ENDS.load(Ordering::Relaxed), 1);
}

#[test]
fn a_ref_reads_its_value() {
    static DOMAIN: OnceLock<Refcache> = OnceLock::new();
    let (domain, _core) = start(&DOMAIN);
    let text = Ref::new(domain, String::from("patience"));
    let same = text.clone();
    assert_eq!((same.len(), format!("{same:?}").as_str()), (8, "\"patience\""));
    assert!(same.is_same(&text));
    assert!(!same.is_same(&Ref::new(domain, String::from("patience"))));
    drop((text, same));
    assert_eq!(drain(domain), 4);
}

#[test]
fn a_weak_finds_the_value_until_it_is_gone() {
    static DOMAIN: OnceLock<Refcache> = OnceLock::new();
    let (domain, _core) = start(&DOMAIN);
    let strong = Ref::new(domain, 7_u64);
    let weak: Weak<u64> = strong.downgrade();
    assert_eq!(*weak.try_get().expect("a Ref is there"), 7);
    drop(strong);
    drain(domain);
    assert!(weak.try_get().is_none());
    assert!(weak.clone().try_get().is_none(), "a Weak outlives the value");
    drop(weak);
    assert_eq!(drain(domain), 1, "the block");
}

#[test]
fn a_weak_brings_the_value_back_while_it_waits_for_review() {
    static DOMAIN: OnceLock<Refcache> = OnceLock::new();
    static ENDS: AtomicU32 = AtomicU32::new(0);
    let (domain, _core) = start(&DOMAIN);
    let strong = Ref::new(domain, Mourned(&ENDS));
    let weak = strong.downgrade();
    drop(strong);
    assert_eq!(domain.garbage(), 0, "an online core says nothing before it flushes");
    domain.tick(&percore::pin());
    assert_eq!(domain.garbage(), 1);
    let back = weak.try_get().expect("not yet reviewed");
    drain(domain);
    assert_eq!(ENDS.load(Ordering::Relaxed), 0);
    drop((back, weak));
    drain(domain);
    assert_eq!(ENDS.load(Ordering::Relaxed), 1);
}

#[test]
fn values_that_hold_refs_are_dropped_in_turn() {
    struct Tree {
        branches: Vec<Ref<Tree>>,
        _end: Mourned,
    }
    static DOMAIN: OnceLock<Refcache> = OnceLock::new();
    static ENDS: AtomicU32 = AtomicU32::new(0);
    fn grow(domain: &'static Refcache, depth: u32) -> Ref<Tree> {
        let branches = (0..depth).map(|_| grow(domain, depth - 1)).collect();
        Ref::new(domain, Tree { branches, _end: Mourned(&ENDS) })
    }
    let (domain, _core) = start(&DOMAIN);
    let tree = grow(domain, 4);
    let branch = tree.branches[0].clone();
    drop(tree);
    drain(domain);
    assert_eq!(ENDS.load(Ordering::Relaxed), 65 - 16, "all but the branch that is held");
    assert_eq!(branch.branches.len(), 3);
    drop(branch);
    drain(domain);
    assert_eq!(ENDS.load(Ordering::Relaxed), 65);
}

#[test]
fn another_thread_may_be_the_last() {
    static DOMAIN: OnceLock<Refcache> = OnceLock::new();
    static ENDS: AtomicU32 = AtomicU32::new(0);
    let (domain, _core) = start(&DOMAIN);
    let strong = Ref::new(domain, Mourned(&ENDS));
    let travels = strong.clone();
    let other = std::thread::spawn(|| {
        let (domain, _core) = start(&DOMAIN);
        drop(travels);
        domain.offline(&percore::pin());
    });
    drop(strong);
    other.join().unwrap();
    drain(domain);
    assert_eq!(ENDS.load(Ordering::Relaxed), 1);
}

#[test]
fn any_alignment_will_do() {
    #[repr(align(256))]
    struct Wide(u8);
    static DOMAIN: OnceLock<Refcache> = OnceLock::new();
    let (domain, _core) = start(&DOMAIN);
    let (wide, nothing) = (Ref::new(domain, Wide(3)), Ref::new(domain, ()));
    assert_eq!((std::ptr::from_ref(&*wide).addr() % 256, wide.0), (0, 3));
    drop((wide, nothing));
    assert_eq!(drain(domain), 4);
}
