//! A reader-writer lock that spins, and serves requests of other cores meanwhile. A writer that waits keeps
//! new readers out.
//!
//! | word | state |
//! |---|---|
//! | `2n` | n readers |
//! | `2n + 1` | a writer waits for n readers: some that were in, and some that look in, see it, and leave |
//! | `1` | a writer is in |
//!
//! A reader writes the word twice, so its line moves between readers. The designs without this lock avoid
//! that.
//!
//! Orderings: a reader enters by Acquire, and a writer by the Acquire of its last wait. Both leave by
//! Release. The word is changed by read-modify-writes only. So each sees the work of those that had left
//! before, and could have kept it out.

use percore::relax;
use sync::atomic::{AtomicU64, Ordering};

const WRITER: u64 = 1;
const READER: u64 = 2;

/// It protects no value: see `locking.rs` for what.
#[derive(Debug, Default)]
pub(super) struct RwLock(AtomicU64);

impl RwLock {
    #[inline]
    pub(super) fn read(&self) -> ReadGuard<'_> {
        // Acquire: partner of the writer's Release.
        while self.0.fetch_add(READER, Ordering::Acquire) & WRITER != 0 {
            // Relaxed: nothing was read.
            self.0.fetch_sub(READER, Ordering::Relaxed);
            self.wait_while(|word| word & WRITER != 0);
        }
        ReadGuard(self)
    }

    pub(super) fn write(&self) -> WriteGuard<'_> {
        // Relaxed: the last wait acquires. It reads a value that was stored here or later. Every change of
        // the word is a read-modify-write, which passes on the Release of the last writer and of the readers.
        while self.0.fetch_or(WRITER, Ordering::Relaxed) & WRITER != 0 {
            self.wait_while(|word| word & WRITER != 0);
        }
        self.wait_while(|word| word != WRITER);
        WriteGuard(self)
    }

    /// Acquire: partner of the readers' Release, and of the writer's.
    fn wait_while(&self, busy: impl Fn(u64) -> bool) {
        while busy(self.0.load(Ordering::Acquire)) {
            relax();
        }
    }
}

/// Unlocks when dropped.
#[must_use = "the lock is released at once"]
pub(super) struct ReadGuard<'a>(&'a RwLock);

impl Drop for ReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.fetch_sub(READER, Ordering::Release);
    }
}

/// Unlocks when dropped.
#[must_use = "the lock is released at once"]
pub(super) struct WriteGuard<'a>(&'a RwLock);

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_and(!WRITER, Ordering::Release);
    }
}
