//! Memory becomes stale in a member while that touches it and names it in calls. The kernel's part is behind
//! a lock, as Linux's is: what a member has mapped, and whether a touch there is a fault.

use std::sync::Arc;

use pathreads::PAGE;
use pathreads::stale::{Named, Stale};
use sync::atomic::{AtomicBool, Ordering};
use sync::loom::sync::Mutex;
use sync::loom::thread;

use crate::explore;

const PLACE: u64 = 16 * PAGE;
const END: u64 = PLACE + PAGE;
const OTHER: u64 = 64 * PAGE;

/// The kernel's state of the page.
struct Kernel {
    /// The number of the mapping that the page's bytes are of.
    content: u32,
    /// Whether the member has it mapped, and whether a touch of it is a fault.
    is_mapped: bool,
    is_guarded: bool,
}

struct World {
    /// The number of the mapping that is recorded, if there is one.
    record: Mutex<Option<u32>>,
    kernel: Mutex<Kernel>,
    named: Named,
    stale: Stale,
    is_taken: AtomicBool,
}

impl World {
    /// Makes one in which the member has the first mapping.
    fn new() -> Arc<Self> {
        let kernel = Kernel { content: 1, is_mapped: true, is_guarded: false };
        Arc::new(World {
            record: Mutex::new(Some(1)),
            kernel: Mutex::new(kernel),
            named: Named::default(),
            stale: Stale::default(),
            is_taken: AtomicBool::new(false),
        })
    }

    /// Takes the memory away, as `isolate::stale::make_stale_in` does. Returns whether the member is not
    /// asked.
    fn take_away(&self) -> bool {
        let mut record = self.record.lock().unwrap();
        let mut is_done = false;
        if !self.named.touches(PLACE, END) && self.stale.has_room() {
            self.stale.note();
            self.kernel.lock().unwrap().is_guarded = true;
            is_done = self.stale.add(PLACE, END) && !self.named.touches(PLACE, END);
        }
        if !is_done {
            // The member is asked, and has unmapped it with its answer.
            self.unmap();
        }
        self.kernel.lock().unwrap().content = 0;
        *record = None;
        is_done
    }

    fn map_anew(&self) {
        let mut record = self.record.lock().unwrap();
        self.kernel.lock().unwrap().content = 2;
        *record = Some(2);
    }

    /// Unmaps what is stale in the member.
    fn unmap(&self) {
        self.stale.unmap(0, u64::MAX, |_, _| Ok::<(), ()>(())).unwrap();
        let mut kernel = self.kernel.lock().unwrap();
        (kernel.is_mapped, kernel.is_guarded) = (false, false);
    }

    /// Touches the page, as the program's instruction does. Returns the bytes, or `None` if the program does
    /// not have the page.
    fn touch(&self) -> Option<u32> {
        loop {
            let kernel = self.kernel.lock().unwrap();
            if kernel.is_mapped && !kernel.is_guarded {
                return Some(kernel.content);
            }
            drop(kernel);
            let record = self.record.lock().unwrap();
            if self.stale.has(PLACE) {
                self.unmap();
            }
            record.as_ref()?;
            let mut kernel = self.kernel.lock().unwrap();
            (kernel.is_mapped, kernel.is_guarded) = (true, false);
        }
    }
}

#[test]
fn a_member_touches_no_memory_that_was_taken_away() {
    explore(3, || {
        let world = World::new();
        let member = Arc::clone(&world);
        let toucher = thread::spawn(move || {
            for _ in 0..2 {
                // Acquire pairs with the release of the one that took it away.
                let was_taken = member.is_taken.load(Ordering::Acquire);
                let seen = member.touch();
                assert!(!was_taken || seen != Some(1));
                // Between the punch and the end of taking away, it may still be mapped, and zero.
                assert!(!was_taken || seen != Some(0));
            }
        });
        world.take_away();
        world.is_taken.store(true, Ordering::Release);
        world.map_anew();
        toucher.join().unwrap();
        assert_eq!(world.touch(), Some(2));
        assert!(!world.stale.has(PLACE), "it would be unmapped again");
    });
}

/// The calls of a member, of which the last one waits for ever: what it knows of the page when it makes that.
fn call_twice(world: &World, first: u64) -> bool {
    world.named.begin();
    world.named.add(first, first + PAGE);
    world.named.begin();
    world.named.add(OTHER, OTHER + 1);
    world.named.add(PLACE, END);
    // It remembers that it has the page, unless something has become stale.
    world.stale.count() == 0
}

#[test]
fn memory_does_not_become_stale_under_a_call() {
    for first in [PLACE, OTHER] {
        explore(4, move || {
            let world = World::new();
            let member = Arc::clone(&world);
            let caller = thread::spawn(move || call_twice(&member, first));
            let is_not_asked = world.take_away();
            let has_it = caller.join().unwrap();
            assert!(!(has_it && is_not_asked), "the call fails, and nobody has interrupted it");
        });
    }
}
