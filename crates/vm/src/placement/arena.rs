//! Chooses the place of a mapping when the caller does not.
//!
//! A single place to look for holes would be shared by all cores. So each core looks in an *arena* of its
//! own: a part of the address space whose slots and leaves no other core needs to touch.
//!
//! 1. Ranges that the core unmapped lately come back first ([`Recent`]).
//! 2. Otherwise the core sweeps its arena for a hole ([`Sweep`]), from a random place downwards. It begins in
//!    its piece of the [`Yard`], which is small, so that memory which the threads of a small program share
//!    needs few upper tables.
//! 3. A core whose piece is full moves to a part that is its own from the root down.
//! 4. If that is full too, it moves into the lower half of another core's part, where the other core seldom
//!    looks. Again few cores look there, and usually only this one.
//!
//! Nothing here is a reservation, and no core writes another's arena: the map is the truth. Every candidate
//! is verified under the range lock by the caller, and one that was taken meanwhile is passed over. A hole
//! that another core made is not announced to its arena's owner, which sees it in the map when the sweep
//! comes by: a message would cost a line that both write, while the slots that the owner looks at are those
//! which it must fetch anyway, to map there.

use core::iter;
use core::ops::Range;

use percore::{CoreId, LazyPerCore, Pinned};
use sync::SpinLock;

use super::hole::Look;
use super::layout::{Layout, Split, Yard, mix};
use super::recent::Recent;
use super::sweep::Sweep;
use crate::{PageNum, PageRange};

/// The arenas of all cores. A core's begins when it first looks for a hole: most processes stay where they
/// began.
#[derive(Debug)]
pub struct Arenas {
    split: Split,
    yard: Option<Yard>,
    seed: u64,
    of: LazyPerCore<SpinLock<Arena>>,
}

#[derive(Debug)]
struct Arena {
    recent: Recent,
    sweep: Sweep,
}

impl Arenas {
    /// Returns the arenas of a space, or `None` if there is no memory.
    pub fn try_new(layout: &Layout) -> Option<Self> {
        let of = LazyPerCore::try_new(layout.cores)?;
        Some(Self { of, split: Split::of(layout), yard: Yard::of(layout), seed: layout.seed })
    }

    /// Returns a range of `pages` pages that this core unmapped lately.
    #[inline]
    pub fn recent(&self, pin: &Pinned, pages: u64) -> Option<PageNum> {
        self.of.mine(pin)?.lock().recent.take(pages)
    }

    /// Returns the next hole of `pages` pages in this core's arena, or in another that it moves to. Returns
    /// `None` if there is no hole, or no memory for an arena.
    pub fn search(&self, pin: &Pinned, pages: u64, look: impl Look) -> Option<PageNum> {
        let arena = self.of.mine_or_new(pin, |core| SpinLock::new(self.first(core)))?;
        let sweep = &mut arena.lock().sweep;
        let start = sweep.search(pages, &look).or_else(|| self.move_on(pin, pages, &look, sweep));
        start.map(PageNum::new)
    }

    /// This core unmapped `range`. Without an arena it has not handed it out.
    #[inline]
    pub fn released(&self, pin: &Pinned, range: PageRange) {
        let Some(arena) = self.of.mine(pin) else { return };
        let arena = &mut *arena.lock();
        if arena.sweep.covers(range) {
            arena.recent.put(range);
        }
    }

    /// Returns the arena in which `core` begins.
    fn first(&self, core: CoreId) -> Arena {
        let core = core.index();
        let part = self.yard.as_ref().map_or_else(|| self.split.part(core), |yard| yard.piece(core));
        Arena { recent: Recent::default(), sweep: begin(part, self.seed) }
    }

    /// Moves this core to its own part, or to the next whose lower half has a hole of `pages` pages.
    fn move_on(&self, pin: &Pinned, pages: u64, look: &impl Look, sweep: &mut Sweep) -> Option<u64> {
        let (cores, me) = (self.of.cores(), pin.core().index());
        let others = (1..cores).map(|far| lower_half(self.split.part((me + far) % cores)));
        let mut homes = iter::once(self.split.part(me)).chain(others);
        homes.find_map(|home| {
            let mut elsewhere = begin(home, self.seed);
            let start = elsewhere.search(pages, look)?;
            *sweep = elsewhere;
            Some(start)
        })
    }
}

/// Returns an arena in `part` that begins at a random place in its upper three quarters.
fn begin(part: Range<u64>, seed: u64) -> Sweep {
    let upper = (part.end - part.start).div_ceil(4) * 3;
    let top = part.end - mix(seed ^ part.end) % upper.max(1);
    Sweep::new(part, top)
}

fn lower_half(part: Range<u64>) -> Range<u64> {
    part.start..part.start + (part.end - part.start) / 2
}
