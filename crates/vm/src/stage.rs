//! The stage of a leaf, in one word: whose it is, and what speaks for a change. `linkage.rs` says what that means.
//!
//! ```text
//!      36-34     33       32      31-16                        15-0
//!      demoted   leaving  shared  count                        core
//!                   0        0    fills that were counted      its home; none: nobody's
//!                   0        1    takings-back, in a row,      by this core
//!                   1        0    -                            its home, which waits until all others have unlinked
//! ```

use percore::CoreId;

use crate::seats::name;

const CORE: u64 = 0xffff;
const COUNT_SHIFT: u32 = 16;
const COUNT: u64 = 0xffff << COUNT_SHIFT;
const SHARED: u64 = 1 << 32;
const LEAVING: u64 = 1 << 33;
const DEMOTED_SHIFT: u32 = 34;
const DEMOTED: u64 = 0b111 << DEMOTED_SHIFT;
/// How often a leaf was demoted, at most, as far as is told.
const MOST: u64 = DEMOTED >> DEMOTED_SHIFT;
/// So many fills, of pages that others have, make a leaf of more than two users shared: more than are needed by eight threads
/// that share nothing but the three pages through which they start and stop.
pub(crate) const CROWD: u64 = 20;
/// Who shares with so many others makes the leaf shared at once, if it has never been demoted: each of them costs a page of tables.
pub(crate) const MANY: usize = 4;
/// So many takings-back by one core make a shared leaf its home: twice as many after each time that it was in vain.
pub(crate) const ALONE: u64 = 4;
const _: () = assert!(ALONE << MOST <= COUNT >> COUNT_SHIFT);

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stage(u64);

impl Stage {
    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Whether everybody may link.
    #[inline(always)]
    pub(crate) const fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    /// Whether its home waits for others to unlink.
    pub(crate) const fn is_leaving(self) -> bool {
        self.0 & LEAVING != 0
    }

    /// Whether it is another core's home than `core`.
    #[inline(always)]
    pub(crate) fn is_anothers(self, core: CoreId) -> bool {
        !self.is_shared() && ![0, name(core)].contains(&self.core())
    }

    /// Whether `core` may link.
    pub(crate) fn admits(self, core: CoreId) -> bool {
        self.is_shared() || self.core() == name(core)
    }

    /// Nobody's leaf becomes the home of `core`.
    pub(crate) fn claimed(self, core: CoreId) -> Option<Self> {
        (!self.is_shared() && self.core() == 0).then_some(Self(self.0 | name(core)))
    }

    /// One fill more of pages that others have, counted as `weight`; so many `others` have the page. It may make the leaf
    /// shared.
    pub(crate) fn crowded(self, weight: u64, others: usize) -> Option<Self> {
        let is_eager = others >= MANY && self.demoted() == 0;
        let fills = if is_eager { CROWD } else { self.count() + weight };
        (self.0 & (SHARED | LEAVING) == 0).then(|| match fills < CROWD {
            true => self.with(self.core(), fills),
            false => Self(self.with(0, 0).0 | SHARED),
        })
    }

    /// `core` has given up its tables.
    pub(crate) fn left(self, core: CoreId) -> Option<Self> {
        (self.core() == name(core)).then_some(Self(self.0 & !CORE))
    }

    /// `core` takes pages of the shared leaf back from others. It may become its home, for which they have to leave.
    pub(crate) fn note_invalidation(self, core: CoreId) -> Option<Self> {
        let row = if self.core() == name(core) { self.count() + 1 } else { 1 };
        self.is_shared().then(|| match row < ALONE << self.demoted() {
            true => self.with(name(core), row),
            false => self.with(name(core), 0).demote(),
        })
    }

    /// `core` has linked the shared leaf, or faulted in it: whoever else counts takings-back there begins anew.
    pub(crate) fn joined(self, core: CoreId) -> Option<Self> {
        let counts = ![0, name(core)].contains(&self.core());
        (self.is_shared() && counts).then_some(self.with(0, 0))
    }

    /// Its home is the only one that is linked.
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

    const NOBODYS: Stage = Stage::from_bits(0);

    fn core(index: usize) -> CoreId {
        CoreId::new(index)
    }

    /// `change` again and again, until there is none or `done`: how often.
    fn repeat(
        stage: &mut Stage,
        change: impl Fn(Stage) -> Option<Stage>,
        done: impl Fn(Stage) -> bool,
    ) -> u64 {
        let mut times = 0;
        while !done(*stage) {
            *stage = change(*stage).unwrap();
            times += 1;
        }
        times
    }

    fn share(stage: &mut Stage) -> u64 {
        repeat(stage, |stage| stage.crowded(1, 2), Stage::is_shared)
    }

    fn demote(stage: &mut Stage) -> u64 {
        repeat(stage, |stage| stage.note_invalidation(core(255)), Stage::is_leaving)
    }

    #[test]
    fn it_is_one_cores_then_everybodys_then_one_cores() {
        let mut stage = NOBODYS.claimed(core(3)).unwrap();
        assert!(stage.admits(core(3)) && stage.is_anothers(core(255)) && stage.claimed(core(255)).is_none());
        assert_eq!((share(&mut stage), stage.crowded(1, 2)), (CROWD, None));
        assert!(stage.admits(core(255)) && !stage.is_anothers(core(255)));
        assert_eq!(demote(&mut stage), ALONE);
        assert!(
            stage.admits(core(255))
                && stage.is_anothers(core(3))
                && stage.note_invalidation(core(3)).is_none()
        );
        assert_eq!(stage.crowded(1, 2), None, "until all others have unlinked");
        assert_eq!(share(&mut stage.emptied()), CROWD);
    }

    #[test]
    fn many_make_it_shared_at_once_but_never_again() {
        let home = NOBODYS.claimed(core(3)).unwrap();
        assert!(!home.crowded(1, MANY - 1).unwrap().is_shared());
        let mut stage = home.crowded(1, MANY).unwrap();
        assert!(stage.is_shared());
        demote(&mut stage);
        assert!(!stage.emptied().crowded(1, MANY).unwrap().is_shared());
    }

    #[test]
    fn each_time_in_vain_makes_the_next_later() {
        let mut stage = NOBODYS;
        for time in 0..=2 * MOST {
            share(&mut stage);
            assert_eq!(demote(&mut stage), ALONE << time.min(MOST));
            stage = stage.emptied();
        }
    }

    #[test]
    fn who_takes_back_or_faults_between_makes_it_begin_anew() {
        let mut stage = NOBODYS;
        share(&mut stage);
        for between in [|stage: Stage| stage.note_invalidation(core(1)), |stage: Stage| stage.joined(core(1))]
        {
            (1..ALONE).for_each(|_| stage = stage.note_invalidation(core(255)).unwrap());
            stage = between(stage).unwrap();
            assert_eq!(demote(&mut stage.clone()), ALONE);
        }
        stage = stage.note_invalidation(core(255)).unwrap();
        assert_eq!((stage.joined(core(255)), NOBODYS.joined(core(1))), (None, None));
    }

    #[test]
    fn who_leaves_gives_up_its_home() {
        let home = NOBODYS.claimed(core(0)).unwrap();
        assert_eq!((home.left(core(0)), home.left(core(1))), (Some(NOBODYS), None));
    }
}
