//! Which cores translate pages through a leaf itself, instead of a table page of their own.
//!
//! With [`Tables::Adaptive`](crate::Tables) each core has its own upper tables. Where they come to a leaf's
//! 512 pages they lead either to the leaf's frame (the core is *linked*), whose words are page-table entries,
//! or to a page of the core's own (*private*), or nowhere.
//!
//! ```text
//!   core 0's upper table ──┐                            the leaf's words
//!   core 2's upper table ──┴─(linked)──▶  [ P frame ][ P frame ][ frame ][ P frame, sharer ] ...
//!   core 1's upper table ────(private)─▶  [         ][         ][ frame ][ frame           ] ...
//! ```
//!
//! # The states of a leaf
//!
//! | state | cores that may link | what ends it |
//! |---|---|---|
//! | no owner | the next core that faults | that core becomes the owner: CAS |
//! | owner `o` | `o` | many private sharers, or many fills by several: shared. `o` drops its tables: no owner |
//! | shared | all | all of it is unmapped or dropped at once, or becomes a huge page: no owner. One core alone invalidates pages of it for some time: leaving |
//! | leaving, owner `o` | `o` | the others have unlinked: owner `o`, see `demotion.rs` |
//!
//! A core that may not link uses a page of its own. It is a *private sharer* of the leaf if it shares pages
//! with the owner: the leaf records it, by CAS, until it has no owner. So cores that use different pages of a
//! leaf share no table. Two cores that share a page do not make the leaf shared. In a leaf that was demoted,
//! neither do a few pages that all use, unless they are a file's.
//!
//! # The states of a page with a frame
//!
//! | the page's word | cores that may translate it |
//! |---|---|
//! | `P` = 0, tracker | the cores of the tracker, in their own pages (or once, if they have linked since) |
//! | `P` = 1 | every linked core |
//! | `P` = 1, sharers | every linked core, and that private sharer, or all of them, in their own pages |
//!
//! # Invariants
//!
//! 1. A core's upper table leads to a leaf only while the core is in the leaf's set, and has been since
//!    before. (A core that does not run the space is not interrupted: it unlinks before it does again, see
//!    `presence.rs`.)
//! 2. The set grows under the lock of some slot of the leaf, by the core that joins. It shrinks by a core
//!    that has given up its tables or has unlinked, under the locks of all 512 slots after each core of it
//!    has unlinked (`reset`), and by the owner of a leaving leaf, after those that go have unlinked.
//! 3. Each core in the set holds the leaf ([`radixmap::Leaf::hold`]): no leaf dies while an upper table leads
//!    to it.
//! 4. A core in a page's tracker, or a private sharer of it, that links has lost its own page before it
//!    returns to the program. Until then the set, which it is in, covers it.
//! 5. The upper entry of a core in the set leads to the leaf or nowhere, never to a page of its own. So a
//!    core in the set fills by storing the page's word alone.
//! 6. Hardware only reads the words: they say "accessed" and "dirty" from the start. So the holder of a slot
//!    stores its word, and nothing is lost.
//!
//! # Orders
//!
//! ```text
//!   invalidate                                link
//!   ──────────                                ────
//!   T1  the page's word: P := 0               L1  the set ∪= me
//!   T2  fence                                 L2  fence
//!   T3  read the set; interrupt it            L3  upper entry := the leaf;  the program walks
//! ```
//! If T3 misses L1, then T2 came before L2, and every walk through L3 finds `P` = 0. The same order holds for
//! rights that are lowered, and for `reset`, during which no core can link. Other loads and stores here are
//! Relaxed: the slots' locks order them, or a CAS on the state decides.

use percore::{CoreId, CoreSet, MAX_CORES};
use sync::atomic::{AtomicU64, Ordering, fence};

use super::leaf_state::LeafState;
use super::private_sharers::{PrivateSharers, SharerList};

const WORDS: usize = MAX_CORES / 64;

/// The record that a leaf keeps of the cores that use it. See the module.
#[derive(Clone, Copy, Debug)]
pub struct Linkage<'g> {
    state: &'g AtomicU64,
    sharers: SharerList<'g>,
    linked: &'g [AtomicU64; WORDS],
}

impl<'g> Linkage<'g> {
    /// The linkage that is kept in these words, 0 at first.
    #[inline(always)]
    pub fn new([state, low, high]: &'g [AtomicU64; 3], linked: &'g [AtomicU64; WORDS]) -> Self {
        Self { state, sharers: SharerList::new([low, high]), linked }
    }

    /// Returns whether `core` is linked. Called by the core itself, with a slot of the leaf locked. Acquire,
    /// partner of the Release in `remove`: a core that has been taken out finds what it missed
    /// (`presence.rs`).
    #[inline(always)]
    pub fn is_linked(self, core: CoreId) -> bool {
        let (word, bit) = self.bit(core);
        word.load(Ordering::Acquire) & bit != 0
    }

    /// Returns whether another core owns the leaf, so that `core`, which is not linked, may not link.
    #[inline(always)]
    pub fn is_owned_by_other(self, core: CoreId) -> bool {
        self.state().is_owned_by_other(core)
    }

    /// Returns whether `core`, which is not linked, may link: the leaf is shared, or had no owner, and `core`
    /// is its owner now.
    pub fn may_link(self, core: CoreId) -> bool {
        match self.change(|state| state.claimed(core)) {
            Ok(_) => true,
            Err(state) => state.may_link(core),
        }
    }

    /// Records a fill of a page that others have, in a leaf that more than two cores use, as `weight` fills,
    /// and returns whether the leaf is shared now. `others` is the number of cores that have the page, or of
    /// the private sharers.
    pub fn note_shared_fill(self, weight: u64, others: usize) -> bool {
        match self.change(|state| state.note_shared_fill(weight, others)) {
            Ok(state) | Err(state) => state.is_shared(),
        }
    }

    /// Returns the number of private sharers.
    pub fn private_sharers(self) -> usize {
        self.sharers.len()
    }

    /// Records `core` as a private sharer and returns its entry, or `None` if all entries are taken.
    pub fn add_sharer(self, core: CoreId) -> Option<PrivateSharers> {
        self.sharers.add(core)
    }

    /// Adds `core` to the set, before its upper table leads to the leaf. Returns whether it was not in the
    /// set, which it holds the leaf for.
    pub fn link(self, core: CoreId) -> bool {
        if self.is_linked(core) {
            return false;
        }
        let (word, bit) = self.bit(core);
        // Release, partner of the Acquire in `linked`: this core holds the leaf.
        word.fetch_or(bit, Ordering::Release); // L1
        fence(Ordering::SeqCst); // L2, partner of T2
        true
    }

    /// After `core` had its upper table lead to the leaf, and before it goes on: whether it may stay linked.
    /// If not, the leaf has become another's owner meanwhile (`demotion.rs`), perhaps for a moment: it must
    /// unlink and [`leave`](Self::leave).
    pub fn stays(self, core: CoreId) -> bool {
        match self.change(|state| state.joined(core)) {
            Ok(state) | Err(state) => state.may_link(core) && self.is_linked(core), // L4
        }
    }

    /// Records that `core` invalidates pages that others have. Returns whether it is the leaf's owner from
    /// now on, and has to unlink them (D1).
    pub fn note_invalidation(self, core: CoreId) -> bool {
        self.is_linked(core)
            && self.change(|state| state.note_invalidation(core)).is_ok_and(LeafState::is_leaving)
    }

    /// Returns the cores that have to unlink, if `note_invalidation` returned true (D3).
    pub fn others(self, owner: CoreId) -> CoreSet {
        fence(Ordering::SeqCst); // D2, partner of L2
        let mut others = self.linked();
        others.remove(owner);
        others
    }

    /// Ends the demotion after all of `others` have unlinked (D5). Returns how many of them no longer hold
    /// the leaf.
    pub fn emptied(self, others: &CoreSet) -> usize {
        let gone = others.iter().filter(|&core| self.remove(core)).count();
        let _ = self.change(|state| Some(state.emptied()));
        gone
    }

    /// Takes out `core`, the caller, after it has given up its tables or unlinked. Returns whether it was in
    /// the set: then it no longer holds the leaf.
    pub fn leave(self, core: CoreId) -> bool {
        let _ = self.change(|state| state.left(core));
        self.remove(core)
    }

    /// Takes `core` out of the set. Returns whether it was there.
    fn remove(self, core: CoreId) -> bool {
        let (word, bit) = self.bit(core);
        // Release, partner of the Acquire in `linked`: the core has unlinked before.
        word.fetch_and(!bit, Ordering::Release) & bit != 0
    }

    /// Returns the cores that may translate a page through the leaf, or as one of its private `sharers`. To
    /// be called after the page's word was stored without `P` (T1).
    #[inline]
    pub fn users(self, sharers: PrivateSharers) -> CoreSet {
        fence(Ordering::SeqCst); // T2, partner of L2
        let mut users = self.linked();
        if sharers != PrivateSharers::NONE {
            self.sharers.add_to(&mut users, sharers);
        }
        users
    }

    /// Returns the cores in the set: all that may be, if called after a fence. T3. Acquire, partner of the
    /// Release in `leave`.
    pub fn linked(self) -> CoreSet {
        CoreSet::from_words(self.linked.each_ref().map(|word| word.load(Ordering::Acquire)))
    }

    /// Returns whether `reset` has nothing to do, for a leaf whose slots are all locked and in whose set are
    /// these `linked` cores. It stays so while the slots are locked, because nothing is added without the
    /// lock of one.
    #[inline(always)]
    pub fn is_reset(self, linked: &CoreSet) -> bool {
        linked.is_empty() && self.state.load(Ordering::Relaxed) == 0 && self.sharers.is_empty()
    }

    /// Resets the leaf, all of whose slots are locked, after every core in the set has unlinked: it has no
    /// owner. Returns how many cores hold the leaf no more.
    pub fn reset(self) -> usize {
        // No core enters the set meanwhile, because it needs the lock of a slot for that. A core that entered
        // before has released such a lock since, so these loads see it.
        let some = self.linked.iter().filter(|word| word.load(Ordering::Relaxed) != 0);
        let gone = some.map(|word| word.swap(0, Ordering::Relaxed).count_ones() as usize).sum();
        self.sharers.reset();
        self.state.store(0, Ordering::Relaxed);
        gone
    }

    #[inline(always)]
    fn state(self) -> LeafState {
        LeafState::from_bits(self.state.load(Ordering::Acquire))
    }

    /// Changes the state and returns it, or as an error the state as it is if there is no change. Release,
    /// partner of the Acquires here and in `state`: a core that finds the leaf shared once more (L4) finds
    /// that it was taken out of the set before (D5).
    fn change(self, change: impl Fn(LeafState) -> Option<LeafState>) -> Result<LeafState, LeafState> {
        let mut seen = self.state();
        loop {
            let next = change(seen).ok_or(seen)?;
            let (old, new) = (seen.bits(), next.bits());
            match self.state.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(next),
                Err(now) => seen = LeafState::from_bits(now),
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

    fn users(linkage: Linkage<'_>, sharers: PrivateSharers) -> Vec<usize> {
        linkage.users(sharers).iter().map(CoreId::index).collect()
    }

    #[test]
    fn the_first_core_owns_the_leaf_until_it_is_shared() {
        let leaf = Leaf::default();
        let linkage = leaf.linkage();
        assert!(linkage.may_link(core(255)) && linkage.link(core(255)) && !linkage.link(core(255)));
        assert!(linkage.may_link(core(255)) && !linkage.may_link(core(0)));
        while !linkage.note_shared_fill(1, 2) {}
        assert!(linkage.may_link(core(0)) && linkage.link(core(0)) && linkage.note_shared_fill(1, 2));
        assert!(linkage.add_sharer(core(7)).is_some());
        assert_eq!(users(linkage, PrivateSharers::NONE), [0, 255]);
        assert_eq!(users(linkage, PrivateSharers::ALL), [0, 7, 255]);
    }

    #[test]
    fn a_core_that_leaves_owns_the_leaf_no_more() {
        let leaf = Leaf::default();
        let linkage = leaf.linkage();
        assert!(linkage.may_link(core(3)) && linkage.link(core(3)));
        assert!(linkage.leave(core(3)) && !linkage.leave(core(3)));
        assert!(linkage.may_link(core(4)) && !linkage.may_link(core(3)));
        assert!(linkage.linked().is_empty());
    }

    #[test]
    fn a_leaf_with_an_owner_or_a_sharer_is_not_reset() {
        let (owned, shown, linked) = (Leaf::default(), Leaf::default(), Leaf::default());
        let is_reset = |leaf: &Leaf| leaf.linkage().is_reset(&leaf.linkage().linked());
        assert!(is_reset(&owned) && is_reset(&shown) && is_reset(&linked));
        assert!(owned.linkage().may_link(core(1)) && shown.linkage().add_sharer(core(1)).is_some());
        assert!(linked.linkage().link(core(1)));
        assert!(!is_reset(&owned) && !is_reset(&shown) && !is_reset(&linked));
    }

    #[test]
    fn a_reset_leaf_is_as_new() {
        let leaf = Leaf::default();
        let linkage = leaf.linkage();
        while !linkage.note_shared_fill(1, 2) {}
        (0..100).for_each(|index| {
            assert!(linkage.link(core(index)) && linkage.add_sharer(core(index % 8)).is_some())
        });
        assert!(!linkage.is_reset(&linkage.linked()));
        assert_eq!((linkage.reset(), linkage.reset()), (100, 0));
        assert!(linkage.is_reset(&linkage.linked()));
        assert!(linkage.may_link(core(9)) && !linkage.may_link(core(8)));
        assert_eq!(users(linkage, PrivateSharers::ALL), []);
    }
}
