//! Gives frames whose objects are all free back to the pool, when memory is short.
//!
//! A frame that was carved for objects of one size would keep them for ever. Reclaim looks at one size after
//! the other: it takes this core's list and batches of the depot, counts the free objects of each frame, and
//! frees the frames that have all. The others go back. Objects in the lists of other cores keep their frames.
//!
//! ```text
//!   depot ──take, at most MOST batches──▶ list ──count──▶ frames with all objects free ──▶ pool
//!     ▲                                                └▶ objects of other frames ┐
//!     └───────────────────────── behind the batches that were left ◀──────────────┘
//! ```
//! 1. Only one core does this at a time (`IN_USE`), so the counts are its own.
//! 2. The objects in the list are in no depot and no core's list, so only this core can reach them. A frame
//!    with all of them has no user, and no other core can get one of them.
//! 3. The count is in the frame's descriptor, which means nothing while the frame belongs to the heap
//!    (`page_refs.rs`, owned alone).
//! 4. A core that finds no object and no frame meanwhile waits for the end ([`await_end`]) and looks again:
//!    the objects were free before, and are there or in the pool then. This core waits for no other, except
//!    for the locks of depots and the pool, under which nothing is allocated.
//! 5. It runs without a pause, and takes no memory. [`MOST`] bounds it, so frames whose objects lie in more
//!    batches are found later or never.

use core::mem;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use percore::{Pinned, pin};
use vm::FrameNum;

use super::{BATCH, CLASSES, DEPOTS, Depot, FRAME, Free, List, objects_per_frame, with_list};
use crate::arch::virt_to_phys;
use crate::mm::owner::Owner;
use crate::mm::{frames, page_refs};

/// The batches of one size that one call looks at: 16,384 objects.
const MOST: usize = 512;

static IN_USE: AtomicBool = AtomicBool::new(false);

/// Gives frames whose objects are all free back to the pool. Does nothing if another core does it already.
pub fn give_back() {
    // Acquire and Release: the counts of the core before are complete.
    if IN_USE.swap(true, Ordering::Acquire) {
        return;
    }
    let pin = pin();
    let freed: usize = (0..CLASSES).map(|class| give_back_of(&pin, class)).sum();
    if freed > 0 {
        frames::give_back(&pin);
    }
    IN_USE.store(false, Ordering::Release);
}

/// Waits until no core counts free objects. The caller holds no lock of a depot or the pool.
#[cold]
pub(super) fn await_end() {
    // Acquire: what that core had taken is back.
    while IN_USE.load(Ordering::Acquire) {
        percore::relax();
    }
}

fn give_back_of(pin: &Pinned, class: usize) -> usize {
    let mut all = with_list(pin, class, |list| mem::replace(list, List::NEW));
    DEPOTS[class].take_some(MOST, &mut all);
    count(&all);
    let (mut rest, mut firsts) = (List::NEW, List::NEW);
    while let Some(object) = all.pop() {
        if tally(object.as_ptr()).load(Ordering::Relaxed) != objects_per_frame(class) as u64 {
            rest.push(object);
        } else if object.as_ptr().addr().is_multiple_of(FRAME as usize) {
            firsts.push(object);
        }
    }
    put_back(pin, class, rest);
    let freed = firsts.length;
    while let Some(object) = firsts.pop() {
        let frame = virt_to_phys(object.as_ptr()) / FRAME;
        frames::note(frame, Owner::held(0));
        frames::free_raw(pin, frame);
    }
    freed
}

/// Counts the objects in the list by frame.
fn count(all: &List) {
    all.each(|object| tally(object).store(0, Ordering::Relaxed));
    all.each(|object| {
        tally(object).fetch_add(1, Ordering::Relaxed);
    });
}

/// Returns the count of an object's frame. Relaxed everywhere: only this core uses it (1).
fn tally(object: *const Free) -> &'static AtomicU64 {
    page_refs::word_of_owner(FrameNum::new(virt_to_phys(object) / FRAME))
}

/// Puts whole batches behind those of the depot, and the others into this core's list.
fn put_back(pin: &Pinned, class: usize, mut rest: List) {
    while rest.length >= BATCH {
        DEPOTS[class].put_looked_at(rest.split(BATCH));
    }
    while let Some(object) = rest.pop() {
        with_list(pin, class, |list| list.push(object));
    }
}

impl List {
    const NEW: Self = Self { head: null_mut(), length: 0 };

    fn each(&self, f: impl Fn(*const Free)) {
        let mut object = self.head;
        while !object.is_null() {
            f(object);
            // SAFETY: objects in the list are free and linked by `push`.
            object = unsafe { (*object).next };
        }
    }
}

impl Depot {
    /// Takes at most `most` batches, and adds their objects to `all`.
    fn take_some(&self, most: usize, all: &mut List) {
        for _ in 0..most {
            let mut batch = List { head: self.take(), length: BATCH };
            if batch.head.is_null() {
                break;
            }
            while batch.length > 0
                && let Some(object) = batch.pop()
            {
                all.push(object);
            }
        }
    }

    /// Puts a batch behind those that were not looked at.
    fn put_looked_at(&self, batch: List) {
        let mut batches = self.batches.lock();
        // SAFETY: the batch's first object is free and has two words.
        unsafe { (*batch.head).next_batch = batches.looked_at };
        batches.looked_at = batch.head;
        self.note(&batches);
    }
}
