//! Deferring, and what becomes of it.

use core::ptr::NonNull;

use percore::{CoreId, Pinned};
use sync::atomic::Ordering;

use crate::Domain;
use crate::epoch::GRACE;
use crate::local::{Core, Local, Running};
use crate::queue::{Head, Queue};

impl Domain {
    /// Has the head's callback run after a grace period, on some core. Needs no memory.
    ///
    /// # Panics
    /// If this core is offline.
    ///
    /// # Safety
    /// The head is deferred for the first time, or again after its callback ran; it lives until then, and the
    /// callback may be called from any core. The caller has unlinked the object that it is for, or will before this
    /// core is quiescent next: no read section that begins afterwards may find it.
    pub unsafe fn defer(&self, pin: &Pinned, head: NonNull<Head>) {
        let waiting = self.cores.mine(pin).with_queue(pin, |local| {
            assert!(local.online, "something was deferred on a core that is offline");
            local.queue.push(head, local.seen + GRACE);
            local.queue.len()
        });
        if waiting > self.bound {
            self.hurry();
        }
    }

    /// A core's regular duty: it is in no read section. Runs callbacks whose grace period is over, at most `batch`;
    /// if some wait, goes on with the grace period. Returns how many it ran. Does nothing on a core that is offline.
    ///
    /// # Panics
    /// Inside a read section, or a callback. If a callback does: it counts as run, and the next call goes on with those after
    /// it.
    pub fn quiesce(&self, pin: &Pinned) -> usize {
        if !self.is_online(pin) {
            return 0;
        }
        let target = self.cores.mine(pin).with_queue(pin, |local| {
            local.assert_quiescent();
            self.orphans.hand_to(&mut local.queue);
            local.queue.latest()
        });
        self.advance(pin, target);
        (0..self.batch).take_while(|_| self.run_one(pin)).count()
    }

    fn run_one(&self, pin: &Pinned) -> bool {
        let ripe = self.cores.mine(pin).with_queue(pin, |local| local.queue.pop_ripe(local.seen));
        ripe.map(|head| {
            let _running = Running::begin(self.cores.mine(pin), pin);
            // SAFETY: just taken off. Its date is an epoch that this core has seen.
            unsafe { Head::run(head) }
        })
        .is_some()
    }

    /// Whether [`quiesce`](Self::quiesce) has something to do: this core has not been quiescent in this epoch, or
    /// callbacks wait, here or without a core.
    #[inline]
    pub fn wants_quiesce(&self, pin: &Pinned) -> bool {
        let epoch = self.epoch();
        let wants = |local: &Local| local.online && (local.seen != epoch || local.queue.len() > 0);
        self.cores.mine(pin).look(pin, wants) || self.orphans.waiting() > 0
    }

    /// How many callbacks wait: a sum over counters that the cores keep for it, read without disturbing readers.
    pub fn backlog(&self) -> usize {
        self.cores.iter().map(Core::waiting).sum::<usize>() + self.orphans.waiting()
    }

    /// Whether more callbacks wait on this core than the bound. A writer that sees it, and holds no lock, may
    /// [`synchronize`](Self::synchronize) instead of adding to them.
    pub fn is_over_bound(&self, pin: &Pinned) -> bool {
        self.cores.mine(pin).look(pin, |local| local.queue.len() > self.bound)
    }

    /// Whether somebody waits for epochs to turn. A host that calls [`quiesce`](Self::quiesce) at a leisurely pace
    /// calls it at once when it sees this. Relaxed: a hint.
    #[inline]
    pub fn is_forced(&self) -> bool {
        self.epoch() < self.forced.load(Ordering::Relaxed)
    }

    /// Asks all cores for a whole grace period at once. Written once in a grace period, however many ask.
    fn hurry(&self) {
        let wanted = self.epoch() + GRACE;
        if !self.is_forced() {
            self.forced.fetch_max(wanted, Ordering::Relaxed);
        }
    }

    /// Waits until every read section that is open now has ended, on all cores. It waits for the other online cores
    /// to be quiescent: call it with no lock held, and with nothing that they wait for.
    ///
    /// # Panics
    /// Inside a read section or a callback, or if this core is offline; also if it comes to that while it waits, by what the
    /// host runs then.
    pub fn synchronize(&self, pin: &Pinned) {
        let target = self.cores.mine(pin).look(pin, |local| {
            local.assert_quiescent();
            local.seen + GRACE
        });
        while self.advance(pin, target) < target {
            self.hurry();
            percore::relax();
        }
    }

    /// Forces grace periods, one upon the other, until no callback waits on any core, as long as `go_on` says so.
    /// Returns how many callbacks this core ran. For shutdown, and for when memory is short; on the terms of
    /// [`synchronize`](Self::synchronize).
    ///
    /// # Panics
    /// As there.
    pub fn drain_while(&self, pin: &Pinned, go_on: impl Fn() -> bool) -> usize {
        let mut ran = 0;
        while self.backlog() > 0 && go_on() {
            // Each time: `go_on` and the host's wait may run anything.
            self.cores.mine(pin).look(pin, Local::assert_quiescent);
            self.hurry();
            match self.quiesce(pin) {
                0 => percore::relax(),
                some => ran += some,
            }
        }
        ran
    }
}

impl Drop for Domain {
    /// Guards borrow the domain, so no read section is open: every date has come. If a callback panics, those after it do not
    /// run, and what they would free is leaked.
    fn drop(&mut self) {
        let mut left = Queue::default();
        self.orphans.hand_to(&mut left);
        for core in (0..self.cores()).map(CoreId::new) {
            // SAFETY: the domain is ours alone, so nobody plays the core in it.
            let pin = unsafe { Pinned::assume(core) };
            self.cores.of(core).with(&pin, |local| left.append(core::mem::take(&mut local.queue)));
        }
        while let Some(head) = left.pop() {
            // SAFETY: just taken off, and no reader is left.
            unsafe { Head::run(head) }
        }
    }
}
