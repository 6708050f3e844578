//! Host threads on one shared range, every word they see checked.
//!
//! Each page has an owner, which alone maps, unmaps, protects and discards it, and which publishes the page's
//! state before and after. Every core loads and stores everywhere. A visitor that saw the same settled state
//! before and after an access knows exactly what the access had to do: the order that POSIX asks for, checked
//! without a lock that would hide races. The stripes of the owners divide nodes and folded spans, so that
//! neighbours meet in them.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use percore::Pinned;
use vm::{Access, FaultError, HUGE_PAGES, Mapping, PageNum, PageRange, Placement, Prot, Tables, VmError};
use vm_testkit::{Design, Setup, WORDS, World};
use vm_trees::Locking;

const CORES: usize = 4;
const STRIPE: u64 = 700;
const BASE: u64 = (1 << 18) - 1000;
/// A frame for every page.
const PLENTY: usize = CORES * STRIPE as usize;
const STEPS: usize = 20_000;

/// A generator of numbers, one for each thread.
struct Dice(u64);

impl Dice {
    fn new(pin: &Pinned) -> Self {
        Self(0x5851_f42d + pin.core().index() as u64)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn prot(&mut self) -> Prot {
        [Prot::NONE, Prot::READ, Prot::WRITE, Prot::READ | Prot::WRITE][self.below(4) as usize]
    }

    /// Some pages of `within`: few as a rule, many at times.
    fn range(&mut self, within: PageRange) -> PageRange {
        let start = self.below(within.pages());
        let most = (within.pages() - start).min(if self.below(8) == 0 { STRIPE } else { 6 });
        PageRange::new(PageNum::new(within.start().get() + start), 1 + self.below(most)).unwrap()
    }
}

/// A page's state, as its owner publishes it: settled or not, mapped or not, rights, and how often that has
/// changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

impl State {
    const CHANGING: u64 = 1;
    const MAPPED: u64 = 2;

    fn mapped(self) -> bool {
        self.0 & Self::MAPPED != 0
    }

    fn prot(self) -> Prot {
        Prot::from_bits(self.0 >> 2)
    }

    fn changing(self) -> Self {
        Self((self.0 + (1 << 8)) | Self::CHANGING)
    }

    fn settled(self, prot: Option<Prot>) -> Self {
        let says = prot.map_or(0, |prot| Self::MAPPED | prot.bits() << 2);
        Self(self.0 & !0xff | says)
    }

    /// The required outcome of an access.
    fn outcome(self, access: Access) -> Result<(), FaultError> {
        match (self.mapped(), self.prot().allows(access)) {
            (false, _) => Err(FaultError::NotMapped),
            (true, false) => Err(FaultError::Denied),
            (true, true) => Ok(()),
        }
    }
}

/// The states of all pages.
struct Board(Vec<AtomicU64>);

impl Board {
    fn new() -> Self {
        Self((0..CORES as u64 * STRIPE).map(|_| AtomicU64::new(0)).collect())
    }

    fn cell(&self, page: PageNum) -> &AtomicU64 {
        &self.0[(page.get() - BASE) as usize]
    }

    fn get(&self, page: PageNum) -> State {
        State(self.cell(page).load(SeqCst))
    }

    fn set(&self, page: PageNum, state: State) {
        self.cell(page).store(state.0, SeqCst);
    }

    /// An owner changes `pages` by `change`; afterwards each is as `then` says of it and of what it was.
    fn change<R>(
        &self,
        pages: PageRange,
        change: impl FnOnce() -> R,
        then: impl Fn(PageNum, State) -> Option<Prot>,
    ) -> R {
        let before: Vec<_> = pages.iter().map(|page| self.get(page)).collect();
        pages.iter().for_each(|page| self.set(page, self.get(page).changing()));
        let result = change();
        for (page, before) in pages.iter().zip(before) {
            self.set(page, self.get(page).settled(then(page, before)));
        }
        result
    }
}

fn everything() -> PageRange {
    PageRange::new(PageNum::new(BASE), CORES as u64 * STRIPE).unwrap()
}

fn stripe(pin: &Pinned) -> PageRange {
    PageRange::new(PageNum::new(BASE + STRIPE * pin.core().index() as u64), STRIPE).unwrap()
}

/// The only value but zero that is ever stored in a word.
fn stamp(page: PageNum, word: usize) -> u64 {
    page.get() * WORDS as u64 + word as u64
}

fn kept(_page: PageNum, state: State) -> Option<Prot> {
    state.mapped().then(|| state.prot())
}

/// An owner's step.
fn change_something(world: &World, board: &Board, pin: &Pinned, dice: &mut Dice) {
    let (space, pages, prot) = (&world.space, dice.range(stripe(pin)), dice.prot());
    let hole = pages.iter().find(|&page| !board.get(page).mapped());
    let for_whole = hole.map_or(Ok(()), |_| Err(VmError::NotMapped));
    match dice.below(5) {
        0 | 1 => {
            let map =
                || space.map(pin, Placement::Fixed(pages.start()), pages.pages(), Mapping::anonymous(prot));
            assert_eq!(board.change(pages, map, |_, _| Some(prot)), Ok(pages.start()));
        }
        2 => assert_eq!(board.change(pages, || space.unmap(pin, pages), |_, _| None), Ok(())),
        3 => {
            let before_hole = |page| hole.is_none_or(|hole| page < hole);
            let after = |page, state| if before_hole(page) { Some(prot) } else { kept(page, state) };
            assert_eq!(board.change(pages, || space.protect(pin, pages, prot), after), for_whole);
        }
        _ => assert_eq!(board.change(pages, || space.discard(pin, pages), kept), for_whole),
    }
}

/// Does a step that any core may do.
fn visit(world: &World, board: &Board, pin: &Pinned, dice: &mut Dice) {
    let page = PageNum::new(BASE + dice.below(CORES as u64 * STRIPE));
    let access = if dice.below(2) == 0 { Access::Read } else { Access::Write };
    let before = board.get(page);
    let outcome = touch(world, pin, page, access);
    if before.0 & State::CHANGING == 0 && board.get(page) == before {
        assert_eq!(outcome, before.outcome(access), "{access:?} of {page:?}, rights {:?}", before.prot());
    }
}

/// The block of `page` becomes a huge page, if it can.
fn collapse(world: &World, pin: &Pinned, page: PageNum) {
    let _ = world.space.collapse(pin, PageNum::new(page.get() & !(HUGE_PAGES - 1)));
}

/// Loads or stores every word of a page; what is there must be zero or its own stamp.
fn touch(world: &World, pin: &Pinned, page: PageNum, access: Access) -> Result<(), FaultError> {
    for word in 0..WORDS {
        if access == Access::Write {
            world.store(pin, page, word, stamp(page, word))?;
        } else {
            let value = world.load(pin, page, word)?;
            assert!(value == 0 || value == stamp(page, word), "{page:?} word {word} holds {value:#x}");
        }
    }
    Ok(())
}

/// Runs `step` many times on a thread for each core; then nothing may be lost, and all pages must be counted.
fn storm(design: Design, frames: usize, step: impl Fn(&World, &Pinned, &mut Dice) + Sync) {
    let world = World::new(Setup { cores: CORES, frames, ..Setup::new() }, design);
    world.frames().offer_huge(true);
    world.machine.on_threads(CORES, |core| {
        let mut dice = Dice::new(core.pin());
        for _ in 0..STEPS {
            core.serve();
            step(&world, core.pin(), &mut dice);
            world.machine.tick(core.pin());
        }
    });
    world.machine.on(0, |pin| world.audit_usage(pin));
    world.finish();
}

fn owners_and_visitors(design: Design) {
    let board = Board::new();
    storm(design, PLENTY, |world, pin, dice| match dice.below(4) {
        0 => change_something(world, &board, pin, dice),
        1 if dice.below(8) == 0 => collapse(world, pin, stripe(pin).start()),
        _ => visit(world, &board, pin, dice),
    });
}

/// Every core changes everything at once. The winner of a race is open. The possible values of words, and
/// that nothing is lost, are not.
fn free_for_all(design: Design, frames: usize) {
    storm(design, frames, |world, pin, dice| {
        let (pages, prot) = (dice.range(everything()), dice.prot());
        let space = &world.space;
        match dice.below(13) {
            0 => _ = space.map(pin, Placement::Fixed(pages.start()), pages.pages(), Mapping::anonymous(prot)),
            1 => {
                _ = space.map(
                    pin,
                    Placement::Anywhere { hint: Some(pages.start()) },
                    pages.pages(),
                    Mapping::anonymous(prot),
                )
            }
            2 => _ = space.unmap(pin, pages),
            3 => _ = space.protect(pin, pages, prot),
            4 => _ = space.discard(pin, pages),
            12 => collapse(world, pin, pages.start()),
            5..8 => _ = touch(world, pin, pages.start(), Access::Write),
            _ => _ = touch(world, pin, pages.start(), Access::Read),
        }
    });
}

#[test]
fn owners_and_visitors_with_tables_per_core() {
    owners_and_visitors(Design::Radix(Tables::PerCore));
}

#[test]
fn owners_and_visitors_with_one_table() {
    owners_and_visitors(Design::Radix(Tables::Shared));
}

#[test]
fn owners_and_visitors_with_trees() {
    Locking::ALL.into_iter().for_each(|locking| owners_and_visitors(Design::Tree(locking)));
}

#[test]
fn owners_and_visitors_with_adaptive_tables() {
    owners_and_visitors(Design::Radix(Tables::Adaptive));
}

#[test]
fn free_for_all_with_adaptive_tables() {
    free_for_all(Design::Radix(Tables::Adaptive), PLENTY);
}

#[test]
fn free_for_all_with_tables_per_core() {
    free_for_all(Design::Radix(Tables::PerCore), PLENTY);
}

#[test]
fn free_for_all_with_one_table() {
    free_for_all(Design::Radix(Tables::Shared), PLENTY);
}

#[test]
fn free_for_all_with_trees() {
    Locking::ALL.into_iter().for_each(|locking| free_for_all(Design::Tree(locking), PLENTY));
}

#[test]
fn free_for_all_with_little_memory() {
    Design::ALL.into_iter().for_each(|design| free_for_all(design, 30));
}
