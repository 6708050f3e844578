//! Where a mapping goes when the caller does not say.
//!
//! One place to look for holes would be one place to meet. So each core looks in an *arena* of its own: a
//! part of the address space whose slots and leaves no other core needs to touch.
//!
//! 1. What the core unmapped lately comes back first ([`Recent`]).
//! 2. Otherwise the core sweeps its arena for a hole ([`Sweep`]), from a random place downwards. It begins in its piece
//!    of the [`Yard`], which is small: what threads of a small program share needs few upper tables.
//! 3. A core whose piece is full moves to a part that is its own from the root down.
//! 4. If that is full too it moves into the lower half of another core's part, where that one seldom is. There it is
//!    again one of few who look there, and usually the only one.
//!
//! Nothing here is a reservation, and no core writes another's arena: the map is the truth. Every candidate is
//! verified under the range lock by the caller, and one that was taken meanwhile is passed over. A hole that
//! another core made is not announced to its arena's owner, who sees it in the map when the sweep comes by: a
//! message would cost a line that both write, while the slots that the owner looks at are those which it
//! must fetch anyway, to map there.

use core::iter;
use core::ops::Range;

use percore::{PerCore, Pinned};
use sync::SpinLock;

use crate::hole::Look;
use crate::layout::{Layout, Split, Yard, mix};
use crate::recent::Recent;
use crate::sweep::Sweep;
use crate::{PageNum, PageRange};

/// The arenas of all cores.
#[derive(Debug)]
pub(crate) struct Arenas {
    split: Split,
    seed: u64,
    of: PerCore<SpinLock<Arena>>,
}

#[derive(Debug)]
struct Arena {
    recent: Recent,
    sweep: Sweep,
}

impl Arenas {
    pub(crate) fn try_new(layout: &Layout) -> Option<Self> {
        let (split, yard, seed) = (Split::of(layout), Yard::of(layout), layout.seed);
        let first = |core: usize| yard.as_ref().map_or_else(|| split.part(core), |yard| yard.piece(core));
        let arena = |part| SpinLock::new(Arena { recent: Recent::default(), sweep: begin(part, seed) });
        let of = PerCore::try_new(layout.cores, |core| arena(first(core.index())))?;
        Some(Self { of, split, seed })
    }

    /// A range of `pages` pages that this core unmapped lately.
    #[inline]
    pub(crate) fn recent(&self, pin: &Pinned, pages: u64) -> Option<PageNum> {
        self.of.mine(pin).lock().recent.take(pages)
    }

    /// The next hole of `pages` pages in this core's arena, or in another that it moves to; `None` if that is
    /// nowhere.
    pub(crate) fn search(&self, pin: &Pinned, pages: u64, look: impl Look) -> Option<PageNum> {
        let sweep = &mut self.of.mine(pin).lock().sweep;
        let start = sweep.search(pages, &look).or_else(|| self.move_on(pin, pages, &look, sweep));
        start.map(PageNum::new)
    }

    /// This core unmapped `range`.
    #[inline]
    pub(crate) fn released(&self, pin: &Pinned, range: PageRange) {
        let arena = &mut *self.of.mine(pin).lock();
        if arena.sweep.covers(range) {
            arena.recent.put(range);
        }
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

/// An arena in `part` that begins at a random place in its upper three quarters.
fn begin(part: Range<u64>, seed: u64) -> Sweep {
    let upper = (part.end - part.start).div_ceil(4) * 3;
    let top = part.end - mix(seed ^ part.end) % upper.max(1);
    Sweep::new(part, top)
}

fn lower_half(part: Range<u64>) -> Range<u64> {
    part.start..part.start + (part.end - part.start) / 2
}
