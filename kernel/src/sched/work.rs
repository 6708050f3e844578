//! The work of a core before it returns to user mode, and while it idles: interrupts only note it.

use alloc::sync::Arc;

use percore::CoreId;

use super::above::Threads;
use super::attention::{ENTRY, INPUT, NETWORK, REAP, RESCHEDULE, TIMER};
use super::cores::{self, Core};
use super::{Task, switch, timers};
use crate::above::Above;
use crate::arch::{self, TrapFrame, interrupts, with_current};
use crate::counters::{Counter, bump};
use crate::mm;

/// Handles the interrupt of this core's timer. Interrupts are off.
pub fn on_timer() {
    super::attention::raise(TIMER);
}

/// Handles another core's request to look at the run queue. Interrupts are off.
pub fn on_reschedule() {
    super::attention::raise(RESCHEDULE);
}

/// Handles the interrupt of the network. Interrupts are off.
pub fn on_network() {
    super::attention::raise(NETWORK);
}

/// Runs the last work before user mode. Interrupts are off, and are off again when it returns.
#[inline]
pub fn on_return_to_user(frame: &mut TrapFrame) {
    while needs_attention() {
        interrupts::enable();
        serve(frame);
        interrupts::disable();
    }
}

#[inline(always)]
fn needs_attention() -> bool {
    cores::mine().attention.any() || with_current(|task| task.attention.any()) == Some(true)
}

#[cold]
fn serve(frame: &mut TrapFrame) {
    serve_and_take_turns();
    let reasons = with_current(|task| task.attention.any());
    if reasons == Some(true) {
        Above::handle_attention(frame);
    }
}

/// Does the work that this core was asked to do, and lets other tasks run if it is their turn.
pub fn serve_and_take_turns() {
    let turn_is_over = serve_core();
    if turn_is_over {
        let_others_run();
    }
}

/// Does the work that this core was asked to do, except for switching tasks. Returns whether a switch should
/// follow.
pub fn serve_core() -> bool {
    let core = cores::mine();
    let reasons = core.attention.take();
    if reasons & (INPUT | NETWORK | ENTRY) != 0 {
        serve_seldom(reasons);
    }
    let ticked = reasons & TIMER != 0 && ring();
    let asked = reasons & RESCHEDULE != 0;
    // A core that idles leaves the epochs at its tick: see `idle`.
    let works = || with_current(|_| ()).is_some();
    if asked || ticked && works() {
        // On a tick, and when a core that is short of memory asks.
        mm::epoch::tick_if_due(&percore::pin());
    }
    if ticked {
        with_current(Above::on_tick);
    }
    // Threads that wait for the timer are woken before this frees and after it, so that they run between it
    // and the caller's work. A tick's work, what is freed, and a piece of the task's own call are longer
    // together than a stretch may be.
    wake_sleepers(core);
    if reasons & REAP != 0 || asked && core.has_reaper() {
        reap();
        wake_sleepers(core);
    }
    ticked || asked || core.attention.has(RESCHEDULE)
}

#[cold]
fn serve_seldom(reasons: u32) {
    if reasons & INPUT != 0 {
        Above::take_input();
    }
    if reasons & NETWORK != 0 {
        Above::serve_network();
    }
    if reasons & ENTRY != 0 {
        Above::choose_entry();
    }
}

/// Makes each core choose the entry of system calls again, before it next returns to user mode.
pub fn renew_entries() {
    (0..arch::cores()).for_each(|core| cores::of(CoreId::new(core)).attention.raise(ENTRY));
}

/// Does the work that this core was asked to do, and lets other tasks run. For a task that waits for others
/// to release something. The caller holds no lock, nor anything that a core may hold only until it is on its
/// way to user mode.
pub fn give_way() {
    serve_core();
    let_others_run();
}

/// Lets other tasks run. If this core has something left to free, this task frees it in its next turn, and
/// the others do not wait for that.
fn let_others_run() {
    let core = arch::core();
    let reaps = cores::of(core).postpone_reaping();
    switch::yield_now();
    if reaps {
        cores::of(core).resume_reaping();
        if core != arch::core() {
            arch::send_reschedule(core);
        }
    }
}

/// Wakes sleepers if the timer rang since this core last looked. For a tick that is due it rings again.
fn wake_sleepers(core: &Core) {
    if core.attention.has(TIMER) {
        core.attention.clear(TIMER);
        timers::wake_due(core, arch::now_ns());
        timers::arm(core);
    }
}

/// Wakes sleepers. Returns whether it was a tick.
fn ring() -> bool {
    let core = cores::mine();
    let ticked = timers::expire(core);
    if ticked {
        bump(Counter::Ticks);
    }
    timers::arm(core);
    ticked
}

/// Frees tasks that have exited on this core, with their stacks, a piece of the spaces to which it dropped
/// the last reference, and a piece of the files that it removed. The rest follows before the task returns to
/// user mode, unless it is left to another task of this core, or before the core sleeps.
pub fn reap() {
    loop {
        let dead: Option<Arc<Task>> = cores::mine().dead.lock().pop();
        let Some(dead) = dead else { break };
        drop(dead);
    }
    let is_more = mm::remains::free_piece() | mm::epoch::free_ripe();
    let is_left_to_another = || cores::mine().has_reaper() && with_current(|_| ()).is_some();
    if is_more && !is_left_to_another() {
        super::attention::raise(REAP);
    }
}
