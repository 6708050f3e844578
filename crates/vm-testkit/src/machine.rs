//! Cores played by host threads, and interrupts between them.
//!
//! A thread *attends* a core: interrupts for it go to its inbox, and it takes them where hardware would let
//! it, between two accesses of the program and on every turn of a wait. A core that no thread attends is
//! interrupted in place, by the sender. So one thread can play all cores in turn, in an order that a property
//! test chooses.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use percore::threads::{self, ThreadCore};
use percore::{CoreId, PerCore, Pinned};
use refcache::{Config, Refcache};

use crate::interpose::Interposed;
use crate::{Call, FileStore, FrameStore};

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Inbox {
    attended: bool,
    idle: bool,
    work: Vec<Work>,
    /// How much of it the core has taken so far.
    taken: usize,
}

impl Inbox {
    /// How much the core has taken when it has taken what is there now.
    fn due(&self) -> usize {
        self.taken + self.work.len()
    }
}

/// Cores, interrupts, memory, and one Refcache domain. There is one machine at a time in a process.
pub struct Machine {
    /// Memory.
    pub frames: FrameStore,
    /// The files that mappings may show.
    pub files: FileStore,
    /// The domain of all spaces' nodes.
    pub refcache: Arc<Refcache>,
    /// The domain of their trees' nodes.
    pub rcu: Arc<rcu::Domain>,
    inboxes: PerCore<Mutex<Inbox>>,
    /// True once a core has failed: the others stop waiting for it.
    broken: AtomicBool,
    pub(crate) interposed: Interposed,
    turn: Turn,
}

/// Host threads play cores by number, for the whole process: so machines take turns.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A machine's turn. A space that is lost keeps its machine for ever, so the turn ends with the last space of
/// a machine that has lost one. Otherwise it ends with the machine.
struct Turn {
    lasts: AtomicBool,
    spaces: AtomicUsize,
    has_lost: AtomicBool,
}

impl Turn {
    fn wait() -> Self {
        while TAKEN.swap(true, SeqCst) {
            thread::yield_now();
        }
        let (lasts, spaces) = (AtomicBool::new(true), AtomicUsize::new(0));
        Self { lasts, spaces, has_lost: AtomicBool::new(false) }
    }

    fn end(&self) {
        if self.lasts.swap(false, SeqCst) {
            TAKEN.store(false, SeqCst);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.end();
    }
}

thread_local! {
    static ATTENDING: RefCell<Option<(Arc<Machine>, CoreId)>> = const { RefCell::new(None) };
}

impl Machine {
    /// Returns a machine of `cores` cores, all online, and `frames` frames. Waits for another machine to go.
    pub fn new(cores: usize, frames: usize) -> Arc<Self> {
        let turn = Turn::wait();
        let refcache = Arc::new(Refcache::new(Config { cores, cache_slots: 64, review_budget: usize::MAX }));
        let rcu = Arc::new(rcu::Domain::new(rcu::Config { cores, batch: usize::MAX, bound: usize::MAX }));
        let machine = Self {
            frames: FrameStore::new(cores, frames),
            files: FileStore::default(),
            refcache,
            rcu,
            inboxes: PerCore::new(cores, |_| Mutex::default()),
            broken: AtomicBool::new(false),
            interposed: Interposed::default(),
            turn,
        };
        machine.on_each(|pin| {
            machine.refcache.online(pin);
            machine.rcu.online(pin);
        });
        Arc::new(machine)
    }

    /// Returns how many cores there are.
    pub fn cores(&self) -> usize {
        self.inboxes.cores()
    }

    /// Plays `core`, which no thread attends, for one call.
    pub fn on<R>(&self, core: usize, f: impl FnOnce(&Pinned) -> R) -> R {
        let _played = threads::enter(CoreId::new(core));
        f(&percore::pin())
    }

    /// Has another thread play `core`, which no thread attends, for one call, and waits for it: the other
    /// core acts in the middle of an operation of this one.
    pub fn elsewhere<R: Send>(&self, core: usize, f: impl FnOnce(&Pinned) -> R + Send) -> R {
        thread::scope(|scope| scope.spawn(|| self.on(core, f)).join()).expect("the other core has not failed")
    }

    /// Has `act` done in the middle of the next `call`, once.
    pub fn interpose(&self, call: Call, act: impl FnOnce(&Pinned) + Send + 'static) {
        self.interposed.set(call, act);
    }

    /// Plays every core in turn. No thread may attend one.
    pub fn on_each(&self, mut f: impl FnMut(&Pinned)) {
        (0..self.cores()).for_each(|core| self.on(core, &mut f));
    }

    /// Makes this thread attend `core` until the value is dropped.
    pub fn attend(self: &Arc<Self>, core: usize) -> Attended {
        let played = threads::enter(CoreId::new(core));
        self.inboxes.of(played.id()).lock().unwrap().attended = true;
        ATTENDING.set(Some((self.clone(), played.id())));
        played.on_relax(serve);
        Attended { machine: self.clone(), pin: percore::pin(), _played: played }
    }

    /// Runs `play` on a thread for each of `cores` cores, and waits for all.
    pub fn on_threads(self: &Arc<Self>, cores: usize, play: impl Fn(&Attended) + Sync) {
        thread::scope(|scope| {
            for core in 0..cores {
                let play = &play;
                scope.spawn(move || play(&self.attend(core)));
            }
        });
    }

    /// Says whether `core` is idle: then a shootdown need not interrupt it.
    pub fn set_idle(&self, core: usize, idle: bool) {
        self.inboxes.of(CoreId::new(core)).lock().unwrap().idle = idle;
    }

    /// Has `work` done on `core`: by its thread, or at once if no thread attends it. Returns false if the
    /// core is idle (the work is done all the same, as by an idle core on its way back).
    pub(crate) fn interrupt(&self, core: CoreId, work: impl FnOnce() + Send + 'static) -> bool {
        let mut inbox = self.inboxes.of(core).lock().unwrap();
        if inbox.attended {
            inbox.work.push(Box::new(work));
        } else {
            work();
        }
        !inbox.idle
    }

    /// Takes this core's interrupts.
    fn serve(&self, core: CoreId) {
        assert!(!self.broken.load(SeqCst), "another core has failed");
        let mut inbox = self.inboxes.of(core).lock().unwrap();
        let work = std::mem::take(&mut inbox.work);
        inbox.taken += work.len();
        drop(inbox);
        work.into_iter().for_each(|work| work());
    }

    /// One turn of a wait of this core for another one.
    ///
    /// # Panics
    /// If the host takes no interrupts in it.
    pub(crate) fn turn(&self, pin: &Pinned) {
        let inbox = || self.inboxes.mine(pin).lock().unwrap();
        let due = { inbox() }.due();
        percore::relax();
        assert!(inbox().taken >= due, "core {} takes no interrupts while it waits", pin.core().index());
    }

    /// Counts a space of this machine.
    pub(crate) fn begin_space(&self) {
        self.turn.spaces.fetch_add(1, SeqCst);
    }

    /// Counts a space out. If that was the last one, and one is lost, the next machine may begin.
    pub(crate) fn end_space(&self, is_lost: bool) {
        self.turn.has_lost.fetch_or(is_lost, SeqCst);
        if self.turn.spaces.fetch_sub(1, SeqCst) == 1 && self.turn.has_lost.load(SeqCst) {
            self.turn.end();
        }
    }

    /// Records that this core is between two operations, so that an epoch may end.
    pub fn tick(&self, pin: &Pinned) -> usize {
        self.rcu.quiesce(pin) + self.refcache.tick(pin).freed
    }

    /// Lets enough epochs pass for every dead node to go. No thread may attend a core.
    pub fn settle(&self) {
        let mut quiet = 0;
        while quiet < 8 {
            let mut freed = 0;
            self.on_each(|pin| freed += self.tick(pin));
            quiet = if freed == 0 { quiet + 1 } else { 0 };
        }
    }
}

/// Takes the interrupts of the core that this thread attends, if any.
fn serve() {
    let attending = ATTENDING.with_borrow(Clone::clone);
    if let Some((machine, core)) = attending {
        machine.serve(core);
    }
}

/// A thread that attends a core, pinned to it.
pub struct Attended {
    machine: Arc<Machine>,
    pin: Pinned,
    _played: ThreadCore,
}

impl Attended {
    /// Proof of being there.
    pub fn pin(&self) -> &Pinned {
        &self.pin
    }

    /// Takes waiting interrupts.
    pub fn serve(&self) {
        self.machine.serve(self.pin.core());
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        if thread::panicking() {
            self.machine.broken.store(true, SeqCst);
        }
        ATTENDING.set(None);
        let mut inbox = self.machine.inboxes.of(self.pin.core()).lock().unwrap();
        inbox.attended = false;
        inbox.work.drain(..).for_each(|work| work());
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::{Design, Setup, World};

    /// A test may lose a space in the middle of an operation of another one.
    #[test]
    fn a_machine_that_loses_a_space_keeps_its_turn_until_the_last_one_goes() {
        let world = World::new(Setup::new(), Design::ALL[0]);
        let machine = world.machine.clone();
        machine.on(0, |pin| drop(world.sibling(pin)));
        assert!(machine.turn.lasts.load(SeqCst));
        drop(world);
        assert!(!machine.turn.lasts.load(SeqCst));
    }

    fn waits(core: &Attended) -> bool {
        core.machine.interrupt(core.pin.core(), || {});
        catch_unwind(AssertUnwindSafe(|| core.machine.turn(&core.pin))).is_ok()
    }

    #[test]
    fn a_core_that_waits_without_interrupts_is_detected() {
        let machine = Machine::new(1, 0);
        let core = machine.attend(0);
        assert!(waits(&core));
        core._played.on_relax(|| {});
        assert!(!waits(&core));
    }
}
