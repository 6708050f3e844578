//! The one Refcache domain, when its epochs move, and what to do when memory is short.

use core::sync::atomic::{AtomicBool, Ordering};

use percore::{CoreId, Pinned, pin};
use refcache::{Config, Refcache};
use sync::SetOnce;

use super::{frames, space};
use crate::arch;
use crate::counters::{self, Counter};

/// Entries of each core's delta cache. A core that works in one place of a space touches a few nodes.
const CACHE_SLOTS: usize = 256;
/// Objects that one tick reviews at most.
const REVIEW_BUDGET: usize = 128;
/// Frames that a fault may need: tables, a page, two nodes. Less than this is not worth another try.
const WORTH_A_RETRY: u64 = 16;
/// How long to wait for other cores to give frames back.
const PATIENCE_NS: u64 = 5_000_000;

static DOMAIN: SetOnce<Refcache> = SetOnce::new();
/// Some core has no memory left: every core gives back what it keeps ready, and its page tables.
static SHORT: AtomicBool = AtomicBool::new(false);

/// Makes the domain, with every core offline. Once, at boot.
pub fn init(cores: usize) {
    DOMAIN.set(Refcache::new(Config { cores, cache_slots: CACHE_SLOTS, review_budget: REVIEW_BUDGET }));
}

/// The domain.
///
/// # Panics
/// Before `init`.
pub fn domain() -> &'static Refcache {
    DOMAIN.get().expect("the domain is made at boot")
}

/// Runs epoch work if some is due. On the way to user mode and in the idle loop only: never where a
/// reference might be held.
pub fn tick_if_due(pin: &Pinned) {
    // Relaxed: a hint; see `reclaim`.
    if SHORT.load(Ordering::Relaxed) {
        space::drop_my_tables();
        frames::give_back(pin, true);
    }
    if domain().is_online(pin) && domain().wants_tick(pin) && domain().tick(pin).flushed {
        counters::add(pin, Counter::Epochs, 1);
    }
}

/// This core goes to sleep: it leaves the epochs, and keeps only some zeroed frames ready.
pub fn idle_enter() {
    let pin = pin();
    domain().offline(&pin);
    while frames::prepare_one(&pin) {}
    frames::give_back(&pin, false);
}

/// This core is awake again.
pub fn idle_exit() {
    domain().online(&pin());
}

/// Forces epochs until what is dead is free. The caller holds no lock.
pub fn drain() {
    domain().drain(&pin());
}

/// Memory is short: drops this core's page tables, forces epochs and fetches back the frames that other cores keep. Returns
/// whether that found enough to try again. The caller holds no lock.
pub fn reclaim() -> bool {
    let before = frames::stats().pooled;
    space::drop_my_tables();
    // Relaxed: the interrupts make every core look; one that looks late gives back at its next tick.
    SHORT.store(true, Ordering::Relaxed);
    let others = (0..arch::cores()).map(CoreId::new).filter(|&core| core != arch::core());
    others.for_each(arch::send_reschedule);
    drain();
    frames::give_back(&pin(), true);
    let (enough, deadline) =
        (|| frames::stats().pooled >= before + WORTH_A_RETRY, arch::now_ns() + PATIENCE_NS);
    while !enough() && arch::now_ns() < deadline {
        percore::relax();
    }
    SHORT.store(false, Ordering::Relaxed);
    enough()
}
