//! Cores that do not run a space are not interrupted: they clear what they missed when they come back.
//!
//! For machines with a table per core, which outlives the core's stay in the space. `here` says whether the
//! core has the space's table loaded. For a core that has not, removed pages are noted as missed, and it
//! clears them before it loads the table again.
//!
//! ```text
//!   shootdown                                enter (on the target)
//!   ─────────                                ─────
//!   S1  here?  yes → interrupt               E1  here := true
//!   S2  missed ∪= pages                      E2  take missed, clear it in the table
//!   S3  here?  yes → interrupt               E3  load the table
//! ```
//!
//! 1. The note is one word, so E2 takes the whole of it or nothing.
//! 2. If S2 precedes E2 in the word's order, this `enter` clears the pages. If S2 follows it, the *next*
//!    `enter`'s E2 clears them. Between the two, either S3 sees E1, and the handler clears, or the core has
//!    left.
//! 3. S2 and E2 change the same word, each in one step. So one of them comes first, and the other sees it and
//!    what came before it. No fence is needed to forbid that S3 misses E1 while E2 misses S2.
//! 4. A core leaves after it has loaded another table. A core that sees `here` false, at S3, knows that no
//!    translation is used any more until the core comes back. It uses the entries that its TLB keeps of the
//!    space (`asid.rs`) then only if E2 found no note.
//!
//! 5. A core may fill in the table of a space that it does not run, for another process. It clears what it
//!    missed before it walks: an entry may lead to a leaf that is gone. The core that ended the leaf held the
//!    slots that this core holds now, or took this core out of the leaf's set.
//!
//! Notes add up to one hull, rounded to spans of 512 pages. Pages that it covers in excess are filled again
//! by faults.

use sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{PageNum, PageRange};

/// Pages in a span, the unit of a note.
const SPAN: u64 = 512;
/// Bits of a span's number: 36 bits of page number leave 28.
const BITS: u32 = 32;
const LOW: u64 = (1 << BITS) - 1;

/// The presence of one core in one space, and the pages that it missed while it was away.
#[derive(Debug)]
pub struct Presence {
    here: AtomicBool,
    /// First span, and the span after the last, or 0 for none.
    missed: AtomicU64,
}

impl Default for Presence {
    fn default() -> Self {
        Self::new()
    }
}

impl Presence {
    sync::const_unless_loom! {
        /// Elsewhere, and missed nothing.
        pub fn new() -> Self {
            Self { here: AtomicBool::new(false), missed: AtomicU64::new(0) }
        }
    }

    /// Returns whether the core runs the space. Called by the core itself. Relaxed: no other core writes it.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        self.here.load(Ordering::Relaxed)
    }

    /// Records that the core comes. Returns what to clear in its table before it loads it. Called by the core
    /// itself, with interrupts off.
    pub fn enter(&self) -> Option<PageRange> {
        self.here.store(true, Ordering::Relaxed); // E1
        // Release and Acquire, partners of those in `note`. A core that notes later sees E1. This core finds
        // what came before a note that it takes: a leaf's word that is no entry any more, or that this core
        // may not link the leaf (`demotion.rs`, D1).
        unpack(self.missed.swap(0, Ordering::AcqRel)) // E2
    }

    /// Returns what to clear in the space's table before the core fills there while it is elsewhere. Called
    /// by the core itself, which holds slots of the pages that it fills, and whose TLB must not keep what it
    /// has of the space.
    #[cold]
    pub fn catch_up(&self) -> Option<PageRange> {
        // Acquire, as in `enter`. No other core has to see that this core fills.
        unpack(self.missed.swap(0, Ordering::Acquire))
    }

    /// The core has gone: it runs on another table. By the core itself, with interrupts off.
    #[inline]
    pub fn leave(&self) {
        // Release, partner of the Acquire in `must_interrupt`: the other table was loaded before.
        self.here.store(false, Ordering::Release);
    }

    /// Returns whether the core must be interrupted to clear `pages`. If not, it will clear them by itself.
    /// Called by other cores, which have removed the pages from the space's metadata before, or hold them
    /// locked.
    #[inline]
    pub fn must_interrupt(&self, pages: PageRange) -> bool {
        // S1: Relaxed, as nothing follows from it but the interrupt. S3: Acquire, partner of the Release in
        // `leave`.
        self.here.load(Ordering::Relaxed) || {
            self.note(pages); // S2
            self.here.load(Ordering::Acquire) // S3
        }
    }

    /// Release and Acquire, partners of those in `enter`.
    fn note(&self, pages: PageRange) {
        let merged = |old| Some(merge(old, pages));
        let _ = self.missed.fetch_update(Ordering::AcqRel, Ordering::Relaxed, merged);
    }
}

/// Returns the hull of an old note and `pages`.
fn merge(old: u64, pages: PageRange) -> u64 {
    let (start, end) = (pages.start().get() / SPAN, pages.end().get().div_ceil(SPAN));
    match old {
        0 => start << BITS | end,
        _ => (old >> BITS).min(start) << BITS | (old & LOW).max(end),
    }
}

fn unpack(note: u64) -> Option<PageRange> {
    let page = |span| PageNum::new(span * SPAN);
    (note != 0).then(|| PageRange::between(page(note >> BITS), page(note & LOW)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn pages(start: u64, end: u64) -> PageRange {
        PageRange::between(PageNum::new(start), PageNum::new(end))
    }

    #[test]
    fn a_present_core_is_interrupted_and_misses_nothing() {
        let core = Presence::new();
        assert_eq!(core.enter(), None);
        assert!(core.must_interrupt(pages(1, 2)));
        core.leave();
        assert_eq!(core.enter(), None);
    }

    #[test]
    fn a_fill_from_elsewhere_sees_missed_notes() {
        let core = Presence::new();
        assert!(!core.must_interrupt(pages(1000, 1001)));
        assert_eq!((core.catch_up(), core.catch_up()), (Some(pages(512, 1024)), None));
        assert!(!core.is_here() && core.enter().is_none());
    }

    #[test]
    fn notes_add_up_to_a_hull_that_is_taken_once() {
        let core = Presence::new();
        assert!(!core.must_interrupt(pages(1000, 1001)));
        assert!(!core.must_interrupt(pages(0, 1)));
        assert_eq!(core.enter(), Some(pages(0, 1024)));
        core.leave();
        assert_eq!(core.enter(), None);
        core.leave();
        assert!(!core.must_interrupt(pages(5000, 5001)) && !core.must_interrupt(pages(1000, 1001)));
        assert_eq!(core.enter(), Some(pages(512, 5120)));
    }

    #[test]
    fn the_highest_page_fits() {
        let core = Presence::new();
        assert!(!core.must_interrupt(pages((1 << 36) - 1, 1 << 36)));
        assert_eq!(core.enter(), Some(pages((1 << 36) - SPAN, 1 << 36)));
    }
}
