//! Model of `demotion.rs`: the other cores are unlinked from a leaf while they link it once more, come to it,
//! or fill in it.

use std::array;

use loom::sync::{Arc, Mutex};
use loom::thread;
use percore::{CoreId, MAX_CORES};
use sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use vm::{Linkage, PrivateSharers};

use crate::check;

/// The translations of one core's hardware. Changed by the core itself, or by an interrupt on it.
#[derive(Default)]
struct Core {
    /// Its upper entry leads to the leaf.
    linked: bool,
    /// It leads to a page of its own, which has the one page that there is.
    own: bool,
    /// Its TLB has the page.
    cached: bool,
}

/// A leaf, and one page of it.
struct World {
    words: [AtomicU64; 3],
    linked: [AtomicU64; MAX_CORES / 64],
    /// Bit 0 of the page's word, and its lock, which has the rest of it.
    word: AtomicUsize,
    slot: Mutex<PrivateSharers>,
    cores: [Mutex<Core>; 3],
    held: AtomicUsize,
}

/// The core that will own the leaf.
const OWNER: usize = 0;

fn id(core: usize) -> CoreId {
    CoreId::new(core)
}

impl World {
    /// The leaf is shared, these cores are linked, and `OWNER` has invalidated often enough but for once. The
    /// page's word is `word`.
    fn new(linked: &[usize], word: usize) -> Arc<Self> {
        let world = Self::shared(linked, word);
        world.almost_send_away();
        world
    }

    /// Returns a shared leaf in which `OWNER` has not invalidated yet.
    fn shared(linked: &[usize], word: usize) -> Arc<Self> {
        let world = Self {
            words: array::from_fn(|_| AtomicU64::new(0)),
            linked: array::from_fn(|_| AtomicU64::new(0)),
            word: AtomicUsize::new(word),
            slot: Mutex::new(PrivateSharers::NONE),
            cores: array::from_fn(|_| Mutex::default()),
            held: AtomicUsize::new(0),
        };
        while !world.leaf().note_shared_fill(1, 2) {}
        linked.iter().for_each(|&core| assert!(world.link(core)));
        Arc::new(world)
    }

    fn almost_send_away(&self) {
        (1..4).for_each(|_| assert!(!self.leaf().note_invalidation(id(OWNER))));
    }

    fn leaf(&self) -> Linkage<'_> {
        Linkage::new(&self.words, &self.linked)
    }

    /// As `fill.rs` does.
    fn link(&self, core: usize) -> bool {
        if !self.leaf().is_linked(id(core)) {
            self.held.fetch_add(1, Relaxed);
            self.leaf().link(id(core));
        }
        self.cores[core].lock().unwrap().linked = true;
        let stays = self.leaf().stays(id(core));
        if !stays {
            *self.cores[core].lock().unwrap() = Core::default();
            if self.leaf().leave(id(core)) {
                self.release(1);
            }
        }
        stays
    }

    /// Releases holds as `radixmap::Leaf::release` does, which panics if there are fewer.
    fn release(&self, holds: usize) {
        let left = self.held.fetch_update(Relaxed, Relaxed, |held| held.checked_sub(holds));
        assert!(left.is_ok(), "a leaf was held less often than it was released");
    }

    /// The program touches the page: whether hardware finds it.
    fn walk(&self, core: usize) -> bool {
        let mut core = self.cores[core].lock().unwrap();
        core.cached |= core.own || core.linked && self.word.load(Relaxed) != 0;
        core.cached
    }

    /// A fault on the page, as far as it goes on.
    fn fault(&self, core: usize) {
        let mut sharers = self.slot.lock().unwrap();
        if self.leaf().is_linked(id(core)) && self.word.load(Relaxed) == 0 {
            self.word.store(1, Relaxed);
        } else if !((self.leaf().is_linked(id(core)) || self.leaf().may_link(id(core))) && self.link(core)) {
            *sharers = self.leaf().add_sharer(id(core)).unwrap();
            self.cores[core].lock().unwrap().own = true;
        }
        let core = self.cores[core].lock().unwrap();
        assert!(!(core.linked && core.own), "a page of its own in place of the leaf");
    }

    /// Invalidates once more, and this time the others have to unlink, unless one of them has linked before.
    /// Returns whether they did.
    fn send_away(&self) -> bool {
        if !self.leaf().note_invalidation(id(OWNER)) {
            return false;
        }
        let others = self.leaf().others(id(OWNER));
        others.iter().for_each(|core| *self.cores[core.index()].lock().unwrap() = Core::default());
        self.release(self.leaf().emptied(&others));
        true
    }

    /// Invalidates the page on all cores that may translate it.
    fn invalidate(&self) {
        let sharers = self.slot.lock().unwrap();
        self.word.store(0, Relaxed);
        let users = self.leaf().users(*sharers);
        users.iter().for_each(|core| {
            let mut core = self.cores[core.index()].lock().unwrap();
            (core.cached, core.own) = (false, false);
        });
    }

    /// Checks, with all cores at rest: each linked core is in the set, each core in the set holds the leaf,
    /// and no core has an invalidated translation.
    fn judge(&self) {
        let set = self.leaf().linked();
        for (index, core) in self.cores.iter().enumerate() {
            let core = core.lock().unwrap();
            assert!(!core.linked || set.contains(id(index)), "core {index} is linked and nobody knows");
            assert!(!core.cached || self.word.load(Relaxed) != 0, "core {index} has a page that is gone");
        }
        assert_eq!(self.held.load(Relaxed), set.len());
    }
}

/// `others` act against the owner, which unlinks them and invalidates the page.
fn race(linked: &'static [usize], others: &'static [usize], act: fn(&World, usize)) {
    check(2, move || {
        let world = World::new(linked, 1);
        let spawn = |&core: &usize| {
            let theirs = world.clone();
            thread::spawn(move || act(&theirs, core))
        };
        let threads: Vec<_> = others.iter().map(spawn).collect();
        let alone = world.send_away();
        world.invalidate();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        world.judge();
        assert!(!alone || world.leaf().linked().iter().all(|core| core == id(OWNER)), "somebody stays");
    });
}

fn link_and_walk(world: &World, core: usize) {
    if world.link(core) {
        world.walk(core);
    }
}

#[test]
fn a_linked_core_links_once_more() {
    race(&[0, 1], &[1], link_and_walk);
}

#[test]
fn a_core_comes_to_the_leaf() {
    race(&[0, 1], &[2], link_and_walk);
}

#[test]
fn both_at_once() {
    race(&[0, 1], &[1, 2], link_and_walk);
}

/// The others are unlinked, and many fills make the leaf shared once more before a core that comes to it
/// checks whether it may link.
#[test]
fn a_core_comes_as_the_leaf_is_shared_once_more() {
    check(3, || {
        let world = World::new(&[0, 1], 1);
        let theirs = world.clone();
        let linking = thread::spawn(move || link_and_walk(&theirs, 2));
        if world.send_away() {
            assert!(world.leaf().note_shared_fill(64, 2), "so many fills at once");
        }
        world.invalidate();
        linking.join().unwrap();
        world.judge();
    });
}

/// The same race, so late that the core finds no count that it would have to change: only the fences order
/// the two.
#[test]
fn a_core_comes_before_anything_is_counted() {
    check(2, || {
        let world = World::shared(&[0], 1);
        let theirs = world.clone();
        let linking = thread::spawn(move || link_and_walk(&theirs, 2));
        world.almost_send_away();
        let alone = world.send_away();
        world.invalidate();
        linking.join().unwrap();
        world.judge();
        assert!(!alone || world.leaf().linked().iter().all(|core| core == id(OWNER)), "somebody stays");
    });
}

#[test]
fn a_core_drops_its_tables() {
    race(&[0, 1], &[1], |world, core| {
        *world.cores[core].lock().unwrap() = Core::default();
        if world.leaf().leave(id(core)) {
            world.held.fetch_sub(1, Relaxed);
        }
        link_and_walk(world, core);
    });
}

/// A core in the set stores only the page's word (`linkage.rs`, 5). If it is unlinked at the same time, it
/// still finds the page after few faults, through the leaf or in a page of its own.
#[test]
fn a_core_fills_by_one_store() {
    check(3, || {
        let world = World::new(&[0, 1], 0);
        let theirs = world.clone();
        let filling = thread::spawn(move || {
            let faults = (0..4).take_while(|_| !theirs.walk(1)).map(|_| theirs.fault(1)).count();
            assert!(faults < 4, "a program that faults for ever");
        });
        world.send_away();
        filling.join().unwrap();
        world.invalidate();
        world.judge();
    });
}

/// The same race, while the page is invalidated.
#[test]
fn a_page_filled_by_one_store_is_invalidated() {
    check(2, || {
        let world = World::new(&[0, 1], 0);
        let theirs = world.clone();
        let filling = thread::spawn(move || {
            (0..2).for_each(|_| {
                theirs.fault(1);
                theirs.walk(1);
            })
        });
        world.invalidate();
        filling.join().unwrap();
        world.judge();
    });
}

/// A core that is in the set and did not hold the leaf yet would be released by the owner, which then drops
/// its own tables.
#[test]
fn one_comes_and_the_owner_drops_its_tables() {
    check(2, || {
        let world = World::new(&[0], 1);
        let theirs = world.clone();
        let linking = thread::spawn(move || link_and_walk(&theirs, 1));
        world.send_away();
        world.invalidate();
        *world.cores[OWNER].lock().unwrap() = Core::default();
        if world.leaf().leave(id(OWNER)) {
            world.release(1);
        }
        linking.join().unwrap();
        world.judge();
    });
}
