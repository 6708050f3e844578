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
//! | stage | who may link | and to what it changes |
//! |---|---|---|
//! | nobody's | the next core that faults | it becomes its home: CAS |
//! | home `h` | `h` | a page is wanted by its third core: shared. `h` gives up its tables: nobody's |
//! | home `h`, guest `g` | `h`; `g` has what it shares with `h` in its own page | the same; `g` gives up its tables: no guest |
//! | shared | everybody | all of it is unmapped at once: nobody's |
//!
//! Neighbours, who use different pages of a leaf, stay apart; two who share pages stay two, and both are known by name.
//!
//! # The states of a page with a frame
//!
//! | the page's word | who may translate it |
//! |---|---|
//! | `P` = 0, names | the named cores, in their own pages (or once, if they have linked since) |
//! | `P` = 1 | every linked core |
//! | `P` = 1, guest | every linked core, and the guest in its own page |
//!
//! # Invariants
//!
//! 1. A core's upper table leads to a leaf only while the core is in the leaf's set, and has been since before. (A core that
//!    does not run the space is not interrupted: it unlinks before it does again, see `presence.rs`.)
//! 2. The set grows under the lock of some slot of the leaf, by the core that joins. It shrinks by a core that has given up
//!    its tables, and under the locks of all 512 slots after each core of it has unlinked (`reset`).
//! 3. Each core in the set holds the leaf ([`radixmap::Leaf::hold`]): no leaf dies while an upper table leads to it.
//! 4. Whoever is named in the words of a page, or is its guest, and links, has lost its own page before it returns to the
//!    program; until then the set, which it is in, covers it.
//! 5. Hardware only reads the words: they say "accessed" and "dirty" from the start. So the holder of a slot stores its
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

const WORDS: usize = MAX_CORES / 64;
const HOME_SHIFT: u32 = 0;
const GUEST_SHIFT: u32 = 16;
const CORE: u64 = 0xffff;
const SHARED: u64 = 1 << 32;

/// What a leaf knows of the cores that use it. See the module.
#[derive(Clone, Copy, Debug)]
pub struct Linkage<'g> {
    stage: &'g AtomicU64,
    linked: &'g [AtomicU64; WORDS],
}

impl<'g> Linkage<'g> {
    /// The linkage that is kept in these words, 0 at first.
    #[inline(always)]
    pub fn new(stage: &'g AtomicU64, linked: &'g [AtomicU64; WORDS]) -> Self {
        Self { stage, linked }
    }

    /// Whether `core` is linked. For the core itself, with a slot of the leaf locked.
    #[inline(always)]
    pub fn is_linked(self, core: CoreId) -> bool {
        let (word, bit) = self.bit(core);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Whether `core`, which is not linked, may link: the leaf is shared, or becomes its home.
    pub fn welcomes(self, core: CoreId) -> bool {
        let claim = |stage: u64| (stage & (SHARED | CORE) == 0).then(|| stage | name(core, HOME_SHIFT));
        match self.stage.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim) {
            Ok(_) => true,
            Err(stage) => stage & SHARED != 0 || stage & CORE == name(core, HOME_SHIFT),
        }
    }

    /// From now on every core may link.
    pub fn share(self) {
        self.stage.fetch_or(SHARED, Ordering::Relaxed);
    }

    /// Whether `core` is the guest now.
    pub fn admit(self, core: CoreId) -> bool {
        let guest = name(core, GUEST_SHIFT);
        let admit = |stage: u64| (stage & CORE << GUEST_SHIFT == 0).then_some(stage | guest);
        match self.stage.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit) {
            Ok(_) => true,
            Err(stage) => stage & CORE << GUEST_SHIFT == guest,
        }
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

    /// After `core`, which calls, has given up its tables. Whether it was in the set: then it holds the leaf no more.
    pub fn leave(self, core: CoreId) -> bool {
        let (home, guest) = (name(core, HOME_SHIFT), name(core, GUEST_SHIFT));
        let left = |stage: u64| {
            let stage = if stage & CORE == home { stage & !CORE } else { stage };
            Some(if stage & CORE << GUEST_SHIFT == guest { stage & !(CORE << GUEST_SHIFT) } else { stage })
        };
        let (word, bit) = self.bit(core);
        let _ = self.stage.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        // Release, partner of the Acquire in `users`: the tables were given up before.
        word.fetch_and(!bit, Ordering::Release) & bit != 0
    }

    /// The cores that may translate a page through the leaf, and as the guest if the page `has_guest`. After the page's word
    /// was stored without `P` (T1).
    pub fn users(self, has_guest: bool) -> CoreSet {
        fence(Ordering::SeqCst); // T2, partner of L2
        let mut users = self.linked();
        if let (true, Some(guest)) = (has_guest, self.guest()) {
            users.insert(guest);
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
        self.stage.store(0, Ordering::Relaxed);
        gone
    }

    fn guest(self) -> Option<CoreId> {
        let guest = (self.stage.load(Ordering::Relaxed) >> GUEST_SHIFT) & CORE;
        (guest != 0).then(|| CoreId::new(guest as usize - 1))
    }

    #[inline(always)]
    fn bit(self, core: CoreId) -> (&'g AtomicU64, u64) {
        (&self.linked[core.index() / 64], 1 << (core.index() % 64))
    }
}

/// `core` in a stage.
fn name(core: CoreId, shift: u32) -> u64 {
    (core.index() as u64 + 1) << shift
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[derive(Default)]
    struct Leaf {
        stage: AtomicU64,
        linked: [AtomicU64; WORDS],
    }

    impl Leaf {
        fn linkage(&self) -> Linkage<'_> {
            Linkage::new(&self.stage, &self.linked)
        }
    }

    fn core(index: usize) -> CoreId {
        CoreId::new(index)
    }

    #[test]
    fn the_first_comes_home_and_the_others_wait_until_it_is_shared() {
        let leaf = Leaf::default();
        let linkage = leaf.linkage();
        assert!(linkage.welcomes(core(255)) && linkage.link(core(255)) && !linkage.link(core(255)));
        assert!(linkage.welcomes(core(255)) && !linkage.welcomes(core(0)));
        linkage.share();
        assert!(linkage.welcomes(core(0)) && linkage.link(core(0)));
        assert_eq!(linkage.users(true).iter().collect::<Vec<_>>(), [core(0), core(255)]);
    }

    #[test]
    fn there_is_one_seat_for_a_guest() {
        let leaf = Leaf::default();
        let linkage = leaf.linkage();
        assert!(linkage.welcomes(core(3)) && linkage.link(core(3)));
        assert!(linkage.admit(core(0)) && linkage.admit(core(0)) && !linkage.admit(core(7)));
        assert_eq!(linkage.users(true).len(), 2);
        assert_eq!(linkage.users(false).len(), 1);
        assert!(!linkage.leave(core(0)), "a guest holds nothing");
        assert!(linkage.admit(core(7)));
    }

    #[test]
    fn who_leaves_gives_up_its_home() {
        let leaf = Leaf::default();
        let linkage = leaf.linkage();
        assert!(linkage.welcomes(core(3)) && linkage.link(core(3)) && linkage.admit(core(5)));
        assert!(linkage.leave(core(3)) && !linkage.leave(core(3)));
        assert!(linkage.welcomes(core(4)) && !linkage.welcomes(core(3)));
        assert_eq!(linkage.users(true).iter().collect::<Vec<_>>(), [core(5)]);
    }

    #[test]
    fn a_reset_leaf_is_as_new() {
        let leaf = Leaf::default();
        let linkage = leaf.linkage();
        linkage.share();
        (0..100).for_each(|index| assert!(linkage.link(core(index))));
        assert_eq!((linkage.reset(), linkage.reset()), (100, 0));
        assert!(linkage.welcomes(core(9)) && !linkage.welcomes(core(8)));
    }
}
