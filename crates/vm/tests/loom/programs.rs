//! Two programs, parent and child, in radix spaces, whose page the clock visits.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use loom::thread;
use percore::Pinned;
use refcache::Refcache;
use vm::{Access, AddressSpace, FrameNum, Mapping, PageNum, Placement, Prot, RadixSpace, Tables};

use crate::check;
use crate::domains::{Domains, as_core, layout};
use crate::machine::Machine;
use crate::memory::Memory;

type Space = RadixSpace<Arc<Refcache>, Machine, Memory>;

pub const PAGE: PageNum = PageNum::new(0);

/// A program with one page.
pub struct Program {
    /// A failing model forgets it: its drop would run outside of the model.
    pub space: ManuallyDrop<Space>,
    machine: Machine,
    memory: Memory,
}

pub struct World {
    pub parent: Program,
    pub child: Program,
    pub memory: Memory,
    domains: Domains,
}

impl Program {
    fn new(pin: &Pinned, tables: Tables, domains: &Domains, memory: &Memory) -> Self {
        let (machine, memory) = (Machine::new(tables), memory.clone());
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
            let walk = || self.space.walk(pin, PAGE);
            if let Some(outcome) = self.machine.access(pin, PAGE, access, walk, &act) {
                return outcome;
            }
            self.space.fault(pin, PAGE.address().unwrap(), access).unwrap();
        }
    }

    pub fn write(&self, pin: &Pinned, byte: u8) {
        self.touch(pin, Access::Write, |frame| self.memory.write(frame, byte));
    }

    pub fn read(&self, pin: &Pinned) -> u8 {
        self.touch(pin, Access::Read, |frame| self.memory.read(frame))
    }

    /// Runs the clock over the space `times` times.
    pub fn visit(&self, pin: &Pinned, times: usize) {
        (0..times).for_each(|_| _ = self.space.page_out(pin, PAGE));
    }

    pub fn fork(&self, pin: &Pinned, child: &Self) {
        self.space.fork(pin, &*child.space, &mut |_| unreachable!("nothing shows a file")).unwrap();
    }

    pub fn exit(&self, pin: &Pinned) {
        self.space.destroy(pin);
    }

    /// Checks that no core translates a frame that the page does not have, or has more rights than the page.
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
    /// Returns a world in which only the parent's page is mapped, and is untouched.
    fn new(tables: Tables) -> Self {
        let (memory, domains) = (Memory::default(), Domains::new());
        let program = |pin: &Pinned| Program::new(pin, tables, &domains, &memory);
        let (parent, child) = as_core(0, |pin| (program(pin), program(pin)));
        as_core(0, |pin| parent.map(pin));
        Self { parent, child, memory, domains }
    }

    /// Ends the world, without cores: all memory comes back.
    fn end(self) {
        let Self { parent, child, memory, domains } = self;
        as_core(0, |_| parent.end());
        as_core(0, |_| child.end());
        assert!(memory.is_unused(), "contents were lost");
        domains.assert_empty();
    }
}

/// The operation of one core.
pub type Act = fn(&World, &Pinned);

/// Explores `one` on core 0 against `other` on core 1, on which `before` was done too. `after` it the outcome
/// is judged. With a table for each core, and with a leaf that is core 1's owner.
pub fn race(before: Act, one: Act, other: Act, after: Act) {
    for tables in [Tables::PerCore, Tables::Adaptive] {
        check(2, move || {
            let world = Arc::new(World::new(tables));
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
}
