//! LODIC's counter in a word whose owner replaces it while readers count, and asks at the end. Loom reports
//! an end that is not ordered after every read.

use std::sync::Arc;

use baselines::EmbeddedCount;
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The word shows the page if this bit is set. The count has one bit, so the second reader finds no room.
const SHOWN: u64 = 1;
const COUNT: EmbeddedCount = EmbeddedCount::new(1, 1);
const READERS: usize = 2;

struct Page {
    word: AtomicU64,
    shared: AtomicU64,
    /// Readers that have counted themselves and are not pinned any more.
    unpinned: AtomicUsize,
    ends: UnsafeCell<u32>,
}

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Page {}
// SAFETY: as for `Sync`.
unsafe impl Send for Page {}

fn shows(value: u64) -> bool {
    value & SHOWN != 0
}

impl Page {
    fn read(&self) {
        let local = COUNT.take(&self.word, shows);
        if !local {
            self.shared.fetch_add(1, Ordering::Relaxed);
        }
        self.unpinned.fetch_add(1, Ordering::Release);
        // SAFETY: loom checks that no thread ends it meanwhile.
        self.ends.with(|ends| unsafe { assert_eq!(*ends, 0, "read after its end") });
        if !local || !COUNT.leave(&self.word, shows) {
            self.shared.fetch_sub(1, Ordering::Release);
        }
    }

    fn replace(&self, new: u64) {
        let old = self.word.swap(new, Ordering::Acquire);
        self.shared.fetch_add(COUNT.of(old), Ordering::Relaxed);
    }

    /// Ends the page if no reader holds it. The word does not show it any more.
    fn ask(&self) -> bool {
        let ended =
            self.unpinned.load(Ordering::Acquire) == READERS && self.shared.load(Ordering::Acquire) == 0;
        if ended {
            // SAFETY: loom checks that no thread uses it.
            self.ends.with_mut(|ends| unsafe { *ends += 1 });
        }
        ended
    }
}

/// Two readers, while the owner puts one value after the other into the word, the last of which does not show
/// the page.
fn explore(values: &'static [u64]) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let page = Arc::new(Page {
            word: AtomicU64::new(SHOWN),
            shared: AtomicU64::new(0),
            unpinned: AtomicUsize::new(0),
            ends: UnsafeCell::new(0),
        });
        let readers = [(); READERS].map(|()| {
            let page = Arc::clone(&page);
            thread::spawn(move || page.read())
        });
        values.iter().for_each(|&value| page.replace(value));
        let ended = page.ask();
        for reader in readers {
            reader.join().unwrap();
        }
        assert!(ended || page.ask(), "a reference is left, or one too many was dropped");
    });
}

/// A reference moves from the word to the shared count while it is held, or there is no room for it.
#[test]
fn a_word_that_stops_showing_the_page() {
    explore(&[0]);
}

/// A reference that was counted before is dropped from the count of one that came after.
#[test]
fn a_word_that_shows_the_page_again() {
    explore(&[0, SHOWN, 0]);
}

/// The rights of the mapping change: the word shows the page all the time, but the count moves.
#[test]
fn a_word_that_is_written_anew() {
    explore(&[SHOWN, 0]);
}
