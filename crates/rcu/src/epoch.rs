//! Epochs: what cores tell about themselves, and who turns the epoch.
//!
//! There is one epoch word, and one word for each core, `told`, that only the core writes:
//!
//! | `told` | the core |
//! |---|---|
//! | OFFLINE, greater than every epoch | is in no read section, and will say so before it begins one |
//! | ARRIVING, less than every epoch | comes online; it has not looked at the epoch yet |
//! | e | is online; it was last quiescent after the epoch had become e |
//!
//! ```text
//!                     store ARRIVING; fence A; load epoch; store it
//!      OFFLINE  ------------------------------------------------------>  e
//!         ^                                                              |   quiescent: load epoch; store it, if it is
//!         +--------------------------------------------------------------+   another than the last
//!                              store OFFLINE
//!
//!      turn:  load epoch: e; fence T; load `told` of each core; if all are e or more: CAS epoch e -> e+1
//! ```
//!
//! 1. Let q be the epoch in which an online core was last quiescent. *The epoch is q or q+1*, until it is quiescent
//!    again.
//! 2. What a core defers is dated q+3. *Everything that the core does until it is quiescent next is before the turn
//!    to q+2*, because that turn waits for the core. So an object may be deferred a little before it is unlinked.
//! 3. *A read section that may have found the object ends before the turn to q+3.* For that turn every core has said
//!    q+2: its sections from before have ended, and those that it begins afterwards come after the turn to q+2, hence
//!    after the unlinking.
//! 4. A core that runs a callback dated d has seen the epoch d.
//!
//! Orderings: `told` is stored with Release and loaded with Acquire, and so is the epoch:
//! *what a core did before it said e is before the turn to e+1, and that is before whatever is done by those who see
//! it.*
//!
//! **Coming online** is the one place where that is not enough, because nobody waits for a core that is OFFLINE. The
//! arriving core stores and then loads, whoever turns loads and then loads again; between the two stand the fences A
//! and T, and one of them is first:
//!
//! - *T is first.* All that was before the turn to e is before T, hence before A: the core finds the epoch e or a
//!   later one (so 1 holds: the turn to e+1 may still come, but the one after it needs another T, after A), and it
//!   finds nothing that was unlinked before the turn to e (so 3 holds).
//! - *A is first.* The loads after T find ARRIVING or something later: there is no turn before the core has been
//!   quiescent.
//!
//! A scan stops at the first core that is behind, and goes on from there at the core's next quiescent state, if the
//! epoch is still the same. The cores that it has passed may come and go meanwhile: the argument above holds, for T
//! was before their A.

use percore::{CoreId, Pinned};
use sync::atomic::{Ordering, fence};

use crate::Domain;

/// The core is in no read section.
pub(crate) const OFFLINE: u64 = u64::MAX;
/// The core is about to look at the epoch.
const ARRIVING: u64 = 0;
/// The first epoch.
pub(crate) const FIRST: u64 = 1;
/// Turns from the epoch in which a core was last quiescent to the one in which its callbacks may run.
pub(crate) const GRACE: u64 = 3;

/// A look at all cores, begun in `epoch`: those below `next` have said it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    epoch: u64,
    next: usize,
}

impl Domain {
    /// The current epoch. Acquire: partner of the turn.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// This core takes part from now on. It must, before it reads or defers. Grace periods then wait for it until it goes
    /// [`offline`](Self::offline), also when the thread that played it has gone.
    pub fn online(&self, pin: &Pinned) {
        let core = self.cores.mine(pin);
        core.with(pin, |local| {
            if !local.online {
                // Relaxed: the fence orders it.
                core.told.store(ARRIVING, Ordering::Relaxed);
                fence(Ordering::SeqCst); // A, partner of T
                local.seen = self.epoch();
                // Relaxed: the fence before it makes it a release. Sections from before this core was offline have ended.
                core.told.store(local.seen, Ordering::Relaxed);
                local.online = true;
            }
        });
    }

    /// This core hands on the callbacks that wait for it, and takes no part any more: grace periods do not wait for
    /// it. For a core about to idle, or a thread about to block.
    ///
    /// # Panics
    /// Inside a read section, or a callback.
    pub fn offline(&self, pin: &Pinned) {
        let core = self.cores.mine(pin);
        core.with_queue(pin, |local| {
            if local.online {
                local.assert_quiescent();
                self.orphans.adopt_from(&mut local.queue);
                // Release: partner of the Acquire in `turn`. All sections of this core have ended.
                core.told.store(OFFLINE, Ordering::Release);
                local.online = false;
            }
        });
    }

    /// Whether this core takes part.
    #[inline]
    pub fn is_online(&self, pin: &Pinned) -> bool {
        self.cores.mine(pin).look(pin, |local| local.online)
    }

    /// This core is quiescent: says so, and turns the epoch towards `target` as far as the other cores let it.
    /// Returns the epoch that it has come to.
    pub(crate) fn advance(&self, pin: &Pinned, target: u64) -> u64 {
        loop {
            let epoch = self.announce(pin);
            if epoch >= target || !self.turn(pin, epoch) {
                return epoch;
            }
        }
    }

    /// Says that this core is quiescent in the current epoch, unless it has said so. This is where a read section would be
    /// broken, so the check is here: those who wait run anybody's code between one announcement and the next.
    fn announce(&self, pin: &Pinned) -> u64 {
        let core = self.cores.mine(pin);
        let epoch = self.epoch();
        core.with(pin, |local| {
            local.assert_quiescent();
            if local.seen != epoch {
                local.seen = epoch;
                // Release: partner of the Acquire in `turn`. The sections of this core have ended.
                core.told.store(epoch, Ordering::Release);
            }
        });
        epoch
    }

    /// Turns the epoch, if every core has said it. True: it is turned, by this core or another.
    fn turn(&self, pin: &Pinned, epoch: u64) -> bool {
        let complete = self.cores.mine(pin).with(pin, |local| {
            local.scan = self.look_on(local.scan, epoch);
            local.scan.next == self.cores()
        });
        // Release: what all cores did before they said `epoch` goes on to those who see the next one. It need not acquire:
        // `announce` has loaded this epoch with Acquire, from the same store. If it fails, another core has turned it: the
        // next load will find that.
        complete && {
            let _ = self.epoch.compare_exchange(epoch, epoch + 1, Ordering::Release, Ordering::Relaxed);
            true
        }
    }

    /// Goes on with `scan`, or begins anew if it is of another epoch, up to the first core that is behind.
    fn look_on(&self, mut scan: Scan, epoch: u64) -> Scan {
        if scan.epoch != epoch {
            scan = Scan { epoch, next: 0 };
            fence(Ordering::SeqCst); // T, partner of A
        }
        // Acquire: partner of the Release in `announce` and `offline`.
        let has_said = |core| self.cores.of(CoreId::new(core)).told.load(Ordering::Acquire) >= epoch;
        while scan.next < self.cores() && has_said(scan.next) {
            scan.next += 1;
        }
        scan
    }
}
