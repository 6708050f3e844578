//! The state of a leaf, in one word: its owner, and the counts that decide when it changes. See `linkage.rs`.
//!
//! ```text
//!      36-34     33       32      31-16                        15-0
//!      demoted   leaving  shared  count                        core
//!                   0        0    fills that were counted      its owner, if there is one
//!                   0        1    invalidations, in a row,     by this core
//!                   1        0    -                            its owner, which waits until all others have unlinked
//! ```

use percore::CoreId;

use super::private_sharers::id_of;

const CORE: u64 = 0xffff;
const COUNT_SHIFT: u32 = 16;
const COUNT: u64 = 0xffff << COUNT_SHIFT;
const SHARED: u64 = 1 << 32;
const LEAVING: u64 = 1 << 33;
const DEMOTED_SHIFT: u32 = 34;
const DEMOTED: u64 = 0b111 << DEMOTED_SHIFT;
/// The largest number of demotions that is recorded.
const MOST: u64 = DEMOTED >> DEMOTED_SHIFT;
/// Number of fills of pages that other cores have, after which a leaf of more than two users is shared. Eight
/// threads that share nothing but the three pages through which they start and stop need fewer.
pub(crate) const SHARE_AFTER: u64 = 20;
/// Number of other cores with which a core shares a leaf to make it shared at once, if it has never been
/// demoted: each of them costs a page of tables.
pub(crate) const SHARE_AT_ONCE: usize = 4;
/// Invalidations in a row after which a core owns the shared leaf, twice as many after each time that it was
/// in vain.
pub(crate) const OWN_AFTER: u64 = 4;
const _: () = assert!(OWN_AFTER << MOST <= COUNT >> COUNT_SHIFT);

/// The state of a leaf. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafState(u64);

impl LeafState {
    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether every core may link.
    #[inline(always)]
    pub(crate) const fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    /// Returns whether its owner waits for others to unlink.
    pub(crate) const fn is_leaving(self) -> bool {
        self.0 & LEAVING != 0
    }

    /// Returns whether another core than `core` owns the leaf.
    #[inline(always)]
    pub(crate) fn is_owned_by_other(self, core: CoreId) -> bool {
        !self.is_shared() && ![0, id_of(core)].contains(&self.core())
    }

    /// Returns whether `core` may link.
    pub(crate) fn may_link(self, core: CoreId) -> bool {
        self.is_shared() || self.core() == id_of(core)
    }

    /// Makes `core` the owner of a leaf that has none.
    pub(crate) fn claimed(self, core: CoreId) -> Option<Self> {
        (!self.is_shared() && self.core() == 0).then_some(Self(self.0 | id_of(core)))
    }

    /// Counts a fill of a page that `others` other cores have as `weight` fills, and returns the new state,
    /// in which the leaf may be shared.
    pub(crate) fn note_shared_fill(self, weight: u64, others: usize) -> Option<Self> {
        let is_eager = others >= SHARE_AT_ONCE && self.demoted() == 0;
        let fills = if is_eager { SHARE_AFTER } else { self.count() + weight };
        (self.0 & (SHARED | LEAVING) == 0).then(|| match fills < SHARE_AFTER {
            true => self.with(self.core(), fills),
            false => Self(self.with(0, 0).0 | SHARED),
        })
    }

    /// Ends the ownership of `core`, which has dropped its tables.
    pub(crate) fn left(self, core: CoreId) -> Option<Self> {
        (self.core() == id_of(core)).then_some(Self(self.0 & !CORE))
    }

    /// Counts an invalidation by `core` of pages that others have, which may make it the owner. Then the
    /// others have to leave.
    pub(crate) fn note_invalidation(self, core: CoreId) -> Option<Self> {
        let row = if self.core() == id_of(core) { self.count() + 1 } else { 1 };
        self.is_shared().then(|| match row < OWN_AFTER << self.demoted() {
            true => self.with(id_of(core), row),
            false => self.with(id_of(core), 0).demote(),
        })
    }

    /// Ends the count of another core's invalidations, since `core` has linked the shared leaf, or faulted in
    /// it.
    pub(crate) fn joined(self, core: CoreId) -> Option<Self> {
        let counts = ![0, id_of(core)].contains(&self.core());
        (self.is_shared() && counts).then_some(self.with(0, 0))
    }

    /// Ends the wait of the owner, which is the only core that is linked.
    pub(crate) fn emptied(self) -> Self {
        Self(self.0 & !LEAVING)
    }

    fn demote(self) -> Self {
        let demoted = (self.demoted() + 1).min(MOST);
        Self(self.0 & !(SHARED | DEMOTED) | LEAVING | demoted << DEMOTED_SHIFT)
    }

    fn with(self, core: u64, count: u64) -> Self {
        Self(self.0 & !(CORE | COUNT) | core | count << COUNT_SHIFT)
    }

    #[inline(always)]
    fn core(self) -> u64 {
        self.0 & CORE
    }

    fn count(self) -> u64 {
        (self.0 & COUNT) >> COUNT_SHIFT
    }

    fn demoted(self) -> u64 {
        (self.0 & DEMOTED) >> DEMOTED_SHIFT
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const UNOWNED: LeafState = LeafState::from_bits(0);

    fn core(index: usize) -> CoreId {
        CoreId::new(index)
    }

    /// `change` again and again, until there is none or `done`: how often.
    fn repeat(
        state: &mut LeafState,
        change: impl Fn(LeafState) -> Option<LeafState>,
        done: impl Fn(LeafState) -> bool,
    ) -> u64 {
        let mut times = 0;
        while !done(*state) {
            *state = change(*state).unwrap();
            times += 1;
        }
        times
    }

    fn share(state: &mut LeafState) -> u64 {
        repeat(state, |state| state.note_shared_fill(1, 2), LeafState::is_shared)
    }

    fn demote(state: &mut LeafState) -> u64 {
        repeat(state, |state| state.note_invalidation(core(255)), LeafState::is_leaving)
    }

    #[test]
    fn it_is_owned_then_shared_then_owned_again() {
        let mut state = UNOWNED.claimed(core(3)).unwrap();
        assert!(
            state.may_link(core(3))
                && state.is_owned_by_other(core(255))
                && state.claimed(core(255)).is_none()
        );
        assert_eq!((share(&mut state), state.note_shared_fill(1, 2)), (SHARE_AFTER, None));
        assert!(state.may_link(core(255)) && !state.is_owned_by_other(core(255)));
        assert_eq!(demote(&mut state), OWN_AFTER);
        assert!(
            state.may_link(core(255))
                && state.is_owned_by_other(core(3))
                && state.note_invalidation(core(3)).is_none()
        );
        assert_eq!(state.note_shared_fill(1, 2), None, "until all others have unlinked");
        assert_eq!(share(&mut state.emptied()), SHARE_AFTER);
    }

    #[test]
    fn many_make_it_shared_at_once_but_never_again() {
        let owned = UNOWNED.claimed(core(3)).unwrap();
        assert!(!owned.note_shared_fill(1, SHARE_AT_ONCE - 1).unwrap().is_shared());
        let mut state = owned.note_shared_fill(1, SHARE_AT_ONCE).unwrap();
        assert!(state.is_shared());
        demote(&mut state);
        assert!(!state.emptied().note_shared_fill(1, SHARE_AT_ONCE).unwrap().is_shared());
    }

    #[test]
    fn each_time_in_vain_makes_the_next_later() {
        let mut state = UNOWNED;
        for time in 0..=2 * MOST {
            share(&mut state);
            assert_eq!(demote(&mut state), OWN_AFTER << time.min(MOST));
            state = state.emptied();
        }
    }

    #[test]
    fn another_core_that_invalidates_or_faults_between_makes_it_begin_anew() {
        let mut state = UNOWNED;
        share(&mut state);
        for between in
            [|state: LeafState| state.note_invalidation(core(1)), |state: LeafState| state.joined(core(1))]
        {
            (1..OWN_AFTER).for_each(|_| state = state.note_invalidation(core(255)).unwrap());
            state = between(state).unwrap();
            assert_eq!(demote(&mut state.clone()), OWN_AFTER);
        }
        state = state.note_invalidation(core(255)).unwrap();
        assert_eq!((state.joined(core(255)), UNOWNED.joined(core(1))), (None, None));
    }

    #[test]
    fn a_core_that_leaves_owns_the_leaf_no_more() {
        let owned = UNOWNED.claimed(core(0)).unwrap();
        assert_eq!((owned.left(core(0)), owned.left(core(1))), (Some(UNOWNED), None));
    }
}
