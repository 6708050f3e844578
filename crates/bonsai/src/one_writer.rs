//! The writer's lock. It knows which core holds it, so that a core that would wait for itself hears of it.

use percore::Pinned;
use sync::atomic::{AtomicUsize, Ordering};
use sync::{SpinGuard, SpinLock};

/// See the module.
#[derive(Debug)]
pub(crate) struct WriteLock {
    lock: SpinLock<()>,
    /// The number of the core that holds the lock, plus one, or 0 if none does. Relaxed everywhere: a core
    /// asks only whether it is its own number, which it alone stores, and takes back.
    holder: AtomicUsize,
}

/// The lock is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    holder: &'a AtomicUsize,
    _held: SpinGuard<'a, ()>,
}

impl WriteLock {
    pub fn new() -> Self {
        Self { lock: SpinLock::new(()), holder: AtomicUsize::new(0) }
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// If this core holds it.
    pub fn lock(&self, pin: &Pinned) -> Writing<'_> {
        let me = pin.core().index() + 1;
        loop {
            // Each time: the wait may run anything, and keep a writer.
            let mine = self.holder.load(Ordering::Relaxed) == me;
            assert!(!mine, "a core with a Writer of a tree asked for another one");
            if let Some(held) = self.lock.try_lock() {
                self.holder.store(me, Ordering::Relaxed);
                return Writing { holder: &self.holder, _held: held };
            }
            percore::relax();
        }
    }
}

impl Drop for Writing<'_> {
    /// Before the lock goes.
    fn drop(&mut self) {
        self.holder.store(0, Ordering::Relaxed);
    }
}
