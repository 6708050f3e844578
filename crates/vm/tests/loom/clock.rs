//! Models of `compressed.rs`: the clock goes round a space while others use its page, take it away, or have it since a fork.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use loom::thread;
use percore::Pinned;
use refcache::Refcache;
use vm::{Access, AddressSpace, FrameNum, Mapping, PageNum, PageRange, Placement, Prot, RadixSpace, Tables};

use crate::check;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::world::{Domains, as_core, layout};

type Space = RadixSpace<Arc<Refcache>, Machine, Memory>;

const PAGE: PageNum = PageNum::new(0);

/// A program with one page.
struct Program {
    /// A failing model forgets it: its drop would run outside of the model.
    space: ManuallyDrop<Space>,
    machine: Machine,
    memory: Memory,
}

struct World {
    parent: Program,
    child: Program,
    memory: Memory,
    domains: Domains,
}

impl Program {
    fn new(pin: &Pinned, domains: &Domains, memory: &Memory) -> Self {
        let (machine, memory) = (Machine::new(Tables::PerCore), memory.clone());
        let (refcache, nodes) = (domains.refcache.clone(), domains.nodes.clone());
        let space =
            Space::with_counters(pin, refcache, nodes, machine.clone(), memory.clone(), layout()).unwrap();
        Self { space: ManuallyDrop::new(space), machine, memory }
    }

    fn map(&self, pin: &Pinned) {
        let mapping = Mapping::anonymous(Prot::READ | Prot::WRITE);
        self.space.map(pin, Placement::Fixed(PAGE), 1, mapping).unwrap();
    }

    /// The page is used by a translation of it, after as many faults as that takes.
    fn touch<T>(&self, pin: &Pinned, access: Access, act: impl Fn(FrameNum) -> T) -> T {
        loop {
            if let Some(outcome) = self.machine.access(pin, PAGE, access, &act) {
                return outcome;
            }
            self.space.fault(pin, PAGE.address().unwrap(), access).unwrap();
        }
    }

    fn write(&self, pin: &Pinned, byte: u8) {
        self.touch(pin, Access::Write, |frame| self.memory.write(frame, byte));
    }

    fn read(&self, pin: &Pinned) -> u8 {
        self.touch(pin, Access::Read, |frame| self.memory.read(frame))
    }

    /// The clock comes by so many times.
    fn visit(&self, pin: &Pinned, times: usize) {
        (0..times).for_each(|_| _ = self.space.page_out(pin, PAGE));
    }

    fn fork(&self, pin: &Pinned, child: &Self) {
        self.space.fork(pin, &*child.space, &mut |_| unreachable!("nothing shows a file")).unwrap();
    }

    fn exit(&self, pin: &Pinned) {
        self.space.destroy(pin);
    }

    /// Nobody translates what the page has not, or may do more than it may.
    fn judge(&self, pin: &Pinned) {
        for (frame, prot) in self.machine.cached(PAGE) {
            let access = if prot.allows(Access::Write) { Access::Write } else { Access::Read };
            let mut known = None;
            self.space.frame(pin, PAGE, access, &mut |frame| known = Some(frame));
            assert_eq!(known, Some(frame), "a translation with {prot:?} is left");
        }
    }

    fn end(self) {
        drop(ManuallyDrop::into_inner(self.space));
    }
}

impl World {
    /// Nothing is mapped but the parent's page, which has nothing.
    fn new() -> Self {
        let (memory, domains) = (Memory::default(), Domains::new());
        let program = |pin: &Pinned| Program::new(pin, &domains, &memory);
        let (parent, child) = as_core(0, |pin| (program(pin), program(pin)));
        as_core(0, |pin| parent.map(pin));
        Self { parent, child, memory, domains }
    }

    /// With everybody gone: all comes back.
    fn end(self) {
        let Self { parent, child, memory, domains } = self;
        as_core(0, |_| parent.end());
        as_core(0, |_| child.end());
        assert!(memory.is_unused(), "contents were lost");
        domains.assert_empty();
    }
}

/// What one core does.
type Act = fn(&World, &Pinned);

/// Explores `one` on core 0 against `other` on core 1, on which `before` was done too. `after` it the outcome is judged.
fn race(before: Act, one: Act, other: Act, after: Act) {
    check(2, move || {
        let world = Arc::new(World::new());
        as_core(1, |pin| before(&world, pin));
        let theirs = world.clone();
        let thread = thread::spawn(move || as_core(1, |pin| other(&theirs, pin)));
        as_core(0, |pin| one(&world, pin));
        thread.join().unwrap();
        let Some(world) = Arc::into_inner(world) else { panic!("both are done") };
        as_core(0, |pin| {
            world.parent.judge(pin);
            world.child.judge(pin);
            after(&world, pin);
        });
        world.end();
    });
}

/// Two visits of the clock against the program, which finds what it wrote whenever it looks.
fn writes_stay(before: Act) {
    race(
        before,
        |world, pin| world.parent.visit(pin, 2),
        |world, pin| {
            assert_eq!(world.parent.read(pin), 1);
            world.parent.write(pin, 2);
        },
        |world, pin| assert_eq!(world.parent.read(pin), 2),
    );
}

#[test]
fn a_page_that_is_in_use_is_written() {
    writes_stay(|world, pin| world.parent.write(pin, 1));
}

#[test]
fn an_idle_page_is_written() {
    writes_stay(|world, pin| {
        world.parent.write(pin, 1);
        world.parent.visit(pin, 1);
    });
}

#[test]
fn a_compressed_page_is_written() {
    writes_stay(|world, pin| {
        world.parent.write(pin, 1);
        world.parent.visit(pin, 2);
    });
}

/// What the clock finds is taken away at the same time.
fn goes_once(away: Act, after: Act) {
    let before: [Act; 2] = [
        |world, pin| world.parent.write(pin, 1),
        |world, pin| {
            world.parent.write(pin, 1);
            world.parent.visit(pin, 1);
        },
    ];
    for before in before {
        race(before, |world, pin| world.parent.visit(pin, 2), away, after);
    }
}

#[test]
fn a_page_is_unmapped() {
    goes_once(
        |world, pin| world.parent.space.unmap(pin, PageRange::one(PAGE)).unwrap(),
        |world, _| assert!(world.memory.is_unused()),
    );
}

#[test]
fn a_page_is_discarded() {
    goes_once(
        |world, pin| world.parent.space.discard(pin, PageRange::one(PAGE)).unwrap(),
        |world, pin| {
            assert!(world.memory.is_unused());
            assert_eq!(world.parent.read(pin), 0);
        },
    );
}

/// The parent's clock against the child, which has the parent's idle page, and what is left for each.
fn of_both(child: Act, after: Act) {
    race(
        |world, pin| {
            world.parent.write(pin, 1);
            world.parent.fork(pin, &world.child);
            assert_eq!(world.child.read(pin), 1);
        },
        |world, pin| world.parent.visit(pin, 2),
        child,
        after,
    );
}

#[test]
fn a_page_of_both_is_written_by_the_child() {
    of_both(
        |world, pin| world.child.write(pin, 2),
        |world, pin| assert_eq!((world.parent.read(pin), world.child.read(pin)), (1, 2)),
    );
}

#[test]
fn a_page_of_both_is_the_parent_s_as_the_child_ends() {
    of_both(|world, pin| world.child.exit(pin), |world, pin| assert_eq!(world.parent.read(pin), 1));
}

/// Neither clock takes away what the other program has.
#[test]
fn a_page_of_both_is_visited_by_both_clocks() {
    of_both(
        |world, pin| world.child.visit(pin, 2),
        |world, pin| assert_eq!((world.parent.read(pin), world.child.read(pin)), (1, 1)),
    );
}

/// The child inherits a page in memory, or a compressed one.
#[test]
fn a_page_is_inherited() {
    race(
        |world, pin| {
            world.parent.write(pin, 1);
            world.parent.visit(pin, 1);
        },
        |world, pin| world.parent.visit(pin, 1),
        |world, pin| {
            world.parent.fork(pin, &world.child);
            world.child.write(pin, 2);
        },
        |world, pin| assert_eq!((world.parent.read(pin), world.child.read(pin)), (1, 2)),
    );
}

/// Parent and child bring back the same bytes, each into a frame of its own.
#[test]
fn a_compressed_page_of_both_is_written_by_both() {
    race(
        |world, pin| {
            world.parent.write(pin, 1);
            world.parent.visit(pin, 2);
            world.parent.fork(pin, &world.child);
        },
        |world, pin| {
            assert_eq!(world.parent.read(pin), 1);
            world.parent.write(pin, 3);
        },
        |world, pin| {
            assert_eq!(world.child.read(pin), 1);
            world.child.write(pin, 2);
        },
        |world, pin| assert_eq!((world.parent.read(pin), world.child.read(pin)), (3, 2)),
    );
}
