//! Any sequence of operations by any cores does what the model does; after each one, every translation that any core
//! could use is judged.

use proptest::prelude::*;
use proptest::sample::select;
use vm::{Event, PageNum, PageRange, Placement, Prot, Tables};
use vm_testkit::{Model, Setup, WORDS, World};

const CORES: usize = 5;

/// One step of one core.
#[derive(Clone, Debug)]
enum Step {
    Map(Place, u64, Prot),
    Unmap(Target),
    Protect(Target, Prot),
    Discard(Target),
    Load(u64, usize),
    Store(u64, usize, u64),
    Tick,
    Idle(bool),
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Anywhere,
    Hint(u64),
    Fixed(u64),
    NoReplace(u64),
    Below(u64),
}

/// Pages, counted from the start of user space: may be empty, may leave it.
#[derive(Clone, Copy, Debug)]
struct Target {
    offset: u64,
    pages: u64,
}

/// Offsets into user space: mostly a few pages at the seams of nodes, so that operations meet.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (select(vec![0, 500, 1020, 2040]), 0..16_u64).prop_map(|(base, near)| base + near),
        1 => 0..2100_u64,
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![12 => 1..12_u64, 2 => 1..1500_u64, 1 => select(vec![0, 512, 1024])]
}

fn target() -> impl Strategy<Value = Target> {
    (offset(), length()).prop_map(|(offset, pages)| Target { offset, pages })
}

fn prot() -> impl Strategy<Value = Prot> {
    prop_oneof![3 => Just(Prot::READ | Prot::WRITE), 2 => (0..8_u64).prop_map(Prot::from_bits)]
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        Just(Place::Anywhere),
        offset().prop_map(Place::Hint),
        offset().prop_map(Place::Fixed),
        offset().prop_map(Place::NoReplace),
        offset().prop_map(Place::Below),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (place(), length(), prot()).prop_map(|(place, pages, prot)| Step::Map(place, pages, prot)),
        3 => target().prop_map(Step::Unmap),
        3 => (target(), prot()).prop_map(|(target, prot)| Step::Protect(target, prot)),
        2 => target().prop_map(Step::Discard),
        6 => (offset(), 0..WORDS).prop_map(|(at, word)| Step::Load(at, word)),
        8 => (offset(), 0..WORDS, 1..u64::MAX).prop_map(|(at, word, value)| Step::Store(at, word, value)),
        2 => Just(Step::Tick),
        1 => any::<bool>().prop_map(Step::Idle),
    ]
}

/// The space, the model, and where user space starts.
struct Pair {
    world: World,
    model: Model,
    base: u64,
}

impl Pair {
    fn new(user: PageRange, tables: Tables) -> Self {
        let world = World::radix(Setup { cores: CORES, frames: 4096, user }, tables);
        Self { world, model: Model::new(user), base: user.start().get() }
    }

    fn page(&self, offset: u64) -> PageNum {
        PageNum::new(self.base + offset)
    }

    fn range(&self, target: Target) -> PageRange {
        PageRange::new(self.page(target.offset), target.pages).unwrap()
    }

    fn place(&self, place: Place) -> Placement {
        match place {
            Place::Anywhere => Placement::Anywhere { hint: None },
            Place::Hint(at) => Placement::Anywhere { hint: Some(self.page(at)) },
            Place::Fixed(at) => Placement::Fixed(self.page(at)),
            Place::NoReplace(at) => Placement::FixedNoReplace(self.page(at)),
            Place::Below(at) => Placement::Below(self.page(at)),
        }
    }

    fn step(&mut self, core: usize, step: &Step) {
        let machine = self.world.machine.clone();
        machine.on(core, |pin| self.step_on(pin, core, step));
        self.world.audit(&self.model);
    }

    fn step_on(&mut self, pin: &percore::Pinned, core: usize, step: &Step) {
        let space = &self.world.space;
        match *step {
            Step::Map(place, pages, prot) => {
                let place = self.place(place);
                let answer = space.map(pin, place, pages, prot);
                self.model.map(place, pages, prot, answer);
            }
            Step::Unmap(target) => {
                let range = self.range(target);
                assert_eq!(space.unmap(pin, range), self.model.unmap(range));
            }
            Step::Protect(target, prot) => {
                let range = self.range(target);
                assert_eq!(space.protect(pin, range, prot), self.model.protect(range, prot));
            }
            Step::Discard(target) => {
                let range = self.range(target);
                assert_eq!(space.discard(pin, range), self.model.discard(range));
                assert_eq!(space.mapped(pin, range), self.model.is_mapped(range));
            }
            Step::Load(at, word) => {
                let page = self.page(at);
                assert_eq!(self.world.load(pin, page, word), self.model.load(page, word));
            }
            Step::Store(at, word, value) => {
                let page = self.page(at);
                assert_eq!(self.world.store(pin, page, word, value), self.model.store(page, word, value));
            }
            Step::Tick => _ = self.world.machine.refcache.tick(pin),
            Step::Idle(idle) => self.world.machine.set_idle(core, idle),
        }
    }

    /// At the end nothing is lost, and no core was ever shot at that could not hold a translation.
    fn finish(self) {
        let faults = self.world.count(Event::AllocFault) + self.world.count(Event::FillFault);
        let shot = self.world.count(Event::IpiTarget) + self.world.count(Event::AvoidedIpi);
        assert!(self.world.is_shared() || shot <= faults, "{shot} targets for {faults} filled translations");
        assert!(self.world.frames().used() <= self.model.len());
        self.world.finish();
    }
}

fn run(user: PageRange, tables: Tables, steps: &[(usize, Step)]) {
    let mut pair = Pair::new(user, tables);
    steps.iter().for_each(|(core, step)| pair.step(*core, step));
    pair.finish();
}

/// Low addresses, the middle, and the very top of what a key can say; all cut nodes in two.
fn user() -> impl Strategy<Value = PageRange> {
    let starts = vec![16, (1 << 18) - 1000, (1 << 36) - 2100];
    select(starts).prop_map(|start| PageRange::new(PageNum::new(start), 2100).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn per_core_tables_do_what_the_model_does(
        user in user(), steps in prop::collection::vec((0..CORES, step()), 1..120),
    ) {
        run(user, Tables::PerCore, &steps);
    }

    #[test]
    fn a_shared_table_does_what_the_model_does(
        user in user(), steps in prop::collection::vec((0..CORES, step()), 1..120),
    ) {
        run(user, Tables::Shared, &steps);
    }
}
