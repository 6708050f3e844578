//! The kernel's heap: powers of two from 64 to 8192 bytes from per-core lists, larger ones from the pool. The
//! smallest object is a cache line, so that a write to one object disturbs no reader of another.
//!
//! A free object's first word links it to the next. A core's list of one size grows by a carved frame and is
//! split in half into the size's depot when it is long. A batch in the depot is a list whose first object's
//! second word leads to the next batch. A list holds the objects that one review of dead objects frees, so
//! that creating and ending processes accesses no depot. Frames and pairs (4096 and 8192 bytes) come from the
//! frame magazines. When memory is short, frames whose objects are all free [go back](give_back). Without
//! memory the heap returns null, and never panics.

mod give_back;

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::mem;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, Ordering};

use percore::Pinned;
use sync::{CachePadded, SpinLock};

use crate::arch::per_core::all_cores;
use crate::arch::{phys_to_virt, virt_to_phys};
use crate::counters::{self, Counter};

use super::FRAME;
use super::fault_injection;
use super::frames;
use super::owner::Owner;

pub use self::give_back::give_back;

const SMALLEST_LOG: u32 = 6;
const FRAME_LOG: u32 = 12;
const PAIR_LOG: u32 = 13;
const CLASSES: usize = (FRAME_LOG - SMALLEST_LOG) as usize;
/// Objects of a batch.
const BATCH: usize = 32;

#[repr(C)]
struct Free {
    next: *mut Free,
    next_batch: *mut Free,
}

/// A list of free objects of one size.
struct List {
    head: *mut Free,
    length: usize,
}

impl List {
    fn push(&mut self, object: NonNull<Free>) {
        // SAFETY: a free object belongs to the list, and no class is smaller than two words.
        unsafe { (*object.as_ptr()).next = self.head };
        self.head = object.as_ptr();
        self.length += 1;
    }

    fn pop(&mut self) -> Option<NonNull<Free>> {
        let object = NonNull::new(self.head)?;
        // SAFETY: objects in the list are free and linked by `push`.
        self.head = unsafe { (*object.as_ptr()).next };
        self.length -= 1;
        Some(object)
    }

    /// Splits off `count` objects as a list of their own.
    fn split(&mut self, count: usize) -> Self {
        let mut front = Self { head: null_mut(), length: 0 };
        while front.length < count
            && let Some(object) = self.pop()
        {
            front.push(object);
        }
        front
    }
}

struct Lists(UnsafeCell<[List; CLASSES]>);

// SAFETY: a core's lists are touched by that core only, pinned, outside interrupts (see `frames.rs`).
unsafe impl Sync for Lists {}

/// Batches of one size that no core holds.
struct Depot {
    batches: SpinLock<Batches>,
    /// Set if there is a batch. Relaxed: a hint, written when it changes, so that a core that finds none
    /// shares nothing.
    any: AtomicBool,
}

struct Batches {
    /// Those that are taken next.
    next: *mut Free,
    /// Those that [`give_back()`] has looked at. They are taken when there are no others.
    looked_at: *mut Free,
}

// SAFETY: they own the objects behind the pointers.
unsafe impl Send for Batches {}

impl Depot {
    const fn new() -> Self {
        let batches = Batches { next: null_mut(), looked_at: null_mut() };
        Self { batches: SpinLock::new(batches), any: AtomicBool::new(false) }
    }

    fn take(&self) -> *mut Free {
        if !self.any.load(Ordering::Relaxed) {
            return null_mut();
        }
        let mut batches = self.batches.lock();
        if batches.next.is_null() {
            batches.next = mem::replace(&mut batches.looked_at, null_mut());
        }
        let batch = batches.next;
        if !batch.is_null() {
            // SAFETY: `put` or `put_looked_at` linked it.
            batches.next = unsafe { (*batch).next_batch };
            self.note(&batches);
        }
        batch
    }

    fn put(&self, batch: List) {
        let mut batches = self.batches.lock();
        // SAFETY: the batch's first object is free and has two words.
        unsafe { (*batch.head).next_batch = batches.next };
        batches.next = batch.head;
        self.note(&batches);
    }

    fn note(&self, batches: &Batches) {
        let any = !batches.next.is_null() || !batches.looked_at.is_null();
        if any != self.any.load(Ordering::Relaxed) {
            self.any.store(any, Ordering::Relaxed);
        }
    }
}

all_cores! {
    static LISTS: Lists = Lists(UnsafeCell::new([const { List { head: null_mut(), length: 0 } }; CLASSES]));
}

static DEPOTS: [CachePadded<Depot>; CLASSES] = [const { CachePadded::new(Depot::new()) }; CLASSES];

fn objects_per_frame(class: usize) -> usize {
    FRAME as usize >> (class as u32 + SMALLEST_LOG)
}

#[inline(always)]
fn with_list<R>(pin: &Pinned, class: usize, f: impl FnOnce(&mut List) -> R) -> R {
    // SAFETY: pinned to the owner, not reached from interrupts, and `f` never allocates.
    f(unsafe { &mut (*LISTS.mine(pin).0.get())[class] })
}

fn alloc_small(pin: &Pinned, class: usize) -> *mut u8 {
    let object = with_list(pin, class, List::pop).or_else(|| {
        refill(pin, class);
        with_list(pin, class, List::pop)
    });
    object.map_or(null_mut(), |object| object.as_ptr().cast())
}

/// Fills this core's list, which is empty, if there is memory. A core that counts the depot's objects may
/// have them all, so this tries again when it has put them back.
fn refill(pin: &Pinned, class: usize) {
    if !fill(pin, class) {
        give_back::await_end();
        fill(pin, class);
    }
}

/// Fills the list from the depot or the pool, and returns whether it did.
fn fill(pin: &Pinned, class: usize) -> bool {
    let batch = DEPOTS[class].take();
    if !batch.is_null() {
        with_list(pin, class, |list| *list = List { head: batch, length: BATCH });
        true
    } else if let Some(frame) = frames::alloc_raw(pin) {
        let log = class as u32 + SMALLEST_LOG;
        frames::note(frame, Owner::slab(log));
        let bytes = 1u64 << log;
        let start = frame * FRAME;
        let objects =
            (0..objects_per_frame(class)).rev().map(|at| phys_to_virt::<Free>(start + at as u64 * bytes));
        with_list(pin, class, |list| objects.filter_map(NonNull::new).for_each(|object| list.push(object)));
        true
    } else {
        false
    }
}

fn free_small(pin: &Pinned, class: usize, object: NonNull<Free>) {
    let longest = objects_per_frame(class).max(BATCH) + BATCH;
    let surplus = with_list(pin, class, |list| {
        list.push(object);
        (list.length > longest).then(|| list.split(BATCH))
    });
    if let Some(surplus) = surplus {
        DEPOTS[class].put(surplus);
    }
}

fn size_log(layout: Layout) -> u32 {
    let bytes = layout.size().max(layout.align()).max(1 << SMALLEST_LOG);
    bytes.next_power_of_two().trailing_zeros()
}

/// Returns whether the layout is that of a radix node's slots: only they ask for 4 KiB aligned to frames.
fn is_node(layout: Layout) -> bool {
    layout.size() == FRAME as usize && layout.align() == FRAME as usize
}

/// The largest block that [`prepare`] can keep for this core: larger ones are in the pool only.
pub const PREPARED: usize = 1 << PAIR_LOG;

/// Sees to it that this core's next allocation of a layout succeeds, whose size and alignment are at most
/// [`PREPARED`]. Returns false without memory.
#[inline]
pub fn prepare(layout: Layout) -> bool {
    if fault_injection::should_fail() {
        return false;
    }
    let (pin, log) = (percore::pin(), size_log(layout));
    if log >= FRAME_LOG {
        return prepare_large(layout);
    }
    let class = (log - SMALLEST_LOG) as usize;
    let has_one = || with_list(&pin, class, |list| !list.head.is_null());
    has_one() || {
        refill(&pin, class);
        has_one()
    }
}

/// Does the same for a block of frames: one that is freed is the first of this core's.
#[cold]
fn prepare_large(layout: Layout) -> bool {
    fault_injection::without_faults(|| {
        // SAFETY: the layout's size is not 0, and the block is freed with the same layout.
        unsafe {
            let block = core::hint::black_box(HEAP.alloc(layout));
            if !block.is_null() {
                HEAP.dealloc(block, layout);
            }
            !block.is_null()
        }
    })
}

struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

// SAFETY: blocks are as large and as aligned as their power of two, and each is handed out once until it is
// freed.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fault_injection::should_fail() {
            return null_mut();
        }
        let (pin, log) = (percore::pin(), size_log(layout));
        let frame = match log {
            ..FRAME_LOG => return alloc_small(&pin, (log - SMALLEST_LOG) as usize),
            FRAME_LOG => frames::alloc_raw(&pin).inspect(|_| {
                counters::add(&pin, Counter::LiveNodes, i64::from(is_node(layout)));
            }),
            PAIR_LOG => frames::alloc_pair(&pin),
            _ => frames::alloc_block((log - FRAME_LOG) as usize),
        };
        frame.map_or(null_mut(), |frame| phys_to_virt(frame * FRAME))
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let (pin, log) = (percore::pin(), size_log(layout));
        if log < FRAME_LOG {
            // SAFETY: a block of this heap is never null.
            let object = unsafe { NonNull::new_unchecked(at.cast()) };
            return free_small(&pin, (log - SMALLEST_LOG) as usize, object);
        }
        let frame = virt_to_phys(at) / FRAME;
        match log {
            FRAME_LOG => {
                counters::add(&pin, Counter::LiveNodes, -i64::from(is_node(layout)));
                frames::free_raw(&pin, frame);
            }
            PAIR_LOG => frames::free_pair(&pin, frame),
            // SAFETY: the caller gives back what `alloc` gave for this layout.
            _ => unsafe { frames::free_block(frame, (log - FRAME_LOG) as usize) },
        }
    }
}
