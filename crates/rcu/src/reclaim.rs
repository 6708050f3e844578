//! Deferring callbacks, running them, and waiting for grace periods.

use core::ptr::NonNull;

use percore::{CoreId, Pinned};
use sync::atomic::Ordering;

use crate::Domain;
use crate::epoch::GRACE;
use crate::local::{Core, Local, Running};
use crate::queue::{Head, Queue};

impl Domain {
    /// Defers the head's callback: it runs after a grace period, on some core. Needs no memory.
    ///
    /// # Panics
    /// Panics if this core is offline.
    ///
    /// # Safety
    /// The head is deferred for the first time, or again after its callback ran. It lives until the callback
    /// runs, and the callback may be called from any core. The caller has unlinked the object that the
    /// callback is for, or will before this core is quiescent next: no read section that begins afterwards
    /// may find it.
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

    /// Does a core's regular work in a quiescent state. Runs callbacks whose grace period is over, at most
    /// `batch` of them, and advances the grace period if callbacks wait. Returns the number that it ran. Does
    /// nothing on a core that is offline.
    ///
    /// # Panics
    /// Panics inside a read section, or a callback. Panics if a callback does: it counts as run, and the next
    /// call continues with the following callbacks.
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
        self.run_ripe(pin)
    }

    /// Runs callbacks of this core whose grace period is known to be over, at most `batch` of them. Returns
    /// the number that it ran. If that is `batch`, there may be more. It touches no line of another core.
    ///
    /// # Panics
    /// Panics inside a callback, and if a callback does.
    pub fn run_ripe(&self, pin: &Pinned) -> usize {
        self.cores.mine(pin).look(pin, Local::assert_runs_no_callback);
        (0..self.batch).take_while(|_| self.run_one(pin)).count()
    }

    fn run_one(&self, pin: &Pinned) -> bool {
        let ripe = self.cores.mine(pin).with_queue(pin, |local| local.queue.pop_ripe(local.seen));
        ripe.map(|head| {
            let _running = Running::begin(self.cores.mine(pin), pin);
            // SAFETY: the head was just taken off. Its date is an epoch that this core has seen.
            unsafe { Head::run(head) }
        })
        .is_some()
    }

    /// Returns whether [`quiesce`](Self::quiesce) has work: this core has not been quiescent in this epoch,
    /// or callbacks wait, on this core or as orphans.
    #[inline]
    pub fn wants_quiesce(&self, pin: &Pinned) -> bool {
        let epoch = self.epoch();
        let is_behind = |local: &Local| local.online && local.seen != epoch;
        self.cores.mine(pin).look(pin, is_behind) || self.has_waiting(pin)
    }

    /// Returns whether callbacks wait on this core, or as orphans.
    #[inline]
    pub fn has_waiting(&self, pin: &Pinned) -> bool {
        self.cores.mine(pin).look(pin, |local| local.queue.len() > 0) || self.orphans.waiting() > 0
    }

    /// Returns the number of waiting callbacks. It sums counters that each core publishes, so it does not
    /// disturb readers.
    pub fn backlog(&self) -> usize {
        self.cores.iter().map(Core::waiting).sum::<usize>() + self.orphans.waiting()
    }

    /// Returns whether more callbacks wait on this core than the bound. A writer that sees it, and holds no
    /// lock, may [`synchronize`](Self::synchronize) instead of adding to them.
    pub fn is_over_bound(&self, pin: &Pinned) -> bool {
        self.cores.mine(pin).look(pin, |local| local.queue.len() > self.bound)
    }

    /// Returns whether a core waits for epochs to turn. A host that calls [`quiesce`](Self::quiesce) rarely
    /// should call it at once when it sees this. Relaxed: a hint.
    #[inline]
    pub fn is_forced(&self) -> bool {
        self.epoch() < self.forced.load(Ordering::Relaxed)
    }

    /// Asks all cores for a whole grace period at once. Written once in a grace period, no matter how many
    /// cores ask.
    fn hurry(&self) {
        let wanted = self.epoch() + GRACE;
        if !self.is_forced() {
            self.forced.fetch_max(wanted, Ordering::Relaxed);
        }
    }

    /// Waits until every read section that is open now has ended, on all cores. It waits for the other online
    /// cores to be quiescent, so the caller must hold no lock and nothing else that they wait for.
    ///
    /// # Panics
    /// Panics inside a read section or a callback, or if this core is offline. Panics also if code that the
    /// host runs during the wait brings the core into one of these states.
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

    /// Forces grace periods, one after the other, until no callback waits on any core, or `go_on` returns
    /// false. Returns the number of callbacks that this core ran. Meant for shutdown, and for when memory is
    /// short. The conditions of [`synchronize`](Self::synchronize) hold.
    ///
    /// # Panics
    /// Panics where [`synchronize`](Self::synchronize) does.
    pub fn drain_while(&self, pin: &Pinned, go_on: impl Fn() -> bool) -> usize {
        let mut ran = 0;
        while self.backlog() > 0 && go_on() {
            // Checked in each round, since `go_on` and the host's wait may run any code.
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
    /// Runs all callbacks. Guards borrow the domain, so no read section is open, and every date has come. If
    /// a callback panics, the following ones do not run, and the memory that they would free is leaked.
    fn drop(&mut self) {
        let mut left = Queue::default();
        self.orphans.hand_to(&mut left);
        for core in (0..self.cores()).map(CoreId::new) {
            // SAFETY: the domain is ours alone, so no thread plays the core in it.
            let pin = unsafe { Pinned::assume(core) };
            self.cores.of(core).with(&pin, |local| left.append(core::mem::take(&mut local.queue)));
        }
        while let Some(head) = left.pop() {
            // SAFETY: the head was just taken off, and no reader is left.
            unsafe { Head::run(head) }
        }
    }
}
