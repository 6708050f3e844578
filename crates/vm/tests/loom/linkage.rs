//! Model of `linkage.rs`: cores that link a leaf against one that takes a page of it back, and against one
//! that drops its tables.

use std::array;

use loom::sync::Arc;

use loom::thread;
use percore::{CoreId, LazyPerCore, MAX_CORES, pin, threads};
use sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use test_memory::Watched;
use vm::{Linkage, PrivateSharers};

use crate::check;

/// A leaf, and the word of one page of it, which is an entry.
struct Leaf {
    words: [AtomicU64; 3],
    linked: [AtomicU64; MAX_CORES / 64],
    word: AtomicUsize,
    /// Why the leaf stays.
    held: AtomicUsize,
}

impl Leaf {
    fn new() -> Arc<Self> {
        let (words, linked) = (zeroes(), zeroes());
        Arc::new(Self { words, linked, word: AtomicUsize::new(1), held: AtomicUsize::new(0) })
    }

    fn linkage(&self) -> Linkage<'_> {
        Linkage::new(&self.words, &self.linked)
    }

    fn link(&self, core: CoreId) {
        if self.linkage().link(core) {
            self.held.fetch_add(1, Relaxed);
        }
    }

    fn leave(&self, core: CoreId) {
        if self.linkage().leave(core) {
            self.held.fetch_sub(1, Relaxed);
        }
    }
}

fn zeroes<const N: usize>() -> [AtomicU64; N] {
    array::from_fn(|_| AtomicU64::new(0))
}

/// Counts enough fills to make the leaf shared.
fn share(leaf: &Leaf) {
    while !leaf.linkage().note_shared_fill(1, 2) {}
}

/// One fill less is counted.
fn almost_share(leaf: &Leaf) {
    let another = Leaf::new();
    while !another.linkage().note_shared_fill(1, 2) {
        leaf.linkage().note_shared_fill(1, 2);
    }
}

fn core(index: usize) -> CoreId {
    CoreId::new(index)
}

/// A core that is not interrupted finds no entry when it walks the leaf.
#[test]
fn a_late_link_does_not_find_invalidated_pages() {
    check(3, || {
        let leaf = Leaf::new();
        let (theirs, third) = (leaf.clone(), core(2));
        let linking = thread::spawn(move || {
            theirs.link(third);
            theirs.word.load(Relaxed)
        });
        leaf.word.store(0, Relaxed);
        let users = leaf.linkage().users(PrivateSharers::NONE);
        let found = linking.join().unwrap();
        assert!(users.contains(third) || found == 0, "a page that was taken back is translated");
    });
}

/// Nor does a core of the set that is not interrupted because its part of the space has not begun.
#[test]
fn a_late_begin_does_not_find_invalidated_pages() {
    check(3, || {
        let (leaf, parts) = (Leaf::new(), Arc::new(LazyPerCore::try_new(3).unwrap()));
        let (theirs, their_parts, third) = (leaf.clone(), parts.clone(), core(2));
        let linking = thread::spawn(move || {
            let _core = threads::enter(third);
            theirs.link(third);
            their_parts.mine_or_new(&pin(), |_| ());
            theirs.word.load(Relaxed)
        });
        leaf.word.store(0, Relaxed);
        let is_user = leaf.linkage().users(PrivateSharers::NONE).contains(third);
        let interrupted = is_user && parts.of(third).is_some();
        let found = linking.join().unwrap();
        assert!(interrupted || found == 0, "a page that was taken back is translated");
    });
}

/// The third user of a page makes the leaf shared while the page beside it goes, and a fourth comes by that.
#[test]
fn a_core_that_links_a_leaf_becoming_shared_is_seen() {
    check(3, || {
        let leaf = Leaf::new();
        leaf.linkage().may_link(core(0));
        leaf.link(core(0));
        almost_share(&leaf);
        let linking = [2, 3].map(|index| {
            let theirs = leaf.clone();
            thread::spawn(move || {
                if index == 2 {
                    share(&theirs);
                }
                theirs.linkage().may_link(core(index)).then(|| {
                    theirs.link(core(index));
                    theirs.word.load(Relaxed)
                })
            })
        });
        leaf.word.store(0, Relaxed);
        let users = leaf.linkage().users(PrivateSharers::NONE);
        assert!(users.contains(core(0)));
        for (index, linking) in [2, 3].into_iter().zip(linking) {
            let found = linking.join().unwrap();
            assert!(users.contains(core(index)) || found != Some(1), "core {index} translates what is gone");
        }
    });
}

/// A core uses a page's frame through the leaf, and drops its tables. A core that finds them dropped gives
/// the frame to another user.
#[test]
fn a_core_that_left_uses_nothing_of_the_leaf() {
    check(3, || {
        let (leaf, frame) = (Leaf::new(), Arc::new(Watched::<u64>::default()));
        leaf.link(core(1));
        let (theirs, used) = (leaf.clone(), frame.clone());
        let leaving = thread::spawn(move || {
            used.get();
            theirs.leave(core(1));
        });
        leaf.word.store(0, Relaxed);
        if leaf.linkage().users(PrivateSharers::NONE).is_empty() {
            frame.set(1);
        }
        leaving.join().unwrap();
    });
}

#[test]
fn one_core_comes_home_and_each_guest_has_a_seat() {
    check(3, || {
        let leaf = Leaf::new();
        let other = leaf.clone();
        let thread = thread::spawn(move || {
            (other.linkage().may_link(core(1)), other.linkage().add_sharer(core(1)).unwrap())
        });
        let (owner, sharer) = (leaf.linkage().may_link(core(2)), leaf.linkage().add_sharer(core(2)).unwrap());
        let (their_owner, their_sharer) = thread.join().unwrap();
        assert!(owner != their_owner && sharer != their_sharer);
        assert!(
            leaf.linkage().users(sharer).contains(core(2)) && !leaf.linkage().users(sharer).contains(core(1))
        );
    });
}

/// All slots are held, so no core links, but a core may drop its tables. Each core gives its hold up once.
#[test]
fn a_core_that_drops_its_tables_during_a_reset_holds_the_leaf_no_more() {
    check(3, || {
        let leaf = Leaf::new();
        share(&leaf);
        [1, 2].into_iter().for_each(|index| leaf.link(core(index)));
        let theirs = leaf.clone();
        let dropping = thread::spawn(move || theirs.leave(core(1)));
        leaf.held.fetch_sub(leaf.linkage().reset(), Relaxed);
        dropping.join().unwrap();
        assert_eq!(leaf.held.load(Relaxed), 0);
        assert!(leaf.linkage().linked().is_empty());
    });
}

/// A core drops its tables, and faults again, while another one takes a page back.
#[test]
fn a_core_back_after_dropping_its_tables_is_seen() {
    check(3, || {
        let leaf = Leaf::new();
        leaf.linkage().may_link(core(1));
        leaf.link(core(1));
        let theirs = leaf.clone();
        let returning = thread::spawn(move || {
            theirs.leave(core(1));
            theirs.linkage().may_link(core(1)).then(|| {
                theirs.link(core(1));
                theirs.word.load(Relaxed)
            })
        });
        leaf.word.store(0, Relaxed);
        let users = leaf.linkage().users(PrivateSharers::NONE);
        let found = returning.join().unwrap();
        assert!(users.contains(core(1)) || found == Some(0), "a page that was taken back is translated");
        assert_eq!(leaf.held.load(Relaxed), 1);
    });
}
