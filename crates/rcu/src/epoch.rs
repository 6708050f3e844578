//! Epochs: the state that each core announces, and the rule by which the epoch turns.
//!
//! There is one epoch word, and one word for each core, `told`, that only the core writes:
//!
//! | `told` | the core |
//! |---|---|
//! | OFFLINE, greater than every epoch | is in no read section, and announces a change before it begins one |
//! | ARRIVING, less than every epoch | comes online and has not read the epoch yet |
//! | e | is online, and was last quiescent after the epoch had become e |
//!
//! ```text
//!                             store ARRIVING; fence A; load epoch; store it
//!      OFFLINE  ------------------------------------------------------>  e
//!         ^                                                              |   quiescent: load epoch; store it, if it is
//!         +--------------------------------------------------------------+   another than the last
//!                              store OFFLINE
//!
//!      turn:  load epoch: e; fence T; load `told` of each core; if all are e or more: CAS epoch e -> e+1
//! ```
//!
//! 1. Let q be the epoch in which an online core was last quiescent. *The epoch is q or q+1*, until it is
//!    quiescent again.
//! 2. A callback that a core defers is dated q+3. *Everything that the core does until it is quiescent next
//!    is before the turn to q+2*, because that turn waits for the core. So an object may be deferred a little
//!    before it is unlinked.
//! 3. *A read section that may have found the object ends before the turn to q+3.* For that turn every core
//!    has announced q+2. Its sections from before have ended, and the sections that it begins afterwards come
//!    after the turn to q+2, hence after the unlinking.
//! 4. A core that runs a callback dated d has seen the epoch d.
//!
//! Orderings: `told` is stored with Release and loaded with Acquire, and so is the epoch. *Everything that a
//! core did before it announced e is before the turn to e+1, and that is before everything done by a core
//! that sees e+1.*
//!
//! **Coming online** is the one place where that is not enough, because no core waits for a core that is
//! OFFLINE. The arriving core stores and then loads, and the turning core loads and then loads again. Between
//! the two accesses of each stand the fences A and T, and one of them is first:
//!
//! - *T is first.* Everything that was before the turn to e is before T, hence before A. So the core finds
//!   the epoch e or a later one, which keeps 1: the turn to e+1 may still come, but the one after it needs
//!   another T, after A. It also finds nothing that was unlinked before the turn to e, which keeps 3.
//! - *A is first.* The loads after T find ARRIVING or something later: there is no turn before the core has
//!   been quiescent.
//!
//! A scan stops at the first core that is behind, and continues from there at the scanning core's next
//! quiescent state, if the epoch is still the same. The cores that it has passed may go offline and come back
//! meanwhile. The argument above holds, since T was before their A.

use percore::{CoreId, Pinned};
use sync::atomic::{Ordering, fence};

use crate::Domain;

/// The core is in no read section.
pub(crate) const OFFLINE: u64 = u64::MAX;
/// The core is about to read the epoch.
const ARRIVING: u64 = 0;
/// The first epoch.
pub(crate) const FIRST: u64 = 1;
/// Number of turns from the epoch in which a core was last quiescent to the one in which its callbacks may
/// run.
pub const GRACE: u64 = 3;

/// A scan of all cores, begun in `epoch`. Each core below `next` has announced it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    epoch: u64,
    next: usize,
}

impl Domain {
    /// Returns the current epoch. Acquire: partner of the turn.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns the epoch in which all callbacks that are deferred by now, on any core, may run. A core runs
    /// them when it is quiescent in that epoch.
    pub fn grace_end(&self) -> u64 {
        // A core that defers has seen this epoch or the one before it.
        self.epoch() + GRACE
    }

    /// Makes this core take part from now on. A core must be online before it reads or defers. Grace periods
    /// then wait for it until it goes [`offline`](Self::offline), even after the thread that played it has
    /// ended.
    pub fn online(&self, pin: &Pinned) {
        let core = self.cores.mine(pin);
        core.with(pin, |local| {
            if !local.online {
                // Relaxed: the fence orders it.
                core.told.store(ARRIVING, Ordering::Relaxed);
                fence(Ordering::SeqCst); // A, partner of T
                local.seen = self.epoch();
                // Relaxed: the fence before it makes it a release. Sections from before this core was offline
                // have ended.
                core.told.store(local.seen, Ordering::Relaxed);
                local.online = true;
            }
        });
    }

    /// Hands this core's waiting callbacks to the orphans and takes the core out of the domain, so that grace
    /// periods do not wait for it. Meant for a core that is about to idle, or a thread that is about to
    /// block.
    ///
    /// # Panics
    /// Panics inside a read section, or a callback.
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

    /// Returns whether this core takes part.
    #[inline]
    pub fn is_online(&self, pin: &Pinned) -> bool {
        self.cores.mine(pin).look(pin, |local| local.online)
    }

    /// Announces that this core is quiescent, and turns the epoch towards `target` as far as the other cores
    /// allow. Returns the epoch that it has reached.
    pub(crate) fn advance(&self, pin: &Pinned, target: u64) -> u64 {
        loop {
            let epoch = self.announce(pin);
            if epoch >= target || !self.turn(pin, epoch) {
                return epoch;
            }
        }
    }

    /// Announces that this core is quiescent in the current epoch, unless it has done so. This is where an
    /// open read section would be broken, so the check is here: a waiting core may run any code between one
    /// announcement and the next.
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

    /// Turns the epoch, if every core has announced it. Returns true if it is turned, by this core or
    /// another.
    fn turn(&self, pin: &Pinned, epoch: u64) -> bool {
        let complete = self.cores.mine(pin).with(pin, |local| {
            local.scan = self.look_on(local.scan, epoch);
            local.scan.next == self.cores()
        });
        // Release: everything that all cores did before they announced `epoch` is visible to cores that see
        // the next one. It need not acquire, because `announce` has loaded this epoch with Acquire, from the
        // same store. If the exchange fails, another core has turned the epoch, and the next load sees that.
        complete && {
            let _ = self.epoch.compare_exchange(epoch, epoch + 1, Ordering::Release, Ordering::Relaxed);
            true
        }
    }

    /// Continues `scan`, or begins anew if it is of another epoch, up to the first core that is behind.
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
