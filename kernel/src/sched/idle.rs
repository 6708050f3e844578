//! A core that has no task to run.
//!
//! It stays in the epochs until its next tick, in case work comes back soon. Then it leaves them, so that a
//! sleeping core never delays an epoch, and its timer rings for its sleepers only. At that tick it takes no
//! part in an epoch: only cores that run tasks do.

use core::sync::atomic::Ordering;

use super::cores::{self, Core};
use super::timers::TICK_NS;
use super::{place, switch, timers, work};
use crate::arch::{self, interrupts};
use crate::mm;

/// Runs the idle flow of this core, which runs tasks as they come, for ever. Needs a stack that nothing else
/// uses.
pub fn enter_idle() -> ! {
    loop {
        interrupts::enable();
        let ticked = work::serve_core();
        if cores::mine().has_reaper() {
            // The task is on another core by now.
            work::reap();
        }
        match place::find_work() {
            Some(task) => {
                come_online(cores::mine());
                switch::run(task);
            }
            None => rest(cores::mine(), ticked),
        }
    }
}

/// Halts until an interrupt, unless work came up since the last check. Leaves the epochs if the core `ticked`
/// while it was idle, or was asked to look up and found nothing.
fn rest(core: &Core, ticked: bool) {
    if ticked && core.online.load(Ordering::Relaxed) {
        let has_left = mm::epoch::idle_enter(|| !something_waits(core));
        // Only now: freeing before may change refcounts.
        core.online.store(!has_left, Ordering::Relaxed);
    }
    interrupts::disable();
    place::declare_idle(arch::core());
    if !something_waits(core) {
        timers::arm(core);
        interrupts::halt_until_interrupt();
    }
    place::claim_idle(arch::core());
}

/// Returns whether there is work that this core could take.
fn something_waits(core: &Core) -> bool {
    core.attention.any() || core.waiting() > 0 || place::stealable()
}

/// Takes part in epochs from now on. Before this core touches any reference count.
pub fn come_online(core: &Core) {
    if !core.online.swap(true, Ordering::Relaxed) {
        mm::epoch::idle_exit();
        core.next_tick.store(arch::now_ns() + TICK_NS, Ordering::Relaxed);
    }
    timers::arm(core);
}
