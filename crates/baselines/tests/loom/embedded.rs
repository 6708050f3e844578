//! LODIC's counter in a word whose owner replaces it while readers count, and asks at the end. Loom reports
//! an end that is not ordered after every read.

use std::sync::Arc;

use baselines::{EmbeddedCount, Shown};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The word shows the page if this bit is set.
const SHOWN: u64 = 1;
/// A count of one bit, so the second reader finds no room.
const NARROW: EmbeddedCount = EmbeddedCount::new(1, 1);
/// A count with room for both. The first to leave finds a value other than its own.
const WIDE: EmbeddedCount = EmbeddedCount::new(1, 2);
const READERS: usize = 2;

struct Page {
    count: EmbeddedCount,
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

const PAGE: Shown = Shown { mask: SHOWN, value: SHOWN };

impl Page {
    fn read(&self) {
        let first = self.count.take_first(&self.word, PAGE);
        let local = first.or_else(|| self.count.take(&self.word, PAGE));
        if local.is_none() {
            self.shared.fetch_add(1, Ordering::Relaxed);
        }
        self.unpinned.fetch_add(1, Ordering::Release);
        // SAFETY: loom checks that no thread ends it meanwhile.
        self.ends.with(|ends| unsafe { assert_eq!(*ends, 0, "read after its end") });
        if !local.is_some_and(|taken| self.count.leave(&self.word, &taken, PAGE)) {
            self.shared.fetch_sub(1, Ordering::Release);
        }
    }

    /// A fault in the middle moves the count, as in the table of one core.
    fn read_with_fault(&self) {
        let taken = self.count.take(&self.word, PAGE);
        if taken.is_none() {
            self.shared.fetch_add(1, Ordering::Relaxed);
        }
        self.unpinned.fetch_add(1, Ordering::Release);
        self.count.move_one(&self.word, PAGE, |references| {
            self.shared.fetch_add(references as u64, Ordering::Relaxed);
        });
        // SAFETY: as in `read`.
        self.ends.with(|ends| unsafe { assert_eq!(*ends, 0, "read after its end") });
        if !taken.is_some_and(|taken| self.count.leave(&self.word, &taken, PAGE)) {
            self.shared.fetch_sub(1, Ordering::Release);
        }
    }

    fn replace(&self, new: u64) {
        self.count.replace(&self.word, new, |_, references| {
            self.shared.fetch_add(references as u64, Ordering::Relaxed);
        });
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
fn explore(count: EmbeddedCount, values: &'static [u64]) {
    explore_with(count, values, [Page::read; READERS]);
}

fn explore_with(count: EmbeddedCount, values: &'static [u64], reads: [fn(&Page); READERS]) {
    let mut builder = Builder::new();
    // One more where both readers have to be between their two steps.
    builder.preemption_bound = Some(if count.of(u64::MAX) > 1 { 4 } else { 3 });
    builder.check(move || {
        let page = Arc::new(Page {
            count,
            word: AtomicU64::new(SHOWN),
            shared: AtomicU64::new(0),
            unpinned: AtomicUsize::new(0),
            ends: UnsafeCell::new(0),
        });
        let readers = reads.map(|read| {
            let page = Arc::clone(&page);
            thread::spawn(move || read(&page))
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
    explore(NARROW, &[0]);
}

/// References are dropped in the order in which they were taken, or in the other one.
#[test]
fn a_word_with_two_references_that_stops_showing_the_page() {
    explore(WIDE, &[0]);
}

/// A reference that was counted before is dropped from the count of one that came after.
#[test]
fn a_word_that_shows_the_page_again() {
    explore(NARROW, &[0, SHOWN, 0]);
}

/// A reader moves its reference, or that of another one, while the owner does, too.
#[test]
fn a_reference_that_its_reader_moves() {
    explore_with(NARROW, &[0], [Page::read_with_fault, Page::read]);
    explore_with(WIDE, &[0], [Page::read_with_fault; READERS]);
}

/// The rights of the mapping change: the word shows the page all the time, but the count moves.
#[test]
fn a_word_that_is_written_anew() {
    explore(NARROW, &[SHOWN, 0]);
}
