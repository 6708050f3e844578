//! Invalidation of translations on other cores: one interrupt per target, no lock, no shared line but the two
//! that the message needs.
//!
//! ```text
//!   initiator i                                  target t
//!   ───────────                                  ────────
//!   request[i] := (space, pages, waiting = n)
//!   inbox[t] |= bit i        ── Release ──▶      bits := swap(inbox[t], 0)          Acquire
//!   IPI to t                                     for each bit i: read request[i], clear pages
//!   wait until waiting = 0   ◀── Release ──      request[i].waiting -= 1
//! ```
//!
//! 1. A core initiates one shootdown at a time (kernel code is not preempted, handlers initiate none), so
//!    `request[i]` is constant from the first `inbox` store until `waiting` is 0.
//! 2. A bit in an inbox is always followed by an interrupt, so it is served. A handler that finds an empty
//!    inbox came after one that served two bits.
//! 3. The initiator has interrupts on while it waits, so two cores that target each other both finish. If
//!    they are off (a caller's mistake), it serves its own inbox by polling.
//! 4. A handler runs with interrupts off, takes no lock and touches its own core's tables only.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use percore::{CoreId, CoreSet, MAX_CORES, Pinned};
use vm::PageRange;

use super::{interrupts, ipi, percpu, wait};
use crate::arch::per_core::all_cores;

/// The translations that a core clears when another core asks.
pub trait Clearable: Sync {
    /// Removes this core's translations of `pages`. Interrupts are off.
    fn clear_here(&self, pin: &Pinned, pages: PageRange);
}

const INBOX_WORDS: usize = MAX_CORES / 64;

struct Request {
    what: UnsafeCell<Option<(&'static dyn Clearable, PageRange)>>,
    waiting: AtomicU32,
}

// SAFETY: its own core alone writes `what` while no target waits. Targets read it between a bit's arrival and
// the answer.
unsafe impl Sync for Request {}

all_cores! {
    static REQUESTS: Request = Request { what: UnsafeCell::new(None), waiting: AtomicU32::new(0) };
}

all_cores! {
    static INBOXES: [AtomicU64; INBOX_WORDS] = [const { AtomicU64::new(0) }; INBOX_WORDS];
}

/// Has every core of `targets`, which excludes this core, clear `pages` of `space`. Returns when all have.
pub fn run(pin: &Pinned, space: &dyn Clearable, targets: &CoreSet, pages: PageRange) {
    let count = targets.len() as u32;
    if count == 0 {
        return;
    }
    let me = pin.core();
    let request = &REQUESTS.of(me);
    // Relaxed: published by the inbox bits.
    request.waiting.store(count, Ordering::Relaxed);
    // SAFETY: the lifetime is erased until all have answered, below.
    let space = unsafe { core::mem::transmute::<&dyn Clearable, &'static dyn Clearable>(space) };
    // SAFETY: no core has a bit of this core (1), so none reads.
    unsafe { *request.what.get() = Some((space, pages)) };
    targets.iter().for_each(|target| post(me, target));
    wait::begin();
    // Acquire pairs with the Release of each answer: what targets did before is done.
    while request.waiting.load(Ordering::Acquire) != 0 {
        if !interrupts::are_on() {
            serve();
        }
        wait::turn();
    }
}

fn post(me: CoreId, target: CoreId) {
    // Release pairs with the swap in `serve`: a core that sees the bit sees the request.
    INBOXES.of(target)[me.index() / 64].fetch_or(1 << (me.index() % 64), Ordering::Release);
    ipi::send_shootdown(target);
}

/// Serves every request in this core's inbox. Interrupts are off.
pub fn serve() {
    // SAFETY: interrupts are off, so this flow stays on its core. The interrupted code is not in the middle
    // of its core's tables in a way that clearing other pages could hurt (see `per_core_tables`).
    let pin = unsafe { Pinned::assume(percpu::core()) };
    for (word, bits) in INBOXES.mine(&pin).iter().enumerate() {
        if bits.load(Ordering::Relaxed) == 0 {
            continue;
        }
        // Acquire pairs with the Release in `post`.
        let mut bits = bits.swap(0, Ordering::Acquire);
        while bits != 0 {
            answer(&pin, CoreId::new(word * 64 + bits.trailing_zeros() as usize));
            bits &= bits - 1;
        }
    }
}

fn answer(pin: &Pinned, initiator: CoreId) {
    let request = &REQUESTS.of(initiator);
    // SAFETY: this core has an unanswered bit of the initiator, so the request is constant and its space
    // alive (1).
    unsafe {
        if let Some((space, pages)) = *request.what.get() {
            space.clear_here(pin, pages);
        }
    }
    // Release: this core's clearing happens before the initiator goes on.
    request.waiting.fetch_sub(1, Ordering::Release);
}
