//! Threads map, open and unmap one reservation as the pool does (`runtime/pool/reservations.rs`), while
//! others revoke it or make it the kernel's.

use pathreads::PAGE;
use pathreads::reservation::{Owner, Part, Reservation, Rest, Seen, State};
use sync::atomic::Ordering;
use sync::loom::cell::Cell;
use sync::loom::sync::Arc;
use sync::loom::thread;

use crate::explore;

const PART: Part = Part { start: 0, end: PAGE };
const ME: Owner = Owner { generation: 0, thread: 0 };

/// A reservation with memory for one page of it.
struct World {
    one: Reservation,
    content: Cell<u32>,
    /// Whether the page is readable and writable.
    is_open: Cell<bool>,
    /// Whether the addresses behind it are still reserved.
    has_rest: Cell<bool>,
}

impl World {
    /// Makes one in a state in which no thread changes it.
    fn new(state: State, part: Part) -> Arc<Self> {
        let one = Reservation::new();
        one.length.store(PAGE, Ordering::Relaxed);
        one.set_part(part);
        one.change(one.see(), state, ME).unwrap();
        let is_open = Cell::new(part == PART);
        Arc::new(World { one, content: Cell::new(0), is_open, has_rest: Cell::new(true) })
    }

    /// Runs `f` in a state that others wait for. Returns whether it was as it was seen.
    fn while_others_wait(&self, seen: Seen, state: State, f: impl FnOnce() -> State) -> bool {
        let Some(mine) = self.one.change(seen, state, ME) else { return false };
        let next = f();
        assert!(self.one.change(mine, next, ME).is_some(), "others have waited");
        true
    }

    /// Maps it, if it is kept.
    fn map(&self) -> bool {
        let seen = self.one.see();
        seen.state() == State::Kept && self.one.change(seen, State::Reserved, ME).is_some()
    }

    /// Opens the page. Returns whether that was not left to the kernel.
    fn open(&self) -> bool {
        loop {
            let (seen, old) = (self.one.see(), self.one.part());
            match seen.state() {
                State::Reserved if old == PART => {
                    if self.one.change(seen, State::Open, ME).is_some() {
                        return true;
                    }
                }
                State::Reserved => {
                    if let Some(mine) = self.one.change(seen, State::Taken, ME) {
                        self.is_open.set(true);
                        self.one.set_part(PART);
                        self.one.change(mine, State::Open, ME);
                        return true;
                    }
                }
                state if state.after().is_some() => thread::yield_now(),
                _ => return false,
            }
        }
    }

    /// Accesses the page, which the program has opened.
    fn write(&self, value: u32) {
        assert!(self.is_open.get(), "an open page is not accessible");
        assert_eq!(self.content.replace(value), 0, "a new page is not zero");
    }

    /// Unmaps it. Returns whether the pool keeps it.
    fn unmap(&self) -> bool {
        loop {
            let seen = self.one.see();
            match seen.state() {
                State::Reserved | State::Open | State::Kernels => {
                    if let Some(mine) = self.one.change(seen, State::Taken, ME) {
                        return self.keep(mine, seen.state());
                    }
                }
                state if state.after().is_some() => thread::yield_now(),
                _ => return false,
            }
        }
    }

    fn keep(&self, mine: Seen, from: State) -> bool {
        if from == State::Kernels || self.one.is_hidden.load(Ordering::Relaxed) {
            self.close_anew();
            self.one.is_hidden.store(false, Ordering::Relaxed);
        } else if self.one.part() == PART {
            self.content.set(0);
        }
        self.one.change(mine, State::Kept, ME).is_some()
    }

    /// Maps all anew, without rights and zero.
    fn close_anew(&self) {
        self.content.set(0);
        self.is_open.set(false);
        self.one.set_part(Part::default());
    }

    fn revoke(&self) {
        let (seen, part) = (self.one.see(), self.one.part());
        let Some(revoking) = seen.state().revoking().filter(|_| part == PART) else { return };
        self.while_others_wait(seen, revoking, || {
            assert_eq!(self.one.part(), part, "the part that was read before is another's");
            if seen.state() == State::Kept {
                self.close_anew();
            } else {
                self.one.is_hidden.store(true, Ordering::Relaxed);
                self.is_open.set(false);
                self.one.set_part(Part::default());
            }
            seen.state()
        });
    }

    /// Makes it the kernel's, and the addresses behind it. The program may map others there then.
    fn settle(&self) {
        loop {
            let seen = self.one.see();
            let is_done = match seen.state() {
                State::Kernels => true,
                State::Kept => self.while_others_wait(seen, State::Changing, || {
                    self.close_anew();
                    State::Kernels
                }),
                State::Reserved if self.one.part() == PART => {
                    self.revoke();
                    false
                }
                State::Unused | State::Taken | State::Reserved | State::Open => {
                    self.one.change(seen, State::Kernels, ME).is_some()
                }
                _ => {
                    thread::yield_now();
                    false
                }
            };
            if is_done {
                break;
            }
        }
        self.unmap_rest();
    }

    fn unmap_rest(&self) {
        if self.one.rest() == Rest::Kernels {
            return;
        }
        if self.one.begin_rest() {
            self.has_rest.set(false);
            self.one.end_rest();
        }
        while self.one.rest() == Rest::Ending {
            thread::yield_now();
        }
    }
}

/// Starts a thread.
fn run<R: 'static>(world: &Arc<World>, f: impl FnOnce(&World) -> R + 'static) -> thread::JoinHandle<R> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

/// Maps, opens, uses and unmaps it, if it is free.
fn round(world: &World) {
    if world.map() {
        assert!(world.open());
        world.write(1);
        assert!(world.unmap());
    }
}

/// It is handed from one thread to another with its page open, or revoked by a third.
#[test]
fn a_kept_one_is_one_threads_and_zero() {
    explore(3, || {
        let world = World::new(State::Kept, PART);
        let threads = [run(&world, round), run(&world, round)];
        world.revoke();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(world.map() && world.open());
        world.write(2);
    });
}

/// The same without an open page, and two that revoke.
#[test]
fn a_closed_one_is_one_threads_and_zero() {
    explore(2, || {
        let world = World::new(State::Kept, Part::default());
        let threads = [run(&world, round), run(&world, World::revoke)];
        world.revoke();
        round(&world);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// A call names a kept one while others map it: it is one thread's, or the kernel's without memory.
#[test]
fn a_kept_one_that_is_named_goes() {
    explore(2, || {
        let world = World::new(State::Kept, PART);
        let mapping = run(&world, |world| {
            let is_mapped = world.map();
            // Another call of the program has named the memory. From then on it is the kernel's.
            if is_mapped && world.open() && world.one.see().state() == State::Open {
                assert!(world.is_open.get());
            }
            is_mapped
        });
        let revoking = run(&world, World::revoke);
        world.settle();
        let is_mapped = mapping.join().unwrap();
        revoking.join().unwrap();
        assert_eq!(world.one.see().state(), State::Kernels);
        assert!(is_mapped || world.one.part() == Part::default());
    });
}

/// A call names the memory while another thread opens it. The kernel has it, whatever its owner does. When
/// all of it is unmapped, the pool has it again.
#[test]
fn one_that_is_named_while_it_is_taken_is_the_kernels() {
    explore(3, || {
        let world = World::new(State::Reserved, Part::default());
        let opening = run(&world, |world| _ = world.open());
        world.settle();
        opening.join().unwrap();
        assert_eq!(world.one.see().state(), State::Kernels);
        assert!(world.unmap() && world.map() && world.open());
        world.write(1);
    });
}

/// Two calls name the memory. When either goes on, the addresses behind are no longer reserved: the program
/// may map others there, which the other call must not unmap.
#[test]
fn the_rest_is_unmapped_before_either_call() {
    explore(3, || {
        let world = World::new(State::Open, PART);
        let settle = |world: &World| {
            world.settle();
            assert!(!world.has_rest.get());
        };
        let other = run(&world, settle);
        settle(&world);
        other.join().unwrap();
    });
}

/// The program writes to a page that it has mapped without rights, which it still can, and another thread
/// revokes the page. The next one that has it finds zeroes.
#[test]
fn a_page_that_was_written_to_and_revoked_is_zero() {
    explore(3, || {
        let world = World::new(State::Kept, PART);
        let other = run(&world, World::revoke);
        if world.map() {
            if world.one.part() == PART {
                world.content.set(1);
            }
            assert!(world.unmap());
        }
        other.join().unwrap();
        assert!(world.map() && world.open());
        world.write(2);
    });
}

/// A thread begins one, and another finds it in the list as soon as it is known: the length and the flags are
/// those of the state that is seen.
#[test]
fn a_state_shows_what_its_owner_wrote() {
    explore(3, || {
        let world = World::new(State::Taken, Part::default());
        let mine = world.one.see();
        let other = run(&world, |world| {
            let seen = world.one.see();
            if seen.state() == State::Kept {
                assert_eq!((world.one.part(), world.one.copied()), (PART, PART));
                assert_eq!(world.one.flags.load(Ordering::Relaxed), 7);
            }
        });
        world.one.flags.store(7, Ordering::Relaxed);
        world.one.set_part(PART);
        world.one.set_copied(PART);
        assert!(world.one.change(mine, State::Kept, ME).is_some());
        other.join().unwrap();
    });
}
