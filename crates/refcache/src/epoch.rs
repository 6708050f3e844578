//! Epochs: the barrier, and a core's dealings with it.
//!
//! The whole barrier is one word, `epoch | online | remaining`, changed only by compare-and-swap:
//!
//! | event | online | remaining | the core |
//! |---|---|---|---|
//! | a core comes online | +1 | | counts as having flushed in this epoch; its cache is empty |
//! | a core arrives | | -1 | has just flushed, for the first time in this epoch |
//! | a core goes offline | -1 | -1, if it has not flushed in this epoch | has just flushed |
//! | a core dozes, or wakes | | | `doze.rs`; a core that dozes counts as online until another takes it offline |
//! | then, if `remaining` is 0 | | := online | and `epoch` += 1 |
//!
//! 1. `remaining` is the number of online cores that have not flushed in this epoch.
//! 2. An online core's last flush was in this epoch or in the one before: an epoch ends only when every core
//!    that was online at its beginning has flushed in it, or has flushed and left.
//! 3. Offline cores hold no deltas and no loans, and nobody waits for them. A domain without online cores
//!    stands still.
//!
//! Orderings: `update` is AcqRel and `epoch` is Acquire; they pair with each other. Whatever a core did
//! before it arrived (or left) in epoch e happens before whatever any core does after it saw (or joined)
//! epoch e+1. The rest of this crate leans on that, and on little else.

use core::mem;

use percore::Pinned;
use sync::atomic::{AtomicU64, Ordering};

use crate::Refcache;
use crate::cache::Evicted;
use crate::doze::Parked;
use crate::local::{self, Core, Local};

/// How many epochs [`Refcache::drain`] goes on after it last saw something move. Let that be in epoch e. What is in a
/// cache then is flushed in e+1 at the latest, and is seen by a look that comes after the turn to e+2. There is such a look
/// in e+2, after this core's flush. The end of e+1 is not enough: the others may turn it after this core has looked.
const QUIET_EPOCHS: u64 = 3;
/// How many epochs it waits, at least, for objects that are never found dead.
const IN_USE_EPOCHS: u64 = 16;
/// How many reviews it waits for, at least, for each of them: most of a long queue may be found dirty once before the first
/// is found dead.
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
/// All cores, and one for those who have none.
const _: () = assert!((percore::MAX_CORES as u64) < FIELD_MASK);

impl Barrier {
    sync::const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// The current epoch. Acquire: see the file's head.
    #[inline]
    fn epoch(&self) -> u64 {
        State::unpack(self.0.load(Ordering::Acquire)).epoch
    }

    /// A core has flushed, for the first time in this epoch.
    fn arrive(&self) {
        self.update(|state| state.remaining -= 1);
    }

    /// A core comes. Returns the epoch in which it counts as having flushed.
    fn join(&self) -> u64 {
        self.update(|state| state.online += 1).epoch
    }

    /// A core goes that has flushed just now, and before that in epoch `flushed`.
    fn leave(&self, flushed: u64) {
        self.update(|state| {
            state.online -= 1;
            state.remaining -= u64::from(state.epoch != flushed);
        });
    }

    /// Changes the state, and turns the epoch if that leaves nobody to wait for. Returns the state before.
    fn update(&self, change: impl Fn(&mut State)) -> State {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let before = State::unpack(seen);
            let mut after = before;
            change(&mut after);
            after.turn_if_complete();
            // AcqRel: see the file's head.
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
    /// The current epoch.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.barrier.epoch()
    }

    /// This core takes part from now on. It must, before it adjusts a count or takes a [`Loan`](crate::Loan). Epochs then wait
    /// for its ticks until it goes [`offline`](Self::offline), also when the thread that played it has gone.
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
            // After the queue's length has been published.
            core.doze_slot.free();
        }
    }

    /// This core flushes, and is offline until it calls [`online`](Self::online); but it keeps its place in the epochs and its review
    /// queue, and takes them up again if nobody needed them: then neither this nor `online` writes what other cores read. Another
    /// core, whose epoch waits for this one, takes it [`offline`](Self::offline) for good. For a core that is about to idle, and may be
    /// back soon.
    ///
    /// It does not do so, and returns false, if more than `most` objects wait for its review: if all cores doze, nobody
    /// reviews them. A core that is offline stays so.
    ///
    /// # Panics
    /// If the core has a [`Loan`](crate::Loan), or is inside of a release.
    pub fn doze(&self, pin: &Pinned, most: usize) -> bool {
        let core = self.cores.mine(pin);
        core.with(pin, |local| {
            if !local.online {
                return true;
            }
            local.assert_idle();
            // An entry may be evicted at any time: the barrier need not know.
            local.flush();
            let may = local.queue.len() <= most && core.doze_slot.is_free();
            if may {
                local.online = false;
                let parked = Parked { queue: mem::take(&mut local.queue), flushed: local.flushed };
                // SAFETY: this core's seat, found free.
                unsafe { core.doze_slot.park(parked) };
            }
            may
        })
    }

    /// Takes the cores that doze out of the epochs: they may be what this epoch waits for.
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

    /// This core flushes, hands on the objects that wait for its review, and takes no part any more: epochs
    /// turn without it. For a core about to idle, or a thread about to block.
    ///
    /// # Panics
    /// If the core has a [`Loan`](crate::Loan), or is inside of a release.
    pub fn offline(&self, pin: &Pinned) {
        let core = self.cores.mine(pin);
        core.with(pin, |local| {
            if local.online {
                local.assert_idle();
                self.leave(local);
            }
        });
        // It may doze.
        self.end_doze(core);
    }

    /// The core is online and idle.
    fn leave(&self, local: &mut Local) {
        local.flush();
        self.orphans.adopt_from(&mut local.queue);
        self.barrier.leave(local.flushed);
        local.online = false;
    }

    /// Calls `f` with this core online, which afterwards is as it was before.
    ///
    /// # Panics
    /// If `f` does, or leaves a [`Loan`](crate::Loan) on a core that was offline. The core then stays online if it has a
    /// loan.
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

    /// Whether this core takes part.
    #[inline]
    pub fn is_online(&self, pin: &Pinned) -> bool {
        self.cores.mine(pin).look(pin, |local| local.online)
    }

    /// Whether [`tick`](Self::tick) has something to do: this core has not flushed in this epoch, an
    /// object that waits for its review is ripe, or the epoch may wait for a core that [`doze`](Self::doze)s.
    #[inline]
    pub fn wants_tick(&self, pin: &Pinned) -> bool {
        let epoch = self.epoch();
        let wants = |local: &Local| local.flushed != epoch || local.queue.is_ripe(epoch);
        self.is_online(pin)
            && (self.cores.mine(pin).look(pin, wants)
                || self.cores.iter().any(|core| core.doze_slot.is_parked()))
    }

    /// Whether somebody [`drain`](Self::drain)s and waits for this epoch to turn. A host that ticks at a
    /// leisurely pace ticks at once when it sees this. Relaxed: a hint.
    #[inline]
    pub fn is_forced(&self) -> bool {
        self.epoch() < self.forced.load(Ordering::Relaxed)
    }

    /// Forces epochs, one upon the other, until no object waits for review on any core, or none of them was released, here
    /// or elsewhere, for 16 epochs and two reviews of each: they seem to be in use. Others that go on releasing keep it
    /// going, too. Returns how many objects this core released.
    ///
    /// For shutdown, and for when memory is short. It waits for the other online cores to tick: call it with
    /// no lock held, and with nothing that they wait for.
    ///
    /// # Panics
    /// If this core is offline (its epochs might never turn), has a [`Loan`](crate::Loan), or is inside of a release.
    pub fn drain(&self, pin: &Pinned) -> usize {
        self.drain_while(pin, || true)
    }

    /// [`drain`](Self::drain), as long as `go_on` says so: for a host that may not wait for ever.
    ///
    /// # Panics
    /// As there.
    pub fn drain_while(&self, pin: &Pinned, go_on: impl Fn() -> bool) -> usize {
        let (mut freed, mut quiet_since, mut progress) = (0, self.epoch(), self.progress());
        while self.epoch() < quiet_since + QUIET_EPOCHS && !self.seem_in_use_since(&progress) && go_on() {
            // Each time: `go_on` and the host's wait may run anything.
            assert!(self.is_online(pin), "a core that is offline cannot force epochs");
            self.forced.fetch_max(self.epoch() + QUIET_EPOCHS, Ordering::Relaxed);
            let tick = self.tick(pin);
            freed += tick.freed;
            // First: what has left a queue by now counts as released.
            let garbage = self.garbage();
            if self.released() != progress.released {
                progress = self.progress();
                quiet_since = progress.epoch;
            }
            if garbage > 0 {
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

    /// Whether the objects that wait seem to be in use: none was released since `last`.
    fn seem_in_use_since(&self, last: &Progress) -> bool {
        let reviews = self.reviewed().wrapping_sub(last.reviewed);
        self.epoch() >= last.epoch + IN_USE_EPOCHS && reviews / IN_USE_REVIEWS >= self.garbage()
    }

    /// Applies a delta for a caller on no core, or on one that is offline: as a core of its own would that comes online,
    /// touches the object and goes. One caller at a time plays it, under the lock of the orphans.
    #[cold]
    pub(crate) fn evict_from_outside(&self, evicted: Evicted) {
        self.orphans.with(|queue| {
            let flushed = self.barrier.join();
            local::evict(queue, flushed + 1, evicted);
            self.barrier.leave(flushed);
        });
    }

    /// Flushes, unless this core is offline or has flushed in this epoch; tells whether it did.
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
            // After the queue's length has been published: a drain that sees the epoch turn sees what the flush has found.
            self.barrier.arrive();
        }
        due
    }
}

/// What a drain saw when it last saw an object released.
struct Progress {
    epoch: u64,
    released: usize,
    reviewed: usize,
}

/// A core is online for the time of a call that may panic. Dropped when it does.
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
