//! What a core does before it returns to user mode, and while it idles: whatever interrupts only noted.

use alloc::sync::Arc;

use super::attention::{INPUT, REAP, RESCHEDULE, TIMER};
use super::cores;
use super::{Task, switch, timers};
use crate::arch::{TrapFrame, interrupts, with_current};
use crate::counters::{Counter, bump};
use crate::{fs, mm, process};

/// The timer of this core rang. Interrupts are off.
pub fn on_timer() {
    super::attention::raise(TIMER);
}

/// Another core asks this one to look at its run queue. Interrupts are off.
pub fn on_reschedule() {
    super::attention::raise(RESCHEDULE);
}

/// The last thing before user mode. Interrupts are off, and are off again when it returns.
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
    let turn_is_over = serve_core();
    if turn_is_over {
        switch::yield_now();
    }
    let reasons = with_current(|task| task.attention.any());
    if reasons == Some(true) {
        process::attend(frame);
    }
}

/// Does what this core was asked to do, but for switching tasks: whether that should follow.
pub fn serve_core() -> bool {
    let core = cores::mine();
    let reasons = core.attention.take();
    if reasons & INPUT != 0 {
        fs::input_arrived();
    }
    let ticked = reasons & TIMER != 0 && ring();
    let asked = reasons & RESCHEDULE != 0;
    // A core that idles leaves the epochs at its tick: see `idle`.
    let works = || with_current(|_| ()).is_some();
    if asked || ticked && works() {
        // On a tick, and when a core that is short of memory asks.
        mm::epoch::tick_if_due(&percore::pin());
    }
    // Those who wait for the timer do not wait for that.
    if reasons & REAP != 0 {
        reap();
    }
    ticked || asked
}

/// For a task that waits for what others give up: this core does what it was asked to do, and others run. The caller
/// holds no lock, nor what a core may hold only until it is on its way to user mode.
pub fn give_way() {
    serve_core();
    switch::yield_now();
}

/// Wakes sleepers. Whether it was a tick.
fn ring() -> bool {
    let core = cores::mine();
    let ticked = timers::expire(core);
    if ticked {
        bump(Counter::Ticks);
    }
    timers::arm(core);
    ticked
}

/// Frees tasks that have exited on this core, stack and all, and a piece of the spaces that it was the last to have.
pub fn reap() {
    loop {
        let dead: Option<Arc<Task>> = cores::mine().dead.lock().pop();
        let Some(dead) = dead else { break };
        drop(dead);
    }
    if mm::remains::free_piece() {
        super::attention::raise(REAP);
    }
}
