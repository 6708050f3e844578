//! ASIDs: the numbers by which a core's TLB tells the translations of spaces apart, so that it keeps them
//! while other spaces run.
//!
//! A TLB that has such numbers (x86: PCID, elsewhere: ASID) uses an entry only under the number that it was
//! made under. So a core need not empty it when it goes from one space to another: it gives each space a
//! number of its own, and loads the table of one that comes back without a flush. Numbers are a core's
//! affair, as tables per core are: no line is shared.
//!
//! A core gives out *tickets*, 1, 2, 3, ... and never the same twice. Ticket `t` stands for the number `1 + t
//! % COUNT`; number 0 is left to a core that runs without a space.
//!
//! ```text
//!   COUNT = 3    ticket   1   2   3   4   5            the core has given 5: spaces c, d and e find their numbers
//!                number   2   3   1   2   3            as they left them; a's is d's by now, and b's is e's
//!                space    a   b   c   d   e
//! ```
//!
//! | the space's ticket on this core | the TLB, under its number | a load of the space's table |
//! |---|---|---|
//! | none | - | takes a ticket, flushes |
//! | good: of the last `COUNT` | what the space translated here | flushes if it missed something |
//! | older | what another space translated | takes a ticket, flushes |
//!
//! # Invariants
//!
//! 1. Tickets go round the numbers in turn: a number has another space from the moment its ticket is no more
//!    of the last `COUNT`. So a core needs to remember only one count.
//! 2. The first load with a ticket flushes: nothing is left of the space that had the number before, nor of
//!    tables in frames that now are other tables.
//! 3. Invalidations by other cores while this core is away are noted (`presence.rs`), and the load that ends
//!    its absence flushes.
//! 4. A core that changes or frees a space's tables while it does not run the space [`forget`](Asid::forget)s
//!    the ticket. So does an interrupt that arrives after the core has left.
//!
//! All state is the core's own and no other core reads it, so every access is Relaxed. Interrupt handlers
//! only forget tickets.

use sync::atomic::{AtomicU64, Ordering};

/// One core's numbers: 1 to `COUNT`.
#[derive(Debug, Default)]
pub struct Asids<const COUNT: u64> {
    /// The last ticket.
    given: AtomicU64,
}

/// The ticket of one space on one core.
#[derive(Debug, Default)]
pub struct Asid {
    /// The ticket, or 0 if there is none.
    ticket: AtomicU64,
}

/// The number that a core loads with a space's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// The space's number.
    pub number: u64,
    /// The TLB may have translations that the space made under this number, and no others.
    pub kept: bool,
}

impl Asid {
    sync::const_unless_loom! {
        /// None yet.
        pub fn new() -> Self {
            Self { ticket: AtomicU64::new(0) }
        }
    }

    /// Forgets the ticket, so that this core's TLB entries of the space are not used again. Called by the
    /// core while it does not run the space.
    #[inline]
    pub fn forget(&self) {
        self.ticket.store(0, Ordering::Relaxed);
    }
}

impl<const COUNT: u64> Asids<COUNT> {
    sync::const_unless_loom! {
        /// None given.
        pub fn new() -> Self {
            Self { given: AtomicU64::new(0) }
        }
    }

    /// Returns a number for the space that has `asid` on this core: its own if no other space has had it
    /// since.
    pub fn give(&self, asid: &Asid) -> Given {
        let (ticket, given) = (asid.ticket.load(Ordering::Relaxed), self.given.load(Ordering::Relaxed));
        if ticket != 0 && given - ticket < COUNT {
            return Given { number: number::<COUNT>(ticket), kept: true };
        }
        self.given.store(given + 1, Ordering::Relaxed);
        asid.ticket.store(given + 1, Ordering::Relaxed);
        Given { number: number::<COUNT>(given + 1), kept: false }
    }
}

fn number<const COUNT: u64>(ticket: u64) -> u64 {
    1 + ticket % COUNT
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_space_that_comes_back_soon_finds_its_number() {
        let (core, spaces) = (Asids::<3>::new(), [const { Asid::new() }; 3]);
        let first = spaces.each_ref().map(|space| core.give(space));
        let again = spaces.each_ref().map(|space| core.give(space));
        assert!(first.iter().all(|given| !given.kept) && again.iter().all(|given| given.kept));
        assert_eq!(first.map(|given| given.number), again.map(|given| given.number));
    }

    #[test]
    fn a_space_that_comes_back_late_finds_it_taken() {
        let (core, spaces) = (Asids::<3>::new(), [const { Asid::new() }; 4]);
        let first = spaces.each_ref().map(|space| core.give(space).number);
        assert_eq!(first[3], first[0]);
        assert!(!core.give(&spaces[0]).kept);
        assert!(core.give(&spaces[2]).kept && core.give(&spaces[3]).kept);
        assert!(!core.give(&spaces[1]).kept);
    }

    #[test]
    fn a_space_that_forgets_gets_another() {
        let (core, space) = (Asids::<3>::new(), Asid::new());
        let before = core.give(&space);
        space.forget();
        let after = core.give(&space);
        assert!(!after.kept && after.number != before.number);
    }
}
