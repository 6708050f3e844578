//! References that are taken, handed over and dropped by two or three cores. The object detects a use after
//! its end. Loom reports an end that is not ordered after every use, and a use after the end finds the object
//! overwritten.

use std::sync::Arc;

use crate::forgetful::{Arrived, Forgetful};
use baselines::{PayGo, PayGoCount, PayGoToken, Scheme, Sloppy, SloppyCount, Snzi, SnziCount, SnziToken};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread::{self, JoinHandle};
use percore::{CoreId, Pinned};

const CORES: usize = 3;

/// A counted object.
struct Object<S, C> {
    scheme: S,
    count: C,
    ends: UnsafeCell<u32>,
}

// SAFETY: loom checks every access to the cell. The rest is shared by its own types.
unsafe impl<S: Sync, C: Sync> Sync for Object<S, C> {}
// SAFETY: as for `Sync`.
unsafe impl<S: Send, C: Send> Send for Object<S, C> {}

/// The object, as one core sees it.
struct Core<S, C> {
    object: Arc<Object<S, C>>,
    pin: Pinned,
}

impl<S, C, P> Core<S, C>
where
    S: for<'c> Scheme<'c, Count = C, Token = P> + Send + 'static,
    C: Send + Sync + 'static,
    P: Copy + Send + 'static,
{
    fn new(object: &Arc<Object<S, C>>, core: usize) -> Self {
        // SAFETY: each model has one thread for each core.
        Self { object: Arc::clone(object), pin: unsafe { Pinned::assume(CoreId::new(core)) } }
    }

    /// Starts another core's thread, which has a reference.
    fn spawn(&self, core: usize, token: P, run: fn(&Self, P)) -> JoinHandle<()> {
        let object = Arc::clone(&self.object);
        thread::spawn(move || run(&Self::new(&object, core), token))
    }

    fn inc(&self) -> P {
        self.object.scheme.inc(&self.pin, &self.object.count)
    }

    /// Uses the object, and drops a reference to it.
    fn dec(&self, token: P) {
        self.check(0);
        let last = self.object.scheme.dec(&self.pin, &self.object.count, token);
        self.hear(last);
    }

    fn settle(&self) {
        let last = self.object.scheme.settle(&self.pin, &self.object.count);
        self.hear(last);
    }

    fn hear(&self, last: bool) {
        if last {
            // SAFETY: loom checks that no thread uses it.
            self.object.ends.with_mut(|ends| unsafe { *ends += 1 });
        }
    }

    fn check(&self, expected: u32) {
        // SAFETY: loom checks that no thread ends it meanwhile.
        self.object
            .ends
            .with(|ends| unsafe { assert_eq!(*ends, expected, "used after its end, or ended twice") });
    }

    /// Checks, after all threads have been joined, that the end came once, or comes with the next `settle`.
    fn expect_one_end(&self) {
        self.settle();
        self.check(1);
        self.settle();
        self.check(1);
    }

    /// Takes a reference and drops both.
    fn comes_and_goes(&self, mine: P) {
        let another = self.inc();
        self.dec(mine);
        self.dec(another);
    }
}

type SnziCore = Core<Snzi, SnziCount>;
type ForgetfulCore = Core<Forgetful, SnziCount>;
type SloppyCore = Core<Sloppy, SloppyCount>;
type PayGoCore = Core<PayGo, PayGoCount>;

/// Explores `model`, which has the first reference and plays core 0.
fn explore<S, C, P>(preemptions: usize, scheme: fn() -> S, model: fn(&Core<S, C>, P))
where
    S: for<'c> Scheme<'c, Count = C, Token = P> + Send + 'static,
    C: Send + Sync + 'static,
    P: Copy + Send + 'static,
{
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let object = Object { scheme: scheme(), count: S::count(CORES).unwrap(), ends: UnsafeCell::new(0) };
        let core = Core::new(&Arc::new(object), 0);
        model(&core, S::FIRST);
        core.expect_one_end();
    });
}

fn sloppy() -> Sloppy {
    Sloppy { threshold: 1 }
}

fn paygo() -> PayGo {
    PayGo::new(CORES, 1)
}

/// Two threads arrive at the same leaf and depart from it: a thread that finds the half step completes it. (A
/// leaf may have any number of users. In a kernel they are threads that migrated.)
#[test]
fn snzi_half_steps_at_one_leaf() {
    explore(
        3,
        || Snzi,
        |core: &SnziCore, first: SnziToken| {
            let other = core.spawn(0, Core::new(&core.object, 1).inc(), SnziCore::comes_and_goes);
            core.comes_and_goes(first);
            other.join().unwrap();
        },
    );
}

/// One core arrives, and another departs from the leaf where it arrived.
#[test]
fn snzi_departs_elsewhere() {
    explore(
        3,
        || Snzi,
        |core: &SnziCore, first: SnziToken| {
            let given = core.inc();
            let other = core.spawn(1, given, SnziCore::comes_and_goes);
            core.comes_and_goes(first);
            other.join().unwrap();
        },
    );
}

/// Two threads do not know where they arrived: one finds the other's arrival, before it is complete or after.
#[test]
fn snzi_departs_anywhere() {
    explore(
        3,
        || Forgetful,
        |core: &ForgetfulCore, first: Arrived| {
            let given = core.inc();
            let other = core.spawn(1, given, ForgetfulCore::comes_and_goes);
            core.comes_and_goes(first);
            other.join().unwrap();
        },
    );
}

/// Spares are taken while another core gives them back.
#[test]
fn sloppy_zero_is_exact() {
    explore(3, sloppy, |core: &SloppyCore, ()| {
        core.inc();
        let other = core.spawn(1, (), |core, ()| {
            core.comes_and_goes(());
            core.settle();
        });
        core.comes_and_goes(());
        core.settle();
        other.join().unwrap();
    });
}

/// Two cores settle at once, while a third drops the reference that they wait for.
#[test]
fn sloppy_tells_one() {
    explore(2, sloppy, |core: &SloppyCore, ()| {
        core.inc();
        let dropper = core.spawn(1, (), SloppyCore::dec);
        let asker = core.spawn(2, (), |core, ()| core.settle());
        core.dec(());
        core.settle();
        dropper.join().unwrap();
        asker.join().unwrap();
    });
}

/// A reference is taken here and dropped there, while its anchor core goes on counting.
#[test]
fn paygo_pays_the_tax() {
    explore(3, paygo, |core: &PayGoCore, first: PayGoToken| {
        let travels = core.inc();
        assert!(matches!(travels, PayGoToken::Anchor(_)));
        let other = core.spawn(1, travels, PayGoCore::comes_and_goes);
        core.comes_and_goes(first);
        core.settle();
        other.join().unwrap();
    });
}

/// The count is closed while another core takes references: they are seen, or are moved.
#[test]
fn paygo_is_closed_while_references_are_taken() {
    explore(3, paygo, |core: &PayGoCore, first: PayGoToken| {
        let given = core.inc();
        let other = core.spawn(1, given, |core, given| {
            core.comes_and_goes(given);
            core.settle();
        });
        core.dec(first);
        core.settle();
        other.join().unwrap();
    });
}

/// As above, with a reference that moves from an entry that is read late to one that is read early.
#[test]
fn paygo_is_closed_while_a_reference_moves() {
    explore(3, paygo, |core: &PayGoCore, first: PayGoToken| {
        let given = Core::new(&core.object, 1).inc();
        let other = core.spawn(1, first, |core, first| {
            core.dec(first);
            core.settle();
        });
        core.comes_and_goes(given);
        other.join().unwrap();
    });
}

/// The entry serves another object while the first is asked about.
#[test]
fn paygo_entries_change_objects() {
    explore(2, paygo, |core: &PayGoCore, first: PayGoToken| {
        let given = core.inc();
        let other = core.spawn(1, given, |core, given| {
            let another = PayGo::count(CORES).unwrap();
            let scheme = &core.object.scheme;
            core.dec(core.inc());
            let token = scheme.inc(&core.pin, &another);
            let taken = core.inc();
            assert!(matches!(taken, PayGoToken::Central), "one entry holds references to two objects");
            core.dec(given);
            assert!(!scheme.dec(&core.pin, &another, token));
            core.dec(taken);
        });
        core.dec(first);
        core.settle();
        other.join().unwrap();
    });
}

/// A core counts a reference while it is pinned, which is dropped on another core. The host asks after the
/// first core has unpinned, so the count need not be closed.
#[test]
fn paygo_is_asked_after_a_grace_period() {
    const NAME: usize = 1;
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let object =
            Object { scheme: paygo(), count: PayGo::count(CORES).unwrap(), ends: UnsafeCell::new(0) };
        let (core, unpinned) = (PayGoCore::new(&Arc::new(object), 0), Arc::new(AtomicBool::new(false)));
        let (reader, unpins) = (PayGoCore::new(&core.object, 1), Arc::clone(&unpinned));
        let other = thread::spawn(move || {
            let anchor = reader.object.scheme.anchor(&reader.pin, NAME).expect("the table is empty");
            unpins.store(true, Ordering::Release);
            let elsewhere = PayGoCore::new(&reader.object, 2);
            elsewhere.check(0);
            elsewhere.object.scheme.leave(&elsewhere.pin, anchor, NAME);
        });
        core.hear(unpinned.load(Ordering::Acquire) && !core.object.scheme.is_anchored(NAME));
        other.join().unwrap();
        assert!(!core.object.scheme.is_anchored(NAME));
    });
}
