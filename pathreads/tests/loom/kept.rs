//! A member's thread and its handlers use the list of kept blocks. Loom's threads play them, which come
//! between any two instructions of each other, as handlers do.

use pathreads::PAGE;
use pathreads::kept::Kept;
use sync::loom::sync::Arc;
use sync::loom::thread;

use crate::explore;

/// Each slot that was added is taken once, and the bytes are those of the slots that are left.
#[test]
fn slots_are_taken_once_and_bytes_are_those_of_the_rest() {
    explore(3, || {
        let kept = Arc::new(Kept::new());
        kept.add(0, 0);
        let handler = {
            let kept = kept.clone();
            thread::spawn(move || [kept.take(0), kept.take(0)])
        };
        kept.add(0, 1);
        let own = kept.take(0);
        let theirs = handler.join().unwrap();
        let mut all: Vec<usize> = theirs.into_iter().chain([own]).flatten().collect();
        let left = 2 - all.len() as u64;
        assert_eq!(kept.bytes(), left * PAGE);
        all.extend(std::iter::from_fn(|| kept.take(0)));
        all.sort();
        assert_eq!((all, kept.bytes()), (vec![0, 1], 0));
    });
}

/// The same block is kept again, because another member has made it ordinary before, while a handler takes
/// it. It counts once at most.
#[test]
fn a_block_that_is_kept_again_counts_once() {
    explore(3, || {
        let kept = Arc::new(Kept::new());
        kept.add(0, 0);
        let handler = {
            let kept = kept.clone();
            thread::spawn(move || usize::from(kept.take(0).is_some()))
        };
        kept.add(0, 0);
        let taken = handler.join().unwrap();
        let left = usize::from(kept.bytes() > 0);
        assert_eq!(kept.bytes(), left as u64 * PAGE);
        assert_eq!(kept.take(0).is_some(), left == 1);
        assert!((1..=2).contains(&(taken + left)));
        assert_eq!(kept.bytes(), 0);
    });
}

/// A handler makes a thread, which forgets all, while a block is kept. The bytes are never more than those
/// of the blocks that are kept: with too many, none would be kept any more.
#[test]
fn no_bytes_stay_when_all_is_forgotten() {
    explore(3, || {
        let kept = Arc::new(Kept::new());
        kept.add(0, 0);
        let handler = {
            let kept = kept.clone();
            thread::spawn(move || kept.forget())
        };
        let taken = kept.take(0);
        handler.join().unwrap();
        assert!(taken.is_none_or(|slot| slot == 0));
        assert_eq!((kept.take(0), kept.bytes()), (None, 0));
    });
}
