//! The epoch barrier: one word.

use sync::atomic::{AtomicU64, Ordering};

/// epoch (44 bits) | cores online (10 bits) | of them, not yet flushed in this epoch (10 bits).
#[derive(Debug)]
pub(crate) struct Barrier(AtomicU64);

#[derive(Clone, Copy, Debug)]
struct State {
    epoch: u64,
    online: u64,
    remaining: u64,
}

const FIELD: u32 = 10;
const MASK: u64 = (1 << FIELD) - 1;

impl Barrier {
    sync::const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// The current epoch. Acquire pairs with the AcqRel in `update`: what any core did before it arrived in an earlier
    /// epoch is seen.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        State::unpack(self.0.load(Ordering::Acquire)).epoch
    }

    /// An online core has flushed in this epoch.
    pub(crate) fn arrive(&self) {
        self.update(|state| state.remaining -= 1);
    }

    /// A core comes; it counts as having flushed in the epoch that is returned.
    pub(crate) fn join(&self) -> u64 {
        self.update(|state| state.online += 1).epoch
    }

    /// A core goes, which last flushed in epoch `flushed`, and has flushed just now.
    pub(crate) fn leave(&self, flushed: u64) {
        self.update(|state| {
            state.online -= 1;
            state.remaining -= u64::from(state.epoch != flushed);
        });
    }

    /// Changes the state, and turns the epoch if that leaves nobody to wait for. Returns the state from before.
    fn update(&self, change: impl Fn(&mut State)) -> State {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let before = State::unpack(seen);
            let mut after = before;
            change(&mut after);
            after.turn_if_complete();
            // AcqRel pairs with itself and with `epoch`: every arrival is seen by whoever sees the epoch turned.
            match self.0.compare_exchange(seen, after.pack(), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return before,
                Err(now) => seen = now,
            }
        }
    }
}

impl State {
    fn unpack(word: u64) -> Self {
        Self { epoch: word >> (2 * FIELD), online: word >> FIELD & MASK, remaining: word & MASK }
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
