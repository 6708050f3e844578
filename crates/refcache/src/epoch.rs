//! Epochs: the barrier, and the calls by which a core takes part in it.
//!
//! The whole barrier is one word, `epoch | online | remaining`, changed only by compare-and-swap:
//!
//! | event | online | remaining | the core |
//! |---|---|---|---|
//! | a core comes online | +1 | | counts as having flushed in this epoch, since its cache is empty |
//! | a core arrives | | -1 | has just flushed, for the first time in this epoch |
//! | a core goes offline | -1 | -1, if it has not flushed in this epoch | has just flushed |
//! | a core dozes, or wakes | | | see `doze.rs`: a core that dozes counts as online until another takes it offline |
//! | then, if `remaining` is 0 | | := online | and `epoch` += 1 |
//!
//! 1. `remaining` is the number of online cores that have not flushed in this epoch.
//! 2. An online core's last flush was in this epoch or in the one before: an epoch ends only when every core
//!    that was online at its beginning has flushed in it, or has flushed and left.
//! 3. Offline cores hold no deltas and no loans, and no core waits for them. In a domain without online cores
//!    the epoch does not change.
//!
//! Orderings: `update` is AcqRel, `epoch` is Acquire, and they pair with each other. Everything that a core
//! did before it arrived (or left) in epoch e happens before everything that any core does after it saw (or
//! joined) epoch e+1. The rest of this crate depends on that, and on few other orderings.

use core::mem;

use percore::Pinned;
use sync::atomic::{AtomicU64, Ordering};

use crate::Refcache;
use crate::cache::Evicted;
use crate::doze::Parked;
use crate::local::{self, Core, Local};

/// Epochs for which [`Refcache::drain`] goes on after it last saw an object wait, be released or kept. Let
/// that be in epoch e. A delta that is in a cache then is flushed in e+1 at the latest, and a look after the
/// turn to e+2 sees the object. There is such a look in e+2, after this core's flush. The end of e+1 is not
/// enough: the others may turn it after this core has looked.
const QUIET_EPOCHS: u64 = 3;
/// The smallest number of epochs that a drain waits for objects that are never found dead.
const IN_USE_EPOCHS: u64 = 16;
/// The smallest number of reviews that a drain waits for, per waiting object. Most of a long queue may be
/// found dirty once before the first object is found dead.
const IN_USE_REVIEWS: usize = 2;

/// epoch (44 bits) | online (10 bits) | remaining (10 bits).
#[derive(Debug)]
pub(crate) struct Barrier(AtomicU64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    epoch: u64,
    online: u64,
    remaining: u64,
}

const FIELD: u32 = 10;
const FIELD_MASK: u64 = (1 << FIELD) - 1;
/// The field counts all cores, and one more for threads that have no core.
const _: () = assert!((percore::MAX_CORES as u64) < FIELD_MASK);

impl Barrier {
    sync::const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// Returns the current epoch. Acquire: see the module.
    #[inline]
    fn epoch(&self) -> u64 {
        State::unpack(self.0.load(Ordering::Acquire)).epoch
    }

    /// Records that a core has flushed, for the first time in this epoch.
    fn arrive(&self) {
        self.update(|state| state.remaining -= 1);
    }

    /// Adds a core. Returns the epoch in which it counts as having flushed.
    fn join(&self) -> u64 {
        self.update(|state| state.online += 1).epoch
    }

    /// Removes a core that has just flushed, and flushed before that in epoch `flushed`.
    fn leave(&self, flushed: u64) {
        self.update(|state| {
            state.online -= 1;
            state.remaining -= u64::from(state.epoch != flushed);
        });
    }

    /// Changes the state, and turns the epoch if no core is left to wait for. Returns the state before.
    fn update(&self, change: impl Fn(&mut State)) -> State {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let before = State::unpack(seen);
            let mut after = before;
            change(&mut after);
            after.turn_if_complete();
            // AcqRel: see the module.
            match self.0.compare_exchange_weak(seen, after.pack(), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return before,
                Err(now) => seen = now,
            }
        }
    }
}

impl State {
    fn unpack(word: u64) -> Self {
        Self { epoch: word >> (2 * FIELD), online: word >> FIELD & FIELD_MASK, remaining: word & FIELD_MASK }
    }

    fn pack(self) -> u64 {
        self.epoch << (2 * FIELD) | self.online << FIELD | self.remaining
    }

    fn turn_if_complete(&mut self) {
        if self.remaining == 0 {
            self.epoch += 1;
            self.remaining = self.online;
        }
    }
}

impl Refcache {
    /// Returns the current epoch.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.barrier.epoch()
    }

    /// Makes this core take part from now on. A core must be online before it adjusts a count or takes a
    /// [`Loan`](crate::Loan). Epochs then wait for its ticks until it goes [`offline`](Self::offline), even
    /// after the thread that played it has ended.
    pub fn online(&self, pin: &Pinned) {
        let core = self.cores.mine(pin);
        let dozed = core.with(pin, |local| {
            let left = (!local.online).then(|| core.doze_slot.take()).flatten();
            let dozed = left.is_some();
            if let Some(Parked { queue, flushed }) = left {
                (local.queue, local.flushed) = (queue, flushed);
            } else if !local.online {
                local.flushed = self.barrier.join();
            }
            local.online = true;
            dozed
        });
        if dozed {
            // This follows the store that publishes the queue's length.
            core.doze_slot.free();
        }
    }

    /// Flushes, and takes this core offline until it calls [`online`](Self::online), but keeps its place in
    /// the epochs and its review queue. `online` restores both if no other core needed them. Then neither
    /// call writes a line that other cores read. A core whose epoch waits for this one takes it
    /// [`offline`](Self::offline) for good. Meant for a core that is about to idle and may be back soon.
    ///
    /// Does nothing and returns false if more than `most` objects wait for this core's review: if all cores
    /// doze, no core reviews them. A core that is offline stays offline.
    ///
    /// # Panics
    /// Panics if the core has a [`Loan`](crate::Loan), or is inside a release.
    pub fn doze(&self, pin: &Pinned, most: usize) -> bool {
        let core = self.cores.mine(pin);
        core.with(pin, |local| {
            if !local.online {
                return true;
            }
            local.assert_idle();
            // An entry may be evicted at any time, so the barrier need not be told.
            local.flush();
            let may = local.queue.len() <= most && core.doze_slot.is_free();
            if may {
                local.online = false;
                let parked = Parked { queue: mem::take(&mut local.queue), flushed: local.flushed };
                // SAFETY: the slot is this core's own, and was found free.
                unsafe { core.doze_slot.park(parked) };
            }
            may
        })
    }

    /// Takes the cores that doze out of the epochs, since this epoch may wait for them.
    pub(crate) fn end_dozes(&self) {
        self.cores.iter().for_each(|core| self.end_doze(core));
    }

    fn end_doze(&self, core: &Core) {
        if let Some(Parked { mut queue, flushed }) = core.doze_slot.take() {
            self.orphans.adopt_from(&mut queue);
            core.doze_slot.free();
            self.barrier.leave(flushed);
        }
    }

    /// Flushes, hands the objects that wait for this core's review to the orphans, and takes the core out of
    /// the epochs, which turn without it. Meant for a core that is about to idle, or a thread that is about
    /// to block.
    ///
    /// # Panics
    /// Panics if the core has a [`Loan`](crate::Loan), or is inside a release.
    pub fn offline(&self, pin: &Pinned) {
        let core = self.cores.mine(pin);
        core.with(pin, |local| {
            if local.online {
                local.assert_idle();
                self.leave(local);
            }
        });
        // The core may be dozing.
        self.end_doze(core);
    }

    /// Takes a core offline that is online and idle.
    fn leave(&self, local: &mut Local) {
        local.flush();
        self.orphans.adopt_from(&mut local.queue);
        self.barrier.leave(local.flushed);
        local.online = false;
    }

    /// Calls `f` with this core online, and restores the core's state afterwards.
    ///
    /// # Panics
    /// Panics if `f` does, or if `f` leaves a [`Loan`](crate::Loan) on a core that was offline. The core then
    /// stays online if it has a loan.
    pub fn while_online<R>(&self, pin: &Pinned, f: impl FnOnce() -> R) -> R {
        if self.is_online(pin) {
            return f();
        }
        self.online(pin);
        let visit = Visit { domain: self, pin };
        let result = f();
        mem::forget(visit);
        self.offline(pin);
        result
    }

    /// Returns whether this core takes part.
    #[inline]
    pub fn is_online(&self, pin: &Pinned) -> bool {
        self.cores.mine(pin).look(pin, |local| local.online)
    }

    /// Returns whether [`tick`](Self::tick) has work: this core has not flushed in this epoch, an object that
    /// waits for its review is ripe, or the epoch may wait for a core that [`doze`](Self::doze)s.
    #[inline]
    pub fn wants_tick(&self, pin: &Pinned) -> bool {
        let epoch = self.epoch();
        let wants = |local: &Local| local.flushed != epoch || local.queue.is_ripe(epoch);
        self.is_online(pin)
            && (self.cores.mine(pin).look(pin, wants)
                || self.cores.iter().any(|core| core.doze_slot.is_parked()))
    }

    /// Returns whether a [`drain`](Self::drain) waits for this epoch to turn. A host that ticks rarely should
    /// tick at once when it sees this. Relaxed: a hint.
    #[inline]
    pub fn is_forced(&self) -> bool {
        self.epoch() < self.forced.load(Ordering::Relaxed)
    }

    /// Forces epochs, one after the other, until no object waits for review on any core. Gives up when no
    /// core has released an object for 16 epochs and two reviews of each waiting object: they seem to be in
    /// use. So the drain goes on as long as any core releases objects, without those that their release
    /// [keeps](Self::note_kept). Returns the number of objects that this core released.
    ///
    /// Meant for shutdown, and for when memory is short. It waits for the other online cores to tick, so the
    /// caller must hold no lock and nothing else that they wait for.
    ///
    /// # Panics
    /// Panics if this core is offline (its epochs might never turn), has a [`Loan`](crate::Loan), or is
    /// inside a release.
    pub fn drain(&self, pin: &Pinned) -> usize {
        self.drain_while(pin, || true)
    }

    /// Drains as [`drain`](Self::drain) does, but only while `go_on` returns true. Meant for a host whose
    /// wait must be bounded.
    ///
    /// # Panics
    /// Panics where [`drain`](Self::drain) does.
    pub fn drain_while(&self, pin: &Pinned, go_on: impl Fn() -> bool) -> usize {
        let (mut freed, mut quiet_since, mut progress) = (0, self.epoch(), self.progress());
        let mut kept = self.kept();
        while self.epoch() < quiet_since + QUIET_EPOCHS && !self.seem_in_use_since(&progress) && go_on() {
            // Checked in each round, since `go_on` and the host's wait may run any code.
            assert!(self.is_online(pin), "a core that is offline cannot force epochs");
            self.forced.fetch_max(quiet_since + QUIET_EPOCHS, Ordering::Relaxed);
            let tick = self.tick(pin);
            freed += tick.freed;
            // Read first: an object that has left a queue by now counts as released or kept.
            let garbage = self.garbage();
            if self.released() != progress.released {
                progress = self.progress();
                quiet_since = progress.epoch;
            }
            if garbage > 0 || mem::replace(&mut kept, self.kept()) != kept {
                quiet_since = self.epoch();
            }
            if !tick.flushed {
                percore::relax();
            }
        }
        freed
    }

    fn progress(&self) -> Progress {
        Progress { epoch: self.epoch(), released: self.released(), reviewed: self.reviewed() }
    }

    /// Returns whether the waiting objects seem to be in use, because none was released since `last`.
    fn seem_in_use_since(&self, last: &Progress) -> bool {
        let reviews = self.reviewed().wrapping_sub(last.reviewed);
        self.epoch() >= last.epoch + IN_USE_EPOCHS && reviews / IN_USE_REVIEWS >= self.garbage()
    }

    /// Applies a delta for a caller on no core, or on one that is offline. The call does the work of an extra
    /// core that comes online, touches the object and goes offline. The orphans' lock lets one caller at a
    /// time be that core.
    #[cold]
    pub(crate) fn evict_from_outside(&self, evicted: Evicted) {
        self.orphans.with(|queue| {
            let flushed = self.barrier.join();
            local::evict(queue, flushed + 1, evicted);
            self.barrier.leave(flushed);
        });
    }

    /// Flushes, unless this core is offline or has flushed in this epoch. Returns whether it flushed.
    pub(crate) fn flush_if_due(&self, pin: &Pinned) -> bool {
        let epoch = self.epoch();
        let due = self.cores.mine(pin).with(pin, |local| {
            let due = local.online && local.flushed != epoch;
            if due {
                local.flush();
                local.flushed = epoch;
            }
            due
        });
        if due {
            // This follows the store that publishes the queue's length: a drain that sees the epoch turn sees
            // the objects that the flush queued.
            self.barrier.arrive();
        }
        due
    }
}

/// The state that a drain saw when it last saw an object released.
struct Progress {
    epoch: u64,
    released: usize,
    reviewed: usize,
}

/// Keeps a core online during a call that may panic. It is dropped only if the call panics.
struct Visit<'a> {
    domain: &'a Refcache,
    pin: &'a Pinned,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let Self { domain, pin } = self;
        domain.cores.mine(pin).with(pin, |local| {
            if local.online && local.is_idle() {
                domain.leave(local);
            }
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn state(barrier: &Barrier) -> (u64, u64, u64) {
        let State { epoch, online, remaining } = State::unpack(barrier.0.load(Ordering::Relaxed));
        (epoch, online, remaining)
    }

    #[test]
    fn an_epoch_turns_when_every_online_core_has_flushed() {
        let barrier = Barrier::new();
        assert_eq!(barrier.join(), 0);
        assert_eq!(state(&barrier), (1, 1, 1));
        assert_eq!(barrier.join(), 1);
        assert_eq!(state(&barrier), (1, 2, 1), "the second core counts as having flushed");
        barrier.arrive();
        assert_eq!(state(&barrier), (2, 2, 2));
        barrier.arrive();
        assert_eq!(state(&barrier), (2, 2, 1));
    }

    #[test]
    fn a_core_that_leaves_is_not_waited_for() {
        let barrier = Barrier::new();
        for _ in 0..3 {
            barrier.join();
        }
        barrier.arrive();
        assert_eq!(state(&barrier), (2, 3, 3));
        barrier.arrive();
        barrier.leave(2);
        assert_eq!(state(&barrier), (2, 2, 2), "it had flushed already");
        barrier.leave(1);
        assert_eq!(state(&barrier), (2, 1, 1), "it had not");
        barrier.leave(1);
        assert_eq!(state(&barrier), (3, 0, 0), "nobody is left");
        assert_eq!(barrier.join(), 3);
        assert_eq!(state(&barrier), (4, 1, 1));
    }

    #[test]
    fn the_word_holds_every_core_there_can_be() {
        let barrier = Barrier::new();
        for _ in 0..percore::MAX_CORES {
            barrier.join();
        }
        barrier.arrive();
        let all = percore::MAX_CORES as u64;
        assert_eq!(state(&barrier), (2, all, all));
    }
}
