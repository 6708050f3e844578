//! Words with counted references: readers that count nothing against writers that take references out.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use loom::thread::{self, JoinHandle};
use percore::{CoreId, Pinned};
use rcu::{Config, Counted, Domain, Found, LoanCell, Loaned, Removed, Word};
use sync::UnsafeCell;
use sync::atomic::{AtomicUsize, Ordering};

const WORDS: usize = 2;

/// An object with a count. Its payload detects late accesses: loom reports a release that is not ordered
/// after every read, and a read after the release finds the payload changed.
#[repr(align(8))]
struct Object {
    count: AtomicUsize,
    releases: UnsafeCell<u32>,
}

impl Object {
    fn releases(&self) -> u32 {
        // SAFETY: loom checks that no thread writes meanwhile.
        self.releases.with(|releases| unsafe { *releases })
    }

    fn read(&self) {
        assert_eq!(self.releases(), 0, "a released object was used");
    }
}

/// A counted reference to an object, which stays in memory as long as its machine.
struct Reference(NonNull<Object>);

// SAFETY: the object is made to be shared, and lives as long as the machine.
unsafe impl Send for Reference {}
// SAFETY: as for `Send`.
unsafe impl Sync for Reference {}

impl Deref for Reference {
    type Target = Object;
    fn deref(&self) -> &Object {
        // SAFETY: the object lives as long as the machine.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for Reference {
    fn clone(&self) -> Self {
        assert_ne!(self.count.fetch_add(1, Ordering::Relaxed), 0, "a count that was 0 was raised");
        Self(self.0)
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: loom checks that no thread reads it.
            self.releases.with_mut(|releases| unsafe { *releases += 1 });
        }
    }
}

// SAFETY: the word is the object's address, which is aligned.
unsafe impl Counted for Reference {
    fn into_word(self) -> *mut () {
        std::mem::ManuallyDrop::new(self).0.as_ptr().cast()
    }
    unsafe fn from_word(word: *mut ()) -> Self {
        Self(NonNull::new(word.cast()).unwrap())
    }
    fn target(word: *mut ()) -> *const Object {
        word.cast_const().cast()
    }
}

struct Shared {
    /// The first field, so that callbacks that still wait are run while the object is there.
    domain: Domain,
    words: Word<Table>,
    cells: [LoanCell<Reference>; 3],
    users: AtomicUsize,
}

/// An array of words, which is published by a word itself.
#[derive(Clone)]
struct Table(Arc<Words>);

type Words = Box<[Word<Reference>]>;

impl Deref for Table {
    type Target = Words;
    fn deref(&self) -> &Words {
        &self.0
    }
}

// SAFETY: as for an `Arc`.
unsafe impl Counted for Table {
    fn into_word(self) -> *mut () {
        self.0.into_word()
    }
    unsafe fn from_word(word: *mut ()) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Arc::from_word(word) })
    }
    fn target(word: *mut ()) -> *const Words {
        Arc::<Words>::target(word)
    }
}

// SAFETY: the object lives as long as this, and is made to be shared.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shared {}

/// The machine, as one core sees it.
struct Core {
    shared: Arc<Shared>,
    pin: Pinned,
}

fn table(words: usize) -> Table {
    Table(Arc::new((0..words).map(|_| Word::new()).collect()))
}

/// Explores `model` on a machine of `cores` cores, all online, and a table whose first `held` words hold the
/// one object. `model` gets core 0. The others are for [`Core::spawn`].
fn explore(preemptions: usize, cores: usize, held: usize, model: impl Fn(Core) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let object = Object { count: AtomicUsize::new(held), releases: UnsafeCell::new(0) };
        let object = NonNull::from(Box::leak(Box::new(object)));
        let words = table(WORDS);
        words.iter().take(held).for_each(|word| assert!(word.put(Reference(object), false).is_none()));
        let shared = Arc::new(Shared {
            domain: Domain::new(Config { cores, batch: 4, bound: 100 }),
            words: Word::new(),
            cells: std::array::from_fn(|_| LoanCell::new()),
            users: AtomicUsize::new(cores),
        });
        assert!(shared.words.put(words, false).is_none());
        let first = Core::new(&shared, 0);
        (0..cores).for_each(|core| {
            let core = Core::new(&shared, core);
            core.shared.domain.online(&core.pin);
        });
        model(first);
        // Whatever is left goes with the machine.
        assert_eq!(Arc::strong_count(&shared), 1);
        drop(shared);
        // SAFETY: made by `Box`, and the machine is gone.
        let object = unsafe { Box::from_raw(object.as_ptr()) };
        assert_eq!(object.releases(), 1, "never released, or twice");
    });
}

impl Core {
    fn new(shared: &Arc<Shared>, core: usize) -> Self {
        // SAFETY: one thread plays a core: `spawn` starts one thread for each.
        Self { shared: Arc::clone(shared), pin: unsafe { Pinned::assume(CoreId::new(core)) } }
    }

    fn spawn(&self, core: usize, run: impl FnOnce(Core) + 'static) -> JoinHandle<()> {
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || run(Core::new(&shared, core)))
    }

    fn words(&self) -> &Words {
        // SAFETY: the models use no words that they found before they were quiescent.
        unsafe { self.shared.words.peek(&self.pin) }.unwrap()
    }

    fn get(&self, word: usize) -> Option<Reference> {
        // SAFETY: the core is online, and not quiescent in this function.
        unsafe { self.words()[word].get(&self.pin) }
    }

    fn cell(&self) -> &LoanCell<Reference> {
        &self.shared.cells[self.pin.core().index()]
    }

    fn lend(&self, word: usize) -> Option<Loaned<Reference>> {
        // SAFETY: the models call `keep` before they are quiescent with a loan.
        unsafe { self.cell().lend(&self.pin, &self.words()[word]) }
    }

    fn give_back(&self, loan: Loaned<Reference>) {
        // SAFETY: one flow runs on each core here.
        unsafe { self.cell().give_back(&self.pin, loan) }
    }

    fn keep(&self) {
        self.cell().keep(&self.pin);
    }

    fn retire<P: Counted>(&self, removed: Option<Removed<P>>) {
        removed
            .into_iter()
            .for_each(|removed| self.shared.domain.retire_removed(&self.pin, removed).unwrap());
    }

    fn quiesces(&self, times: usize) {
        (0..times).for_each(|_| _ = self.shared.domain.quiesce(&self.pin));
    }

    fn goes(&self) {
        self.shared.domain.offline(&self.pin);
    }
}

/// A reader that counts nothing is waited for.
#[test]
fn a_loan_against_a_close() {
    explore(3, 2, 1, |core| {
        let reader = core.spawn(1, |core| {
            for _ in 0..2 {
                if let Some(loan) = core.lend(0) {
                    loan.read();
                    core.give_back(loan);
                }
                core.quiesces(1);
            }
            core.goes();
        });
        core.retire(core.words()[0].take());
        core.quiesces(3);
        reader.join().unwrap();
    });
}

/// A reader counts its loan before it is quiescent, and uses the object long after. If `keep` comes after the
/// core was quiescent, this fails.
#[test]
fn a_loan_that_is_kept() {
    explore(3, 2, 1, |core| {
        let reader = core.spawn(1, |core| {
            if let Some(loan) = core.lend(0) {
                core.keep();
                core.quiesces(2);
                loan.read();
                core.give_back(loan);
            }
            core.goes();
        });
        core.retire(core.words()[0].take());
        core.quiesces(4);
        reader.join().unwrap();
    });
}

/// A reader has two loans of one object, one of which is counted at once, and gives them back in the order in
/// which it got them.
#[test]
fn two_loans_of_one_object() {
    explore(2, 2, 1, |core| {
        let reader = core.spawn(1, |core| {
            if let Some(first) = core.lend(0) {
                let second = core.lend(0);
                core.give_back(first);
                core.keep();
                core.quiesces(1);
                if let Some(second) = second {
                    second.read();
                    core.give_back(second);
                }
            }
            core.goes();
        });
        core.retire(core.words()[0].take());
        core.quiesces(3);
        reader.join().unwrap();
    });
}

/// Two words hold the object, and two cores close one each. A reader of the second is waited for, although
/// the first reference went before.
#[test]
fn two_words_with_one_object() {
    explore(1, 3, 2, |core| {
        let other = core.spawn(1, |core| {
            core.retire(core.words()[0].take());
            core.quiesces(2);
            core.goes();
        });
        let reader = core.spawn(2, |core| {
            if let Some(loan) = core.lend(1) {
                loan.read();
                core.give_back(loan);
            }
            core.goes();
        });
        core.retire(core.words()[1].take());
        core.quiesces(2);
        other.join().unwrap();
        reader.join().unwrap();
    });
}

/// A larger array replaces the words while a reader looks, and the object is then taken out of that.
#[test]
fn a_reader_of_the_smaller_array() {
    explore(2, 2, 1, |core| {
        let reader = core.spawn(1, |core| {
            if let Some(loan) = core.lend(0) {
                loan.read();
                core.give_back(loan);
            }
            core.quiesces(1);
            core.goes();
        });
        let larger = table(2 * WORDS);
        assert!(larger[0].put(core.get(0).unwrap(), false).is_none());
        core.retire(core.shared.words.put(larger, false));
        core.retire(core.words()[0].take());
        core.quiesces(3);
        reader.join().unwrap();
    });
}

/// A writer changes the mark while a reader loads the word. The reader finds the object and counts it.
#[test]
fn a_mark_beside_a_reader() {
    explore(3, 2, 1, |core| {
        let reader = core.spawn(1, |core| {
            let found = core.get(0).expect("a mark takes no object away");
            core.quiesces(1);
            found.read();
            drop(found);
            core.goes();
        });
        core.words()[0].set_mark(true);
        core.words()[0].set_mark(false);
        core.quiesces(1);
        reader.join().unwrap();
    });
}

/// The other user of the words leaves, and the last one drops what it takes out at once. If the users' count
/// does not acquire and release, this fails.
#[test]
fn the_last_user_waits_for_nobody() {
    explore(3, 2, 1, |core| {
        let reader = core.spawn(1, |core| {
            if let Some(loan) = core.lend(0) {
                loan.read();
                core.give_back(loan);
            }
            core.shared.users.fetch_sub(1, Ordering::AcqRel);
            core.goes();
        });
        let removed = core.words()[0].take();
        if core.shared.users.load(Ordering::Acquire) == 1 {
            // SAFETY: the reader has left.
            removed.into_iter().for_each(|removed| unsafe { removed.drop_now() });
        } else {
            core.retire(removed);
        }
        core.quiesces(2);
        reader.join().unwrap();
    });
}

/// Two cores take the object out of one word, and one of them gets it.
#[test]
fn a_reference_leaves_its_word_once() {
    explore(3, 2, 1, |core| {
        let other = core.spawn(1, |core| {
            core.words()[0].set_mark(true);
            core.retire(core.words()[0].take());
            core.quiesces(2);
            core.goes();
        });
        core.retire(core.words()[0].take());
        core.quiesces(2);
        other.join().unwrap();
    });
}

/// A close that takes no lock, against a writer with the lock that freezes the word and shares what it finds.
/// A frozen word stays as it was found until it is thawed. If a close changes a frozen word, this fails.
#[test]
fn a_close_without_the_lock_against_a_freeze() {
    explore(3, 2, 1, |core| {
        let other = core.spawn(1, |core| {
            core.retire(core.words()[0].take_unlocked().unwrap_or(None));
            core.quiesces(2);
            core.goes();
        });
        let frozen = core.words()[0].freeze();
        assert_eq!(core.words()[0].look(), frozen);
        if frozen != Found::Free {
            let copy = core.get(0).expect("a frozen word keeps its object");
            copy.read();
            drop(copy);
            assert_eq!(core.words()[0].look(), frozen);
        }
        core.words()[0].thaw();
        core.retire(core.words()[0].take());
        core.quiesces(2);
        other.join().unwrap();
    });
}

/// Of two calls without the lock that close one number, or close and replace it, each reference goes once.
#[test]
fn a_close_and_a_replacement_without_the_lock() {
    explore(2, 2, 1, |core| {
        let other = core.spawn(1, |core| {
            core.retire(core.words()[0].take_unlocked().unwrap());
            core.quiesces(2);
            core.goes();
        });
        if let Some(again) = core.get(0) {
            match core.words()[0].replace_unlocked(again, true) {
                Ok(old) => core.retire(Some(old)),
                Err(again) => drop(again),
            }
        }
        core.quiesces(2);
        other.join().unwrap();
        core.retire(core.words()[0].take());
    });
}

/// A reserved word is filled without the lock, unless it is frozen: then it stays reserved.
#[test]
fn a_reserved_word_that_is_filled_against_a_freeze() {
    explore(3, 2, 1, |core| {
        assert!(core.words()[1].reserve());
        let other = core.spawn(1, |core| {
            let more = core.get(0).unwrap();
            drop(core.words()[1].fill_unlocked(more, true));
            core.quiesces(1);
            core.goes();
        });
        let frozen = core.words()[1].freeze();
        assert_ne!(frozen, Found::Free);
        assert_eq!(core.words()[1].look(), frozen);
        core.words()[1].thaw();
        other.join().unwrap();
        (0..WORDS).for_each(|word| core.retire(core.words()[word].take()));
        core.quiesces(2);
    });
}

/// Another core closes the lowest number and then the next one, without the lock. The next is never the
/// lowest free number. If the lower numbers are not looked at again, this fails.
#[test]
fn the_lowest_free_number_beside_closes() {
    explore(3, 2, 2, |core| {
        let other = core.spawn(1, |core| {
            (0..2).for_each(|word| core.retire(core.words()[word].take_unlocked().unwrap()));
            core.quiesces(2);
            core.goes();
        });
        let lowest = rcu::lowest_free(0..WORDS + 1, |word| {
            core.words().get(word).is_none_or(|word| word.look() == Found::Free)
        });
        assert!(matches!(lowest, Some(0 | 2)), "{lowest:?}");
        core.quiesces(2);
        other.join().unwrap();
    });
}
