//! Signals to the process are given to members, as `runtime/isolate/signals.rs` does: the courier, a member
//! and the leader. The kernel is a queue of signals and of calls, behind one mutex. A wait has no time, so a
//! call that is lost is a thread that waits for ever, which loom reports.

use std::sync::Arc;

use pathreads::delivery::{self, AWAKE, CLAIMED, Courier};
use pathreads::requests::{self, Kernel, Seat};
use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::loom::cell::Cell;
use sync::loom::sync::{Condvar, Mutex};
use sync::loom::thread;

use crate::explore;

const SIGNAL: u64 = 1;
const LEADER: usize = 0;
const MEMBER: usize = 1;

/// The state of the kernel.
struct Kernels {
    /// The signal is pending in the process.
    is_pending: bool,
    /// The courier has been roused.
    is_roused: bool,
    /// The member has been interrupted, and has not served.
    is_interrupted: bool,
    /// The program is over for the courier.
    is_over: bool,
}

struct World {
    rests: AtomicU32,
    watched: AtomicU64,
    sets: [AtomicU64; 2],
    threads: [AtomicU32; 2],
    pending: AtomicU32,
    stops: AtomicU32,
    /// Written by the member before it answers.
    is_refused: Cell<bool>,
    kernels: Mutex<Kernels>,
    changed: Condvar,
}

impl World {
    fn new(leaders: u64, members: u64) -> Arc<Self> {
        Arc::new(World {
            rests: AtomicU32::new(AWAKE),
            watched: AtomicU64::new(0),
            sets: [AtomicU64::new(leaders), AtomicU64::new(members)],
            threads: [AtomicU32::new(1), AtomicU32::new(2)],
            pending: AtomicU32::new(0),
            stops: AtomicU32::new(0),
            is_refused: Cell::new(false),
            kernels: Mutex::new(Kernels {
                is_pending: false,
                is_roused: false,
                is_interrupted: false,
                is_over: false,
            }),
            changed: Condvar::new(),
        })
    }

    fn courier(&self) -> Courier<'_> {
        Courier { rests: &self.rests, watched: &self.watched }
    }

    fn change<R>(&self, f: impl FnOnce(&mut Kernels) -> R) -> R {
        let result = f(&mut self.kernels.lock().unwrap());
        self.changed.notify_all();
        result
    }

    fn sleep_while(&self, is_asleep: impl Fn(&Kernels) -> bool) {
        let mut kernels = self.kernels.lock().unwrap();
        while is_asleep(&kernels) {
            kernels = self.changed.wait(kernels).unwrap();
        }
    }

    fn send(&self) {
        self.change(|kernels| kernels.is_pending = true);
    }

    /// Takes the signal from the process.
    fn take(&self) -> bool {
        self.change(|kernels| core::mem::replace(&mut kernels.is_pending, false))
    }

    // ---- A member, or the leader.

    fn call(&self, to: u32) -> Option<u32> {
        delivery::call(
            &self.rests,
            to,
            || self.change(|kernels| kernels.is_roused = true),
            || self.wake(&self.rests),
        )
    }

    /// Changes a set, and calls the courier.
    fn changed(&self, member: usize, old: u64, open: u64) {
        let leaders = &self.sets[LEADER];
        let to = delivery::call_after(self.courier(), leaders, member == LEADER, old, open);
        let _ = to.and_then(|to| self.call(to));
    }

    fn publish(&self, member: usize, open: u64) {
        self.changed(member, delivery::publish(&self.sets[member], open), open);
    }

    // ---- The courier.

    fn wanted(&self) -> u64 {
        let [leaders, members] = [LEADER, MEMBER].map(|member| delivery::seen(&self.sets[member]));
        members & !CLAIMED & !leaders
    }

    /// Gives signals until the program is over.
    fn give(&self) {
        let mut look = 0;
        while !self.change(|kernels| kernels.is_over) {
            let sleep = |signals: u64| {
                self.sleep_while(|kernels| {
                    let is_there = kernels.is_pending && signals & SIGNAL != 0;
                    !is_there && !kernels.is_roused && !kernels.is_over
                });
            };
            let wake = || self.wake(&self.rests);
            delivery::rest(self.courier(), look, || self.wanted(), wake, sleep, |_| {});
            let is_pending = self.change(|kernels| {
                kernels.is_roused = false;
                kernels.is_pending
            });
            if is_pending && self.wanted() & SIGNAL != 0 {
                self.give_one();
            }
            look = delivery::end_look(&self.rests, look);
        }
    }

    fn give_one(&self) {
        let set = &self.sets[MEMBER];
        if !delivery::claim(set, SIGNAL) {
            return;
        }
        if !self.take() {
            return delivery::end_claim(set, None);
        }
        let seat = Seat { thread: &self.threads[MEMBER], pending: &self.pending };
        requests::ask(core::iter::once(seat), &self.stops, self);
        if self.is_refused.get() {
            self.send();
        }
    }
}

impl Kernel for World {
    fn wait(&self, word: &AtomicU32, value: u32, _: u64) {
        self.sleep_while(|_| word.load(Ordering::Relaxed) == value);
    }

    fn wake(&self, _: &AtomicU32) {
        self.change(|_| {});
    }

    fn interrupt(&self, _: u32) {
        self.change(|kernels| kernels.is_interrupted = true);
    }
}

/// The state that is private to the member.
struct Member {
    world: Arc<World>,
    /// Signals that it was given.
    given: std::cell::Cell<u32>,
    /// Whether one ends its wait. It is a real-time signal then, which is not refused.
    takes_one: bool,
}

impl Member {
    fn new(world: &Arc<World>, takes_one: bool) -> Self {
        Member { world: world.clone(), given: 0.into(), takes_one }
    }

    /// Is interrupted, if it is asked.
    fn step(&self) {
        if self.world.change(|kernels| core::mem::replace(&mut kernels.is_interrupted, false)) {
            self.serve();
        }
    }

    fn serve(&self) {
        let world = &self.world;
        requests::serve(&world.pending, &**world, || {
            let set = &world.sets[MEMBER];
            let accepts = self.takes_one || delivery::accepts(set, SIGNAL);
            world.is_refused.set(!accepts);
            self.given.set(self.given.get() + u32::from(accepts));
            delivery::end_claim(set, (accepts && self.takes_one).then_some(0));
        });
    }

    /// Sleeps until it is interrupted, or something else happens.
    fn stay(&self, is_over: impl Fn() -> bool) {
        self.world.sleep_while(|kernels| !kernels.is_interrupted && !is_over());
        self.step();
    }

    fn publish_unclaimed(&self, open: u64) {
        self.step();
        let set = &self.world.sets[MEMBER];
        // A claim is followed by a request, or ends when the leader took the signal.
        let stay = || self.stay(|| set.load(Ordering::Relaxed) & CLAIMED == 0);
        let old = delivery::publish_unclaimed(set, open, stay);
        self.world.changed(MEMBER, old, open);
    }

    fn look(&self) {
        let rests = &self.world.rests;
        let stay = |value| self.stay(|| rests.load(Ordering::Relaxed) != value);
        delivery::look(rests, || self.world.call(AWAKE), stay);
    }

    /// Answers requests until the courier has ended.
    fn end(&self, courier: thread::JoinHandle<()>) {
        self.world.change(|kernels| kernels.is_over = true);
        let world = self.world.clone();
        // The courier may be waiting for an answer.
        let server = &world;
        while !server.is_courier_over() {
            self.stay(|| server.is_courier_over());
        }
        courier.join().unwrap();
    }
}

impl World {
    fn is_courier_over(&self) -> bool {
        self.threads[LEADER].load(Ordering::Relaxed) == 0
    }
}

fn begin_courier(world: &Arc<World>) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || {
        world.give();
        world.threads[LEADER].store(0, Ordering::Relaxed);
        world.change(|_| {});
    })
}

/// A member that takes a signal gets it, whether it is sent before or after.
#[test]
fn no_member_waits_unseen() {
    explore(2, || {
        let world = World::new(0, 0);
        let courier = begin_courier(&world);
        let sender = thread::spawn({
            let world = world.clone();
            move || world.send()
        });
        let member = Member::new(&world, true);
        member.publish_unclaimed(SIGNAL);
        while member.given.get() == 0 {
            member.stay(|| false);
        }
        sender.join().unwrap();
        assert_eq!(member.given.get(), 1);
        member.end(courier);
    });
}

/// A wait that ends by its time has the signal, or the process has it still.
#[test]
fn a_wait_that_ends_loses_no_signal() {
    explore(2, || {
        let world = World::new(0, 0);
        world.send();
        let courier = begin_courier(&world);
        let member = Member::new(&world, true);
        member.publish_unclaimed(SIGNAL);
        member.publish_unclaimed(0);
        let given = member.given.get();
        member.end(courier);
        assert_eq!(member.given.get(), given, "a member gets what it does not take");
        assert_eq!(given + u32::from(world.take()), 1);
    });
}

/// A member that begins a handler does not wait for the claim. The signal is its own, or the process's.
#[test]
fn a_handler_that_begins_leaves_the_signal() {
    explore(2, || {
        let world = World::new(0, SIGNAL);
        world.send();
        let courier = begin_courier(&world);
        let member = Member::new(&world, false);
        member.step();
        world.publish(MEMBER, 0);
        let given = member.given.get();
        member.step();
        assert_eq!(member.given.get(), given);
        member.end(courier);
        assert_eq!(member.given.get(), given, "a handler waits with a signal that it blocks");
        assert_eq!(given + u32::from(world.take()), 1);
    });
}

/// A pending signal comes before a member that unblocks it goes on.
#[test]
fn what_is_pending_comes_at_once() {
    explore(2, || {
        let world = World::new(0, 0);
        world.send();
        let courier = begin_courier(&world);
        let member = Member::new(&world, false);
        member.publish_unclaimed(SIGNAL);
        member.look();
        member.step();
        assert_eq!(member.given.get(), 1);
        member.end(courier);
    });
}

/// The leader blocks a signal that a member takes, as it is sent.
#[test]
fn what_the_leader_blocks_is_anothers() {
    explore(2, || {
        let world = World::new(SIGNAL, 0);
        let courier = begin_courier(&world);
        let leader = thread::spawn({
            let world = world.clone();
            move || {
                world.publish(LEADER, 0);
                world.send();
            }
        });
        let member = Member::new(&world, true);
        member.publish_unclaimed(SIGNAL);
        while member.given.get() == 0 {
            member.stay(|| false);
        }
        leader.join().unwrap();
        member.end(courier);
    });
}
