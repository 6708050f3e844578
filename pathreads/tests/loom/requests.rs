//! Members map, protect and unmap memory under the lock, as `runtime/isolate/memory.rs` does, while others
//! use it, come and go. Requests interrupt them between any two steps ([`Member::step`]).

use std::sync::Arc;

use pathreads::PAGE;
use pathreads::record::{Members, NO_FILE, Region};
use pathreads::requests::{self, Kernel, Seat};
use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::loom::cell::Cell;
use sync::loom::sync::{Condvar, Mutex};
use sync::loom::thread;

use crate::explore;

const PLACE: u64 = 16 * PAGE;
const END: u64 = PLACE + PAGE;
const READ: u64 = 1;
const WRITE: u64 = 2;
const BOTH: u64 = READ | WRITE;
const MEMBERS: usize = 3;

/// A thing that members are asked to do.
#[derive(Clone, Copy, PartialEq)]
enum Request {
    Unmap,
    /// Take the rights that are recorded.
    Protect,
    /// Map the copy, without the right to write.
    Replace,
    Stop(u32),
}

/// A page of the program's memory: in a file, or its copy.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Frame {
    Own,
    Copy,
}

/// The words that all members share, and the memory.
struct World {
    lock: AtomicU32,
    version: AtomicU64,
    stops: AtomicU32,
    threads: [AtomicU32; MEMBERS],
    pending: [AtomicU32; MEMBERS],
    /// Requests that were sent, and have not interrupted their member yet.
    signals: [AtomicU32; MEMBERS],
    sent: AtomicU32,
    /// Requests to each member less its answers.
    unanswered: [AtomicU32; MEMBERS],
    /// Members that wait sleep here, until any is woken.
    sleep: (Mutex<()>, Condvar),
    request: Cell<Request>,
    record: Cell<Option<Region>>,
    frames: [Cell<u32>; 2],
    /// Set when the program has passed something on.
    passed: AtomicU32,
}

impl Kernel for Member {
    fn wait(&self, word: &AtomicU32, value: u32, _: u64) {
        self.step();
        let (mutex, condition) = &self.world.sleep;
        let sleep = mutex.lock().unwrap();
        let is_interrupted =
            !self.is_handling.get() && self.world.signals[self.me].load(Ordering::Relaxed) != 0;
        if word.load(Ordering::Relaxed) == value && !is_interrupted {
            drop(condition.wait(sleep).unwrap());
        } else {
            drop(sleep);
        }
        self.step();
    }

    fn wake(&self, _: &AtomicU32) {
        let (mutex, condition) = &self.world.sleep;
        let _sleep = mutex.lock().unwrap();
        condition.notify_all();
    }

    fn interrupt(&self, thread: u32) {
        let member = thread as usize - 1;
        // A member that waits for the lock may have answered already. Loom gives the newest value.
        let is_asked = self.world.pending[member].load(Ordering::Relaxed) != 0;
        let answered = self.world.unanswered[member].fetch_add(0, Ordering::Relaxed) == 0;
        assert!(is_asked || answered, "a signal comes before its request");
        self.world.sent.fetch_add(1, Ordering::Relaxed);
        // Linux delivers a signal after it was sent. Loom orders read-modify-writes alone.
        self.world.signals[member].swap(1, Ordering::Release);
        self.wake(&self.world.signals[member]);
    }
}

impl World {
    /// Makes one in which the first two members have the page with these rights.
    fn new(rights: u64) -> Arc<Self> {
        let both = Members::only(0).with(1);
        let record = Region { holders: both, current: both, ..region(rights) };
        let words = || std::array::from_fn(|_| AtomicU32::new(0));
        let threads = [AtomicU32::new(1), AtomicU32::new(2), AtomicU32::new(0)];
        Arc::new(World {
            lock: AtomicU32::new(0),
            version: AtomicU64::new(1),
            stops: AtomicU32::new(0),
            threads,
            pending: words(),
            signals: words(),
            sent: AtomicU32::new(0),
            unanswered: words(),
            sleep: (Mutex::new(()), Condvar::new()),
            request: Cell::new(Request::Unmap),
            record: Cell::new(Some(record)),
            frames: [Cell::new(0), Cell::new(0)],
            passed: AtomicU32::new(0),
        })
    }

    fn seat(&self, member: usize) -> Seat<'_> {
        Seat { thread: &self.threads[member], pending: &self.pending[member] }
    }

    fn frame(&self, frame: Frame) -> &Cell<u32> {
        &self.frames[frame as usize]
    }
}

/// Returns the page's region, which no member has.
fn region(rights: u64) -> Region {
    Region {
        start: PLACE,
        end: END,
        rights,
        file: NO_FILE,
        offset: 0,
        is_copy: false,
        is_private: false,
        is_snapshot: false,
        is_stack: false,
        holders: Members::NONE,
        current: Members::NONE,
    }
}

/// A member, with what is private to it: what it has mapped, with which rights.
struct Member {
    world: Arc<World>,
    me: usize,
    mapped: std::cell::Cell<Option<(Frame, u64)>>,
    synced: AtomicU64,
    /// Whether it runs the handler of requests, which such a signal does not interrupt.
    is_handling: std::cell::Cell<bool>,
}

impl Member {
    fn new(world: &Arc<World>, me: usize, rights: u64) -> Self {
        let mapped = std::cell::Cell::new(Some((Frame::Own, rights)));
        Member { world: world.clone(), me, mapped, synced: AtomicU64::new(1), is_handling: false.into() }
    }

    /// Is interrupted, if a request was sent.
    fn step(&self) {
        if !self.is_handling.get() && self.world.signals[self.me].swap(0, Ordering::Acquire) != 0 {
            self.is_handling.set(true);
            self.serve();
            self.is_handling.set(false);
        }
    }

    fn serve(&self) {
        let mut stops = None;
        requests::serve(&self.world.pending[self.me], self, || {
            stops = self.do_as_asked(self.world.request.get());
            self.world.unanswered[self.me].fetch_sub(1, Ordering::Relaxed);
        });
        if let Some(value) = stops {
            requests::stay_stopped(&self.world.stops, value, self, || self.serve());
        }
    }

    /// Returns the value of `stops` if this member is to stop.
    fn do_as_asked(&self, what: Request) -> Option<u32> {
        match what {
            Request::Unmap => self.mapped.set(None),
            Request::Protect | Request::Replace => {
                let region = self.world.record.get().unwrap();
                assert!(region.holders.has(self.me));
                let rights = if what == Request::Replace { region.rights & !WRITE } else { region.rights };
                self.mapped.set(Some((frame_of(&region), rights)));
            }
            Request::Stop(value) => return Some(value),
        }
        None
    }

    fn locked<R>(&self, f: impl FnOnce(&mut Option<Region>) -> R) -> R {
        requests::take_lock(&self.world.lock, self, || self.serve());
        let mut record = self.world.record.get();
        let result = f(&mut record);
        self.world.record.set(record);
        requests::release_lock(&self.world.lock, self);
        self.step();
        result
    }

    /// Asks the holders. The lock is held.
    fn request(&self, record: &Option<Region>, holders: Members, what: Request) {
        let holders = holders.without(self.me);
        if holders.is_empty() {
            return;
        }
        let is_asked = |pending: &AtomicU32| pending.load(Ordering::Relaxed) != 0;
        assert!(!self.world.pending.iter().any(is_asked), "two requests at a time");
        // Members that serve read the record.
        self.world.record.set(*record);
        self.world.request.set(what);
        let is_there = |member: &usize| self.world.threads[*member].load(Ordering::Relaxed) != 0;
        holders.iter().filter(is_there).for_each(|member| {
            self.world.unanswered[member].fetch_add(1, Ordering::Relaxed);
        });
        requests::ask(holders.iter().map(|member| self.world.seat(member)), &self.world.stops, self);
    }

    fn announce(&self) {
        requests::note_announced(&self.synced, requests::announce(&self.world.version));
    }

    /// Maps the page here, as it is recorded.
    fn take(&self, region: &mut Region) {
        self.mapped.set(Some((frame_of(region), region.mapped_rights())));
        region.holders = region.holders.with(self.me);
        region.current = region.current.with(self.me);
    }

    /// Handles a fault. Returns whether the page is the program's with the right that is needed.
    fn fault(&self, needed: u64) -> bool {
        self.locked(|record| {
            let Some(region) = record.as_mut().filter(|region| region.rights & needed != 0) else {
                return false;
            };
            if needed == WRITE && region.needs_copy() {
                self.replace(region);
            } else {
                self.take(region);
            }
            true
        })
    }

    /// Accesses the page, if the program has it with this right. An access comes between no two others.
    fn access(&self, right: u64, f: impl Fn(&Cell<u32>)) -> bool {
        loop {
            self.step();
            match self.mapped.get() {
                Some((frame, rights)) if rights & right != 0 => {
                    f(self.world.frame(frame));
                    return true;
                }
                _ if !self.fault(right) => return false,
                _ => {}
            }
        }
    }

    fn read(&self) -> bool {
        self.access(READ, |cell| _ = cell.get())
    }

    /// Unmaps the page, as `munmap` does, and gives its frame back.
    fn unmap(&self) {
        self.locked(|record| {
            let Some(region) = record.take() else { return };
            self.mapped.set(None);
            self.request(record, region.holders, Request::Unmap);
            self.world.frame(frame_of(&region)).set(0);
        });
    }

    /// Changes the rights, as `mprotect` does.
    fn protect(&self, rights: u64) {
        self.locked(|record| {
            let Some(mut region) = *record else { return };
            let old = region;
            region.rights = rights;
            if old.holders.has(self.me) {
                self.mapped.set(Some((frame_of(&region), rights)));
            }
            if old.rights & !rights != 0 {
                self.request(&Some(region), old.holders, Request::Protect);
                region.current = region.holders;
            } else if old.rights != rights {
                region.current = Members::only(self.me);
                if !old.holders.has(self.me) {
                    self.take(&mut region);
                }
                self.announce();
            }
            *record = Some(region);
        });
    }

    /// Puts a copy in the page's place. The members that have it map the copy, without the right to write,
    /// before one writes to it. The lock is held.
    fn replace(&self, region: &mut Region) {
        self.world.frame(Frame::Copy).set(self.world.frame(Frame::Own).get());
        (region.is_copy, region.is_private, region.current) = (true, false, Members::NONE);
        self.announce();
        self.request(&Some(*region), region.holders, Request::Replace);
        self.take(region);
    }

    /// Has everything mapped before a call.
    fn sync(&self) {
        if !requests::is_synced(&self.world.version, &self.synced) {
            self.locked(|record| {
                if let Some(region) = record.as_mut().filter(|region| !region.current.has(self.me)) {
                    self.take(region);
                }
                requests::note_synced(&self.world.version, &self.synced);
            });
        }
    }

    /// Makes another member, which has the same mapped, and runs `f`.
    fn make(&self, f: impl FnOnce(&Member) + 'static) -> thread::JoinHandle<()> {
        const NEW: usize = 2;
        self.locked(|record| {
            self.world.pending[NEW].store(0, Ordering::Relaxed);
            let synced = AtomicU64::new(self.synced.load(Ordering::Relaxed));
            let new = Member {
                world: self.world.clone(),
                me: NEW,
                mapped: self.mapped.clone(),
                synced,
                is_handling: false.into(),
            };
            let made = thread::spawn(move || {
                new.world.threads[NEW].store(NEW as u32 + 1, Ordering::Relaxed);
                f(&new);
                new.leave();
            });
            self.world.threads[NEW].store(NEW as u32 + 1, Ordering::Relaxed);
            if let Some(region) = record {
                region.holders = region.holders.with(NEW);
                if region.current.has(self.me) {
                    region.current = region.current.with(NEW);
                }
            }
            made
        })
    }

    /// Takes this member out of the record, before it ends.
    fn leave(&self) {
        self.locked(|record| {
            if let Some(region) = record {
                region.holders = region.holders.without(self.me);
                region.current = region.current.without(self.me);
            }
            self.world.threads[self.me].store(0, Ordering::Relaxed);
        });
    }
}

fn frame_of(region: &Region) -> Frame {
    if region.is_copy { Frame::Copy } else { Frame::Own }
}

/// Starts a member's thread, which leaves in the end.
fn run(member: Member, f: impl FnOnce(&Member) + 'static) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        f(&member);
        member.leave();
    })
}

/// A member uses the page, and makes another one that does, while a third unmaps it.
#[test]
fn no_member_reaches_memory_that_was_unmapped() {
    explore(2, || {
        let world = World::new(BOTH);
        let other = Member::new(&world, 1, BOTH);
        let other = thread::spawn(move || {
            let made = other.make(|made| _ = made.read());
            other.read();
            other.leave();
            made.join().unwrap();
        });
        let own = Member::new(&world, 0, BOTH);
        own.unmap();
        assert!(!own.read());
        own.leave();
        other.join().unwrap();
    });
}

/// Two members unmap the page, and one of them maps another one there.
#[test]
fn one_member_asks_at_a_time() {
    explore(3, || {
        let world = World::new(BOTH);
        let other = run(Member::new(&world, 1, BOTH), |other| {
            other.unmap();
            other.locked(|record| {
                assert!(record.is_none());
                other.take(record.insert(region(BOTH)));
                other.announce();
            });
            other.access(READ, |cell| assert_eq!(cell.get(), 0));
        });
        let own = Member::new(&world, 0, BOTH);
        own.unmap();
        own.read();
        own.leave();
        other.join().unwrap();
    });
}

/// No member writes after a right was taken away, and none reads what another writes then.
#[test]
fn no_member_writes_without_the_right() {
    explore(3, || {
        let world = World::new(BOTH);
        let other = run(Member::new(&world, 1, BOTH), |other| {
            other.access(WRITE, |cell| cell.set(1));
            other.access(WRITE, |cell| cell.set(2));
        });
        let own = Member::new(&world, 0, BOTH);
        own.protect(READ);
        let seen = world.frame(Frame::Own).get();
        own.step();
        assert_eq!(world.frame(Frame::Own).get(), seen);
        own.leave();
        other.join().unwrap();
    });
}

/// A new right is no request. A member that was passed the page has it mapped before a call.
#[test]
fn a_new_right_disturbs_no_member() {
    explore(3, || {
        let world = World::new(READ);
        let other = run(Member::new(&world, 1, READ), |other| {
            other.sync();
            if other.world.passed.load(Ordering::Acquire) != 0 {
                other.sync();
                assert_eq!(other.mapped.get(), Some((Frame::Own, BOTH)), "a call cannot write to the page");
                other.access(WRITE, |cell| cell.set(1));
            }
        });
        let own = Member::new(&world, 0, READ);
        own.protect(BOTH);
        own.access(WRITE, |cell| cell.set(2));
        assert_eq!(world.sent.load(Ordering::Relaxed), 0);
        world.passed.store(1, Ordering::Release);
        own.leave();
        other.join().unwrap();
    });
}

/// A part of a file becomes a copy, because members write to it. None writes to the copy while another one
/// still reads the file.
#[test]
fn no_member_writes_to_a_copy_before_all_have_it() {
    explore(2, || {
        let world = World::new(BOTH);
        let file = Region { is_private: true, holders: Members::only(0).with(1).with(2), ..region(BOTH) };
        world.record.set(Some(file));
        world.threads[2].store(3, Ordering::Relaxed);
        let writing = run(Member::new(&world, 1, READ), |member| {
            member.access(WRITE, |cell| cell.set(1));
            member.world.passed.store(1, Ordering::Release);
        });
        let reading = run(Member::new(&world, 2, READ), |member| {
            if member.world.passed.load(Ordering::Acquire) != 0 {
                member.access(READ, |cell| assert_eq!(cell.get(), 1, "a member still has the file mapped"));
            }
        });
        let own = Member::new(&world, 0, READ);
        own.access(WRITE, |_| {});
        own.leave();
        writing.join().unwrap();
        reading.join().unwrap();
    });
}

/// While others are stopped, the memory is as one of them left it, and they answer requests.
#[test]
fn members_that_are_stopped_write_nothing_and_answer() {
    explore(3, || {
        let world = World::new(BOTH);
        let other = run(Member::new(&world, 1, BOTH), |other| {
            other.read();
            other.access(WRITE, |cell| cell.set(1));
            other.access(WRITE, |cell| cell.set(2));
        });
        let own = Member::new(&world, 0, BOTH);
        own.locked(|record| {
            let value = requests::begin_stop(&world.stops);
            let others = Members::only(1);
            own.request(record, others, Request::Stop(value));
            let seen = world.frame(Frame::Own).get();
            let region = record.as_mut().unwrap();
            region.rights = READ;
            own.mapped.set(Some((Frame::Own, READ)));
            let holders = region.holders;
            own.request(record, holders, Request::Protect);
            assert_eq!(world.frame(Frame::Own).replace(seen), seen);
            requests::end_stop(&world.stops, &own);
        });
        own.leave();
        other.join().unwrap();
    });
}

/// The lock is taken by one member at a time, also by one that gives up after a while.
#[test]
fn the_lock_is_one_members() {
    explore(3, || {
        let world = World::new(BOTH);
        let other = Member::new(&world, 1, BOTH);
        let other = thread::spawn(move || {
            if requests::take_lock_within(&other.world.lock, 2, &other) {
                other.world.record.set(None);
                requests::release_lock(&other.world.lock, &other);
            }
        });
        let own = Member::new(&world, 0, BOTH);
        own.locked(|_| {});
        other.join().unwrap();
    });
}
