//! Which cores translate pages through a leaf itself, instead of a table page of their own.
//!
//! With [`Tables::Adaptive`](crate::Tables) each core has its own upper tables. Where they come to a leaf's 512 pages they
//! lead either to the leaf's frame (the core is *linked*), whose words are page-table entries, or to a page of the core's
//! own (*private*), or nowhere.
//!
//! ```text
//!   core 0's upper table ──┐                            the leaf's words
//!   core 2's upper table ──┴─(linked)──▶  [ P frame ][ P frame ][ frame ][ P frame, guest ] ...
//!   core 1's upper table ────(private)─▶  [         ][         ][ frame ][ frame          ] ...
//! ```
//!
//! # The states of a leaf
//!
//! | stage | who may link | and what it changes to |
//! |---|---|---|
//! | nobody's | the next core that faults | it becomes its home: CAS |
//! | home `h` | `h` | many guests, or many fills by several: shared. `h` gives up its tables: nobody's |
//! | shared | everybody | all of it is unmapped or dropped at once, or becomes a huge page: nobody's. One core alone takes pages of it back for some time: leaving |
//! | leaving, home `h` | `h` | the others have unlinked: home `h`, see `demotion.rs` |
//!
//! Who may not link uses a page of its own, and is a *guest* of the leaf if it shares pages with its home: it gets a seat,
//! by CAS, and keeps it until the leaf is nobody's. So neighbours, who use different pages of a leaf, stay apart; two who
//! share a page stay two; and in a leaf that was demoted a few pages that all use do not make all of it everybody's, unless they are a
//! file's.
//!
//! # The states of a page with a frame
//!
//! | the page's word | who may translate it |
//! |---|---|
//! | `P` = 0, tracker | the cores of the tracker, in their own pages (or once, if they have linked since) |
//! | `P` = 1 | every linked core |
//! | `P` = 1, guests | every linked core, and the guest in that seat, or all guests, in their own pages |
//!
//! # Invariants
//!
//! 1. A core's upper table leads to a leaf only while the core is in the leaf's set, and has been since before. (A core that
//!    does not run the space is not interrupted: it unlinks before it does again, see `presence.rs`.)
//! 2. The set grows under the lock of some slot of the leaf, by the core that joins. It shrinks by a core that has given up
//!    its tables or has unlinked, under the locks of all 512 slots after each core of it has unlinked (`reset`), and by the home of
//!    a leaving leaf, after those that go have unlinked.
//! 3. Each core in the set holds the leaf ([`radixmap::Leaf::hold`]): no leaf dies while an upper table leads to it.
//! 4. Whoever is in a page's tracker, or its guest, and links, has lost its own page before it returns to the
//!    program; until then the set, which it is in, covers it.
//! 5. The upper entry of a core in the set leads to the leaf or nowhere, never to a page of its own. So who is in the set
//!    fills by storing the page's word alone.
//! 6. Hardware only reads the words: they say "accessed" and "dirty" from the start. So the holder of a slot stores its
//!    word, and nothing is lost.
//!
//! # Orders
//!
//! ```text
//!   take back                                 link
//!   ─────────                                 ────
//!   T1  the page's word: P := 0               L1  the set ∪= me
//!   T2  fence                                 L2  fence
//!   T3  read the set; interrupt it            L3  upper entry := the leaf;  the program walks
//! ```
//! If T3 misses L1, then T2 came before L2, and every walk through L3 finds `P` = 0. The same for rights that are lowered,
//! and for `reset`, which nobody can link meanwhile. Other loads and stores here are Relaxed: the slots' locks order them, or a CAS
//! on the stage decides.

use percore::{CoreId, CoreSet, MAX_CORES};
use sync::atomic::{AtomicU64, Ordering, fence};

use crate::seats::{Guests, Seats};
use crate::stage::Stage;

const WORDS: usize = MAX_CORES / 64;

/// What a leaf knows of the cores that use it. See the module.
#[derive(Clone, Copy, Debug)]
pub struct Linkage<'g> {
    stage: &'g AtomicU64,
    seats: Seats<'g>,
    linked: &'g [AtomicU64; WORDS],
}

impl<'g> Linkage<'g> {
    /// The linkage that is kept in these words, 0 at first.
    #[inline(always)]
    pub fn new([stage, low, high]: &'g [AtomicU64; 3], linked: &'g [AtomicU64; WORDS]) -> Self {
        Self { stage, seats: Seats::new([low, high]), linked }
    }

    /// Whether `core` is linked. For the core itself, with a slot of the leaf locked. Acquire, partner of the Release in `remove`: who
    /// has been taken out finds what it missed (`presence.rs`).
    #[inline(always)]
    pub fn is_linked(self, core: CoreId) -> bool {
        let (word, bit) = self.bit(core);
        word.load(Ordering::Acquire) & bit != 0
    }

    /// Whether the leaf is another core's home, and `core`, which is not linked, may not link.
    #[inline(always)]
    pub fn is_anothers(self, core: CoreId) -> bool {
        self.stage().is_anothers(core)
    }

    /// Whether `core`, which is not linked, may link: the leaf is shared, or becomes its home.
    pub fn welcomes(self, core: CoreId) -> bool {
        match self.change(|stage| stage.claimed(core)) {
            Ok(_) => true,
            Err(stage) => stage.admits(core),
        }
    }

    /// A page that others have is filled once more, in a leaf that more than two use: counted as `weight` fills, which are few.
    /// `others`, so many, have the page, or are guests of the leaf as well and its home. Whether that makes the leaf shared.
    pub fn crowd(self, weight: u64, others: usize) -> bool {
        match self.change(|stage| stage.crowded(weight, others)) {
            Ok(stage) | Err(stage) => stage.is_shared(),
        }
    }

    /// How many guests there are.
    pub fn guests(self) -> usize {
        self.seats.taken()
    }

    /// The seat of `core`, which becomes a guest if there is one left.
    pub fn admit(self, core: CoreId) -> Option<Guests> {
        self.seats.admit(core)
    }

    /// Before `core` has its upper table lead to the leaf. Whether it was not in the set: then it must hold the leaf.
    pub fn link(self, core: CoreId) -> bool {
        if self.is_linked(core) {
            return false;
        }
        let (word, bit) = self.bit(core);
        word.fetch_or(bit, Ordering::Relaxed); // L1
        fence(Ordering::SeqCst); // L2, partner of T2
        true
    }

    /// After `core` had its upper table lead to the leaf, and before it goes on: whether it may stay linked. If not, the leaf has
    /// become another's home meanwhile (`demotion.rs`), perhaps for a moment: it must unlink and [`leave`](Self::leave).
    pub fn stays(self, core: CoreId) -> bool {
        match self.change(|stage| stage.joined(core)) {
            Ok(stage) | Err(stage) => stage.admits(core) && self.is_linked(core), // L4
        }
    }

    /// `core` takes pages back from others. Whether it is the leaf's home from now on, and has to send them away (D1).
    pub fn note_invalidation(self, core: CoreId) -> bool {
        self.is_linked(core)
            && self.change(|stage| stage.note_invalidation(core)).is_ok_and(Stage::is_leaving)
    }

    /// Who is to go, if that is so (D3).
    pub fn others(self, home: CoreId) -> CoreSet {
        fence(Ordering::SeqCst); // D2, partner of L2
        let mut others = self.linked();
        others.remove(home);
        others
    }

    /// All of `others` have unlinked (D5). How many hold the leaf no more.
    pub fn emptied(self, others: &CoreSet) -> usize {
        let gone = others.iter().filter(|&core| self.remove(core)).count();
        let _ = self.change(|stage| Some(stage.emptied()));
        gone
    }

    /// After `core`, which calls, has given up its tables, or unlinked. Whether it was in the set: then it holds the leaf no more.
    pub fn leave(self, core: CoreId) -> bool {
        let _ = self.change(|stage| stage.left(core));
        self.remove(core)
    }

    /// Takes `core` out of the set. Whether it was there.
    fn remove(self, core: CoreId) -> bool {
        let (word, bit) = self.bit(core);
        // Release, partner of the Acquire in `linked`: the core has unlinked before.
        word.fetch_and(!bit, Ordering::Release) & bit != 0
    }

    /// The cores that may translate a page through the leaf, or as one of its `guests`. After the page's word was stored
    /// without `P` (T1).
    #[inline]
    pub fn users(self, guests: Guests) -> CoreSet {
        fence(Ordering::SeqCst); // T2, partner of L2
        let mut users = self.linked();
        if guests != Guests::NONE {
            self.seats.add_to(&mut users, guests);
        }
        users
    }

    /// The cores in the set: all that may be, if called after a fence. T3. Acquire, partner of the Release in `leave`.
    pub fn linked(self) -> CoreSet {
        CoreSet::from_words(self.linked.each_ref().map(|word| word.load(Ordering::Acquire)))
    }

    /// All slots are locked and every core in the set has unlinked: nobody's again. How many cores hold the leaf no more.
    pub fn reset(self) -> usize {
        let gone = self.linked.iter().map(|word| word.swap(0, Ordering::Relaxed).count_ones() as usize).sum();
        self.seats.reset();
        self.stage.store(0, Ordering::Relaxed);
        gone
    }

    #[inline(always)]
    fn stage(self) -> Stage {
        Stage::from_bits(self.stage.load(Ordering::Acquire))
    }

    /// The stage afterwards, or as it is, if there is no change. Release, partner of the Acquires here and in `stage`: who finds the
    /// leaf shared once more (L4) finds that it has been taken out of the set before (D5).
    fn change(self, change: impl Fn(Stage) -> Option<Stage>) -> Result<Stage, Stage> {
        let mut seen = self.stage();
        loop {
            let next = change(seen).ok_or(seen)?;
            let (old, new) = (seen.bits(), next.bits());
            match self.stage.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(next),
                Err(now) => seen = Stage::from_bits(now),
            }
        }
    }

    #[inline(always)]
    fn bit(self, core: CoreId) -> (&'g AtomicU64, u64) {
        (&self.linked[core.index() / 64], 1 << (core.index() % 64))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[derive(Default)]
    struct Leaf {
        words: [AtomicU64; 3],
        linked: [AtomicU64; WORDS],
    }

    impl Leaf {
        fn linkage(&self) -> Linkage<'_> {
            Linkage::new(&self.words, &self.linked)
        }
    }

    fn core(index: usize) -> CoreId {
        CoreId::new(index)
    }

    fn users(linkage: Linkage<'_>, guests: Guests) -> Vec<usize> {
        linkage.users(guests).iter().map(CoreId::index).collect()
    }

    #[test]
    fn the_first_comes_home_and_the_others_wait_until_there_is_a_crowd() {
        let leaf = Leaf::default();
        let linkage = leaf.linkage();
        assert!(linkage.welcomes(core(255)) && linkage.link(core(255)) && !linkage.link(core(255)));
        assert!(linkage.welcomes(core(255)) && !linkage.welcomes(core(0)));
        while !linkage.crowd(1, 2) {}
        assert!(linkage.welcomes(core(0)) && linkage.link(core(0)) && linkage.crowd(1, 2));
        assert!(linkage.admit(core(7)).is_some());
        assert_eq!(users(linkage, Guests::NONE), [0, 255]);
        assert_eq!(users(linkage, Guests::ALL), [0, 7, 255]);
    }

    #[test]
    fn who_leaves_gives_up_its_home() {
        let leaf = Leaf::default();
        let linkage = leaf.linkage();
        assert!(linkage.welcomes(core(3)) && linkage.link(core(3)));
        assert!(linkage.leave(core(3)) && !linkage.leave(core(3)));
        assert!(linkage.welcomes(core(4)) && !linkage.welcomes(core(3)));
        assert!(linkage.linked().is_empty());
    }

    #[test]
    fn a_reset_leaf_is_as_new() {
        let leaf = Leaf::default();
        let linkage = leaf.linkage();
        while !linkage.crowd(1, 2) {}
        (0..100)
            .for_each(|index| assert!(linkage.link(core(index)) && linkage.admit(core(index % 8)).is_some()));
        assert_eq!((linkage.reset(), linkage.reset()), (100, 0));
        assert!(linkage.welcomes(core(9)) && !linkage.welcomes(core(8)));
        assert_eq!(users(linkage, Guests::ALL), []);
    }
}
