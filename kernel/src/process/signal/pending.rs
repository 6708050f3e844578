//! Signals that were sent and not yet taken.

use abi::signal::NSIG;
use sync::SpinLock;
use sync::atomic::{AtomicU64, Ordering};

use super::bit;

/// Where a signal came from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// `si_code`.
    pub code: i32,
    /// `si_addr` of a fault, or `si_pid` of a sender.
    pub value: u64,
}

/// A set of signals with their origins.
pub struct Pending {
    set: AtomicU64,
    origins: SpinLock<[Origin; NSIG as usize]>,
}

impl Pending {
    /// None.
    pub const fn new() -> Self {
        Self { set: AtomicU64::new(0), origins: SpinLock::new([Origin { code: 0, value: 0 }; NSIG as usize]) }
    }

    /// Which.
    pub fn set(&self) -> u64 {
        // SeqCst: the sender's `notify` argues with it.
        self.set.load(Ordering::SeqCst)
    }

    /// Adds `signal`. If it is there already, the first origin stays.
    pub fn add(&self, signal: u32, origin: Origin) {
        let mut origins = self.origins.lock();
        if self.set() & bit(signal) == 0 {
            origins[signal as usize - 1] = origin;
            self.set.fetch_or(bit(signal), Ordering::SeqCst);
        }
    }

    /// Takes the lowest of `wanted`.
    pub fn take(&self, wanted: u64) -> Option<(u32, Origin)> {
        if self.set() & wanted == 0 {
            return None;
        }
        let origins = self.origins.lock();
        let there = self.set() & wanted;
        let signal = (there != 0).then(|| there.trailing_zeros() + 1)?;
        self.set.fetch_and(!bit(signal), Ordering::SeqCst);
        Some((signal, origins[signal as usize - 1]))
    }

    /// Forgets `signal`.
    pub fn discard(&self, signal: u32) {
        let _sent_in_vain = self.take(bit(signal));
    }
}
