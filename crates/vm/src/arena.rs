//! Where a mapping goes when the caller does not say.
//!
//! One place to look for holes would be one place to meet. So each core looks in an *arena* of its own: a
//! part of the address space whose slots, nodes and table pages no other core needs to touch.
//!
//! 1. What the core unmapped lately comes back first ([`Recent`]).
//! 2. Otherwise the core sweeps its arena for a hole ([`Sweep`]), from a random place downwards.
//! 3. A core whose arena is full moves into the lower half of another core's part, far from where that one
//!    began. There it is again one of few who look there, and usually the only one.
//!
//! Nothing here is a reservation, and no core writes another's arena: the map is the truth. Every candidate is
//! verified under the range lock by the caller, and one that was taken meanwhile is passed over. A hole that
//! another core made is not announced to its arena's owner, who sees it in the map when the sweep comes by: a
//! message would cost a line that both write, while the slots that the owner looks at are those which it
//! must fetch anyway, to map there.

use core::ops::Range;

use percore::{PerCore, Pinned};
use sync::SpinLock;

use crate::hole::Look;
use crate::layout::{Layout, Split};
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
        let (split, seed) = (Split::of(layout), layout.seed);
        let arena = |part| SpinLock::new(Arena { recent: Recent::default(), sweep: begin(part, seed) });
        let of = PerCore::try_new(layout.cores, |core| arena(split.part(core.index())))?;
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

    /// Moves this core to the next part whose lower half has a hole of `pages` pages.
    fn move_on(&self, pin: &Pinned, pages: u64, look: &impl Look, sweep: &mut Sweep) -> Option<u64> {
        let cores = self.of.cores();
        let mut homes = (0..cores).map(|far| lower_half(self.split.part((pin.core().index() + far) % cores)));
        homes.find_map(|home| {
            let mut elsewhere = begin(home, self.seed);
            let start = elsewhere.search(pages, look)?;
            *sweep = elsewhere;
            Some(start)
        })
    }
}

/// An arena in `part` that begins at a random place in its upper half.
fn begin(part: Range<u64>, seed: u64) -> Sweep {
    let half = (part.end - part.start).div_ceil(2).max(1);
    let top = part.end - mix(seed ^ part.end) % half;
    Sweep::new(part, top)
}

fn lower_half(part: Range<u64>) -> Range<u64> {
    part.start..part.start + (part.end - part.start) / 2
}

/// Spreads a seed over all bits (the last steps of SplitMix64).
fn mix(seed: u64) -> u64 {
    let seed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ seed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ seed >> 31
}
