//! LODIC's question while references are taken and dropped, and while their word is replaced. Loom reports a
//! page that is used while one who found no reference changes it, and a use that is not ordered after that.

use std::sync::Arc;

use baselines::{EmbeddedCount, SharedPart, Shown, Taken};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;
use sync::atomic::AtomicU64;

/// The word shows the page if this bit is set.
const SHOWN: u64 = 1;
const PAGE: Shown = Shown { mask: SHOWN, value: SHOWN };
/// A count of one bit, so the second of two readers is counted in the shared part.
const NARROW: EmbeddedCount = EmbeddedCount::new(1, 1);

struct Page {
    /// The words of two processes.
    words: [AtomicU64; 2],
    shared: SharedPart,
    contents: UnsafeCell<u32>,
}

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Page {}
// SAFETY: as for `Sync`.
unsafe impl Send for Page {}

impl Page {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            words: [SHOWN, SHOWN].map(AtomicU64::new),
            shared: SharedPart::new(),
            contents: UnsafeCell::new(0),
        })
    }

    fn take(&self, word: usize) -> Option<Taken> {
        let taken = NARROW.take(&self.words[word], PAGE);
        if taken.is_none() {
            self.shared.take();
        }
        self.shared.wait();
        taken
    }

    fn use_and_leave(&self, word: usize, taken: Option<Taken>) {
        // SAFETY: loom checks that no thread writes meanwhile.
        self.contents.with(|contents| unsafe { assert!(*contents < 3) });
        if !taken.is_some_and(|taken| NARROW.leave(&self.words[word], &taken, PAGE)) {
            self.shared.leave();
        }
    }

    fn leave_first(&self, taken: Option<Taken>) {
        self.use_and_leave(0, taken);
    }

    fn read(&self) {
        self.use_and_leave(0, self.take(0));
    }

    fn read_as_other(&self) {
        self.use_and_leave(1, self.take(1));
    }

    /// Puts a word there that does not show the page, and one that does.
    fn replace(&self) {
        for new in [0, SHOWN] {
            NARROW.replace(&self.words[0], new, |_, references| self.shared.add(references));
        }
    }

    /// Writes to the page if it has no reference, and returns whether it had none.
    fn ask(&self) -> bool {
        let Some(question) = self.shared.ask() else { return false };
        let is_counted = self.words.iter().any(|word| NARROW.look(word, PAGE) > 0);
        let is_free = !is_counted && !question.is_held();
        if is_free {
            // SAFETY: loom checks that no thread uses it.
            self.contents.with_mut(|contents| unsafe { *contents += 1 });
        }
        is_free
    }
}

/// Asks, while these threads run, and asks again at the end. Each thread of `held` has a reference that was
/// taken before.
fn explore(held: &'static [fn(&Page, Option<Taken>)], others: &'static [fn(&Page)], preemptions: usize) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let page = Page::new();
        let mut threads = Vec::new();
        for step in held {
            let (page, taken) = (Arc::clone(&page), page.take(0));
            threads.push(thread::spawn(move || step(&page, taken)));
        }
        for step in others {
            let page = Arc::clone(&page);
            threads.push(thread::spawn(move || step(&page)));
        }
        page.ask();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(page.ask(), "a reference is left, or one too many was dropped, or a question never ended");
    });
}

fn ask(page: &Page) {
    page.ask();
}

/// A reference is found, or waits.
#[test]
fn no_page_is_used_while_one_who_found_no_reference_acts() {
    explore(&[], &[Page::read], 4);
}

/// One reference is in the word, another one in the shared part, and each may be dropped from the other's
/// place.
#[test]
fn references_in_the_word_and_in_the_shared_part_are_found() {
    explore(&[Page::leave_first], &[Page::read], 3);
    explore(&[Page::leave_first, Page::leave_first], &[], 3);
}

/// The references are in the words of two processes, of which the first one may be dropped while the second
/// is looked at.
#[test]
fn references_in_two_words_are_found() {
    explore(&[Page::leave_first], &[Page::read_as_other], 3);
}

/// A reference moves to the shared part between the looks at both.
#[test]
fn a_reference_that_moves_is_found() {
    explore(&[], &[Page::read, Page::replace], 3);
    explore(&[Page::leave_first], &[Page::replace], 4);
}

/// Of two who ask at the same time, one gets no answer.
#[test]
fn two_do_not_ask_at_the_same_time() {
    explore(&[], &[Page::read, ask], 3);
}
