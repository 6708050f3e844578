//! Switching from one task to the next.
//!
//! A switch has two halves. `leave` runs on the old stack: it picks the next task, keeps the old one's
//! registers, and resumes the other flow. `finish_switch` runs first in the other flow: only then the old
//! task is off its stack, so only then another core may run it. It is requeued, settled in its sleep, or, if
//! it has exited, put aside to be freed. Interrupts are off from the start of `leave` to the end of
//! `finish_switch`.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::cores::{self, Core};
use super::{Task, attention, place};
use crate::arch::{self, interrupts};
use crate::counters::{Counter, bump};
use crate::mm;

/// Why a flow leaves its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It could go on: back to a run queue.
    Yield,
    /// The task sleeps until it is woken.
    Park,
    /// The task has exited.
    Exit,
    /// It is the core's idle flow, which waits in its core.
    Idle,
}

/// Gives the core to the next task that waits for it, if one does or if this task may not stay here.
pub fn yield_now() {
    let core = cores::mine();
    let may_stay = super::with_current(|task| task.affinity().contains(arch::core()));
    if core.waiting() > 0 || !may_stay {
        leave(Departure::Yield);
    }
}

/// Sleeps until woken, see [`sync::Parking`]. May return spuriously.
pub fn park() {
    if super::with_current(|task| task.parking.begin()) {
        leave(Departure::Park);
    }
}

/// Ends the current task.
pub fn exit() -> ! {
    leave(Departure::Exit);
    unreachable!("an exited task was resumed")
}

fn leave(departure: Departure) {
    mm::lending::keep(&percore::pin());
    let _off = interrupts::off();
    let core = cores::mine();
    let next = place::take_own();
    keep_registers();
    leave_space(next.as_deref());
    *core.departure.lock() = departure;
    match next {
        Some(task) => enter(task),
        None => {
            let idle = core.idle_flow.lock().take();
            arch::resume(None, idle.expect("the idle flow waits while a task runs"));
        }
    }
    finish_switch();
}

/// Switches from the idle flow to `task`. Returns when the core has nothing to run.
pub fn run(task: Arc<Task>) {
    let _off = interrupts::off();
    *cores::mine().departure.lock() = Departure::Idle;
    enter(task);
    finish_switch();
}

fn enter(task: Arc<Task>) {
    bump(Counter::ContextSwitches);
    task.set_core(arch::core());
    task.since_ns.store(arch::now_ns().max(1), Ordering::Relaxed);
    mm::space::activate(task.space());
    let registers = task.registers.lock();
    registers.fpu.restore();
    arch::set_fs_base(registers.fs_base);
    drop(registers);
    let flow = task.flow.lock().take().expect("a runnable task has a flow");
    arch::resume(Some(task), flow);
}

/// Unloads the space's tables, unless the next task runs on them. This comes before the task leaves, since
/// the task keeps the space.
fn leave_space(next: Option<&Task>) {
    super::with_current(|task| {
        if next.is_none_or(|next| !Arc::ptr_eq(next.space(), task.space())) {
            mm::space::deactivate(task.space());
        }
    });
}

fn keep_registers() {
    super::with_current(|task| {
        let since = task.since_ns.swap(0, Ordering::Relaxed);
        task.cpu_ns.fetch_add(arch::now_ns().saturating_sub(since), Ordering::Relaxed);
        let mut registers = task.registers.lock();
        registers.fpu.save();
        registers.fs_base = arch::fs_base();
    });
}

/// Does the second half of a switch, on the stack of the flow that goes on. Interrupts are off.
pub fn finish_switch() {
    let core = cores::mine();
    let (task, flow) = arch::take_left().expect("a switch leaves a flow");
    let departure = *core.departure.lock();
    let Some(task) = task else {
        *core.idle_flow.lock() = Some(flow);
        return;
    };
    *task.flow.lock() = Some(flow);
    settle(core, task, departure);
}

fn settle(core: &Core, task: Arc<Task>, departure: Departure) {
    match departure {
        Departure::Yield => place::enqueue(task),
        Departure::Park if task.parking.settle() => {}
        Departure::Park => place::enqueue(task),
        Departure::Exit => {
            core.dead.lock().push(task);
            core.attention.raise(attention::REAP);
        }
        Departure::Idle => unreachable!("a task is not the idle flow"),
    }
}
