//! Kernel stacks, each above an unmapped hole: running over the end is a double fault, not silent corruption.
//!
//! A stack's pages stay mapped when its task is gone (unmapping them needs every core's TLB), and a new task
//! gets a used stack before a new one is made. Each core keeps a few, so that making and ending tasks on one
//! core touches no line of another core. When memory is short, [`give_back`] unmaps the stacks without a task
//! and frees their pages. Their addresses stay with the kernel, for the next stacks.
//!
//! ```text
//!   place ──make──▶ in use ──drop──▶ a core's, or unused ──give_back──▶ place
//!                     ▲                     │
//!                     └─────────new─────────┘
//! ```

use percore::{CoreId, Pinned};
use sync::SpinLock;
use vm::{PageNum, PageRange};

use super::kernel_map::{self, STACKS, map_new_page};
use super::shootdown::{self, Clearable};
use super::{cpu, percpu};
use crate::arch::per_core::all_cores;

const PAGE: u64 = 4096;
/// Bytes of a stack, and of the hole below it.
const BYTES: u64 = 4 * PAGE;
const STRIDE: u64 = 2 * BYTES;

/// As many stacks as the one entry of the top tables that all spaces share can hold.
const MOST: u64 = (512 << 30) / STRIDE;

/// All stacks. Neither list needs memory: a stack without a task has the link to the next one in its
/// uppermost word, a stack without pages in the entry of its uppermost page.
struct Stacks {
    /// The first stack without a task, and the number of them.
    unused: Option<u64>,
    count: u64,
    /// The first stack without pages.
    places: Option<u64>,
    made: u64,
    /// The next stack to be made, and the bytes that it has already, if memory was short at the last try.
    begun: Option<(u64, u64)>,
}

static ALL: SpinLock<Stacks> =
    SpinLock::new(Stacks { unused: None, count: 0, places: None, made: 0, begun: None });

/// Stacks that a core keeps.
const KEPT: usize = 8;
/// Stacks that are given back by one interrupt of the other cores.
const BATCH: usize = 64;

/// Tops of the stacks without a task that a core keeps. 0 is none.
type Kept = [u64; KEPT];

all_cores! {
    static MINE: SpinLock<Kept> = SpinLock::new([0; KEPT]);
}

/// Returns the stacks that the machine's cores keep.
fn kept() -> impl Iterator<Item = &'static SpinLock<Kept>> {
    MINE.first(percpu::cores())
}

fn take_mine() -> Option<u64> {
    let mut mine = MINE.of(super::core()).lock();
    mine.iter_mut().find(|top| **top != 0).map(core::mem::take)
}

/// Returns whether there was room for it.
fn keep(top: u64) -> bool {
    let mut mine = MINE.of(super::core()).lock();
    let free = mine.iter_mut().find(|top| **top == 0);
    free.map(|free| *free = top).is_some()
}

/// A task's kernel stack, which is given back when dropped.
#[derive(Debug)]
pub struct KernelStack {
    top: u64,
}

impl KernelStack {
    /// Returns the frames of a stack.
    pub const FRAMES: u64 = BYTES / PAGE;

    /// Allocates a stack. Returns `None` without memory.
    pub fn new() -> Option<Self> {
        take_mine().or_else(take_any).map(|top| Self { top })
    }

    /// Returns the address just above the stack.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// Returns how many bytes of the most deeply used stack were ever written to, among the stacks that have
    /// pages now. A stack begins with zeroes and stays mapped when its task ends, so its lowest word that is
    /// not zero tells how deep it was used.
    pub fn deepest() -> u64 {
        let made = ALL.lock().made;
        (1..=made).fold(0, |deepest, number| deepest.max(used(STACKS + number * STRIDE, deepest)))
    }

    /// Returns how many frames the stacks without a task have. Approximate while other cores run.
    pub fn unused_frames() -> u64 {
        let kept = kept().map(|kept| kept.lock().iter().filter(|&&top| top != 0).count()).sum::<usize>();
        (kept as u64 + ALL.lock().count) * Self::FRAMES
    }
}

/// Returns how many bytes of the stack with this top were written to, or a smaller number if those are not
/// more than `known`.
fn used(top: u64, known: u64) -> u64 {
    let pages = (top - BYTES..top - known).step_by(PAGE as usize);
    let lowest = pages.filter_map(|at| kernel_map::first_written(at).map(|offset| at + offset)).next();
    lowest.map_or(0, |lowest| top - lowest)
}

fn take_any() -> Option<u64> {
    let mut all = ALL.lock();
    all.pop_unused().or_else(|| all.make())
}

impl Stacks {
    /// Makes a stack, or goes on with the one that was begun.
    fn make(&mut self) -> Option<u64> {
        let (top, mut bytes) = match self.begun.take() {
            Some(begun) => begun,
            None => (self.place()?, 0),
        };
        let pin = percore::pin();
        while bytes < BYTES {
            if map_new_page(&pin, top - BYTES + bytes).is_none() {
                self.begun = Some((top, bytes));
                return None;
            }
            bytes += PAGE;
        }
        Some(top)
    }

    /// Returns the top of a stack to be made.
    fn place(&mut self) -> Option<u64> {
        if let Some(top) = self.places {
            self.places = if_any(kernel_map::note_of_unmapped(last_page(top)));
            return Some(top);
        }
        if self.made == MOST {
            return None;
        }
        self.made += 1;
        Some(STACKS + self.made * STRIDE)
    }

    /// Adds a stack that has no pages any more.
    fn push_place(&mut self, top: u64) {
        kernel_map::note_at_unmapped(last_page(top), self.places.unwrap_or(0));
        self.places = Some(top);
    }

    fn push_unused(&mut self, top: u64) {
        // SAFETY: no core runs on the stack, and its pages are mapped.
        unsafe { last_word(top).write(self.unused.unwrap_or(0)) };
        self.unused = Some(top);
        self.count += 1;
    }

    fn pop_unused(&mut self) -> Option<u64> {
        let top = self.unused?;
        // SAFETY: as in `push_unused`, which wrote it.
        self.unused = if_any(unsafe { last_word(top).read() });
        self.count -= 1;
        Some(top)
    }
}

/// Returns `top`, or `None` if it is 0.
fn if_any(top: u64) -> Option<u64> {
    Some(top).filter(|&top| top != 0)
}

fn last_page(top: u64) -> u64 {
    top - PAGE
}

fn last_word(top: u64) -> *mut u64 {
    (top - size_of::<u64>() as u64) as *mut u64
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        if !keep(self.top) {
            ALL.lock().push_unused(self.top);
        }
    }
}

/// Frees the memory of all stacks without a task, including those that cores keep. Interrupts the other cores
/// once for each [`BATCH`] of stacks. The caller holds no lock.
pub fn give_back() {
    while give_back_some() == BATCH {}
}

/// Returns how many stacks that were.
fn give_back_some() -> usize {
    let pin = percore::pin();
    let (mut tops, mut count) = ([0; BATCH], 0);
    // The locks are released before this core waits for the other cores, which may be waiting for a lock
    // themselves.
    for (place, top) in tops.iter_mut().zip(core::iter::from_fn(take_unused)) {
        *place = top;
        count += 1;
    }
    let tops = &tops[..count];
    if tops.is_empty() {
        return 0;
    }
    each_page(tops, kernel_map::unmap);
    flush_everywhere(&pin);
    each_page(tops, |at| kernel_map::free_unmapped(&pin, at));
    let mut all = ALL.lock();
    tops.iter().for_each(|&top| all.push_place(top));
    count
}

/// Takes a stack without a task, from any core, and returns its top.
fn take_unused() -> Option<u64> {
    let unused = ALL.lock().pop_unused();
    unused.or_else(|| {
        kept().find_map(|kept| kept.lock().iter_mut().find(|top| **top != 0).map(core::mem::take))
    })
}

fn each_page(tops: &[u64], mut f: impl FnMut(u64)) {
    for top in tops {
        (top - BYTES..*top).step_by(PAGE as usize).for_each(&mut f);
    }
}

/// All translations of the kernel's half.
struct KernelTlb;

impl Clearable for KernelTlb {
    fn clear_here(&self, _pin: &Pinned, _pages: PageRange) {
        cpu::flush_all();
    }
}

/// Flushes the translations of pages that were unmapped from every core's TLB.
fn flush_everywhere(pin: &Pinned) {
    cpu::flush_all();
    let others = (0..percpu::cores()).map(CoreId::new).filter(|&core| core != pin.core()).collect();
    let all = PageRange::between(PageNum::new(0), PageNum::new(0));
    shootdown::run(pin, &KernelTlb, &others, all);
}
