//! Loom's threads play cores: `RUSTFLAGS="--cfg loom" cargo test -p radixvm-percore --features threads --test
//! loom`.
#![cfg(all(loom, feature = "threads"))]

use loom::sync::Arc;
use loom::thread;
use percore::{CoreId, Hints, LazyPerCore, OwnerCell, PerCore, pin, threads};
use sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn add_one(cells: &PerCore<OwnerCell<u32>>) -> u32 {
    let pin = pin();
    let add = |value: &mut u32| {
        *value += 1;
        *value
    };
    // SAFETY: the closure does not use the cell.
    unsafe { cells.mine(&pin).with(&pin, add) }
}

#[test]
fn each_thread_has_its_core() {
    loom::model(|| {
        let cells = Arc::new(PerCore::new(2, |core| OwnerCell::new(core, 0)));
        let theirs = Arc::clone(&cells);
        let other = thread::spawn(move || {
            let _core = threads::enter(CoreId::new(1));
            add_one(&theirs)
        });
        let core = threads::enter(CoreId::new(0));
        assert_eq!(add_one(&cells), 1);
        assert_eq!(other.join().unwrap(), 1);
        drop(core);
        let _core = threads::enter(CoreId::new(1));
        assert_eq!(add_one(&cells), 2, "the core was handed over with its data");
    });
}

/// Two parts begin at once, while a core iterates over all parts.
#[test]
fn no_part_is_lost() {
    loom::model(|| {
        let parts = Arc::new(LazyPerCore::try_new(2).unwrap());
        let theirs = Arc::clone(&parts);
        let other = thread::spawn(move || {
            let _core = threads::enter(CoreId::new(1));
            theirs.mine_or_new(&pin(), CoreId::index);
        });
        let _core = threads::enter(CoreId::new(0));
        parts.mine_or_new(&pin(), CoreId::index);
        assert!(parts.iter().any(|&part| part == 0));
        other.join().unwrap();
        let all: Vec<_> = parts.iter().copied().collect();
        assert!(all == [0, 1] || all == [1, 0], "{all:?}");
    });
}

/// A machine whose cores the models below play: core 0 gives work, core 1 goes idle, core 2 looks and is
/// misled.
struct Machine {
    /// True if core 1 idles. This is the truth behind `idle`.
    idles: AtomicBool,
    idle: Hints,
    /// The number of tasks that wait for core 0. It is the truth behind `surplus`.
    waiting: AtomicUsize,
    surplus: Hints,
    /// Set when another core has claimed core 1 and interrupts it.
    kicked: AtomicBool,
}

const GIVER: CoreId = CoreId::new(0);
const IDLER: CoreId = CoreId::new(1);

impl Machine {
    fn new() -> Arc<Self> {
        let (idle, surplus) = (Hints::new(), Hints::new());
        let (idles, kicked) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { idles, idle, waiting: AtomicUsize::new(0), surplus, kicked })
    }

    /// Claims core 1 if it idles, as the kernel's `place.rs` does, and interrupts it.
    fn kick_if_idle(&self) {
        let idles = || self.idles.load(Ordering::Relaxed);
        let claim = || self.idles.compare_exchange(true, false, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if self.idle.cores().contains(IDLER) && (claim() || self.idle.withdraw(IDLER, idles) && claim()) {
            self.kicked.store(true, Ordering::Relaxed);
        }
    }

    /// Gives core 0 one task more than it runs.
    fn give(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.surplus.announce(GIVER);
        self.kick_if_idle();
    }

    /// Returns whether there is work to take from core 0. A core that finds work after having been misled
    /// tells the other cores that may have been misled too.
    fn finds_work(&self) -> bool {
        let waits = || self.waiting.load(Ordering::Relaxed) > 0;
        self.surplus.cores().contains(GIVER)
            && (waits()
                || self.surplus.withdraw(GIVER, waits) && {
                    self.kick_if_idle();
                    true
                })
    }

    /// Makes core 1 idle, after a last look for work. Returns whether it found some, and stays awake.
    fn goes_idle(&self) -> bool {
        self.idles.store(true, Ordering::Relaxed);
        self.idle.announce(IDLER);
        self.finds_work()
    }
}

/// Explores a core that goes idle and one that gives it work, with `third` beside them.
fn no_work_is_missed(
    before: impl Fn(&Machine) + Send + Sync + 'static,
    third: impl Fn(&Machine) + Copy + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let machine = Machine::new();
        before(&machine);
        let (giver, misled) = (Arc::clone(&machine), Arc::clone(&machine));
        let giver = thread::spawn(move || giver.give());
        let misled = thread::spawn(move || third(&misled));
        let found = machine.goes_idle();
        giver.join().unwrap();
        misled.join().unwrap();
        assert!(found || machine.kicked.load(Ordering::Relaxed), "a core sleeps while a task waits");
    });
}

#[test]
fn an_idle_core_and_a_giver_see_each_other() {
    no_work_is_missed(|_| (), |_| ());
}

/// Core 1 is in the set already, from an earlier idle time. It writes nothing there, while another takes it
/// out.
#[test]
fn an_idle_core_that_another_withdraws() {
    let was_idle = |machine: &Machine| {
        machine.idle.announce(IDLER);
    };
    no_work_is_missed(was_idle, Machine::kick_if_idle);
}

/// Core 0 is in the set already, though nothing waits there. It writes nothing there, while another takes it
/// out.
#[test]
fn a_giver_that_another_withdraws() {
    let had_work = |machine: &Machine| {
        machine.surplus.announce(GIVER);
    };
    let look = |machine: &Machine| {
        machine.finds_work();
    };
    no_work_is_missed(had_work, look);
}
