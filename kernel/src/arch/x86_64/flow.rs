//! Flows of control as values: a suspended flow owns its stack, and its owner can resume it once.
//!
//! Each core has an entry in `CURRENT` with the task that runs there and that task's stack. `resume` sets it
//! to the next task and leaves the previous one in `left`, where the next one finds it. Only then the old
//! flow is no longer on its stack.

use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::above::Running;
use super::context::{self, Context};
use super::{KernelStack, TrapFrame, core, interrupts};
use crate::above::Above;
use crate::arch::per_core::all_cores;

type Task = <Above as Running>::Task;

/// A flow of control that no core runs. Dropping it frees its stack, and the flow never goes on.
#[derive(Debug)]
pub struct Suspended {
    context: Context,
    stack: Option<KernelStack>,
}

impl Suspended {
    /// Creates a flow that starts in user mode with `frame`, after `Handlers::first_return`.
    pub fn new_user_thread(stack: KernelStack, frame: TrapFrame) -> Self {
        Self { context: context::new_user_thread(&stack, frame), stack: Some(stack) }
    }
}

struct Current {
    /// The running task: a counted reference, null while the core idles.
    task: AtomicPtr<Task>,
    own: UnsafeCell<Own>,
}

struct Own {
    stack: Option<KernelStack>,
    left: Option<(Option<Arc<Task>>, Suspended)>,
}

// SAFETY: only its own core accesses `own`, with interrupts off, and `task` is atomic.
unsafe impl Sync for Current {}

impl Current {
    const fn new() -> Self {
        let own = UnsafeCell::new(Own { stack: None, left: None });
        Self { task: AtomicPtr::new(::core::ptr::null_mut()), own }
    }
}

all_cores! {
    static CURRENT: Current = Current::new();
}

/// Leaves the running flow and goes on with `flow`, which belongs to `task` (`None`: the core's idle flow).
/// Returns when the flow that was left is resumed, perhaps on another core. The flow that goes on must call
/// [`take_left`].
///
/// # Panics
/// If interrupts are on, or the last flow left was not taken.
pub fn resume(task: Option<Arc<Task>>, flow: Suspended) {
    assert!(!interrupts::are_on(), "switching with interrupts on");
    let current = CURRENT.of(core());
    let Suspended { context, stack } = flow;
    let task = task.map_or(::core::ptr::null_mut(), |task| Arc::into_raw(task).cast_mut());
    // Relaxed: read on this core only.
    let old_task = current.task.swap(task, Ordering::Relaxed);
    // SAFETY: a non-null pointer in `CURRENT` came from `Arc::into_raw`, and is taken out once.
    let old_task = (!old_task.is_null()).then(|| unsafe { Arc::from_raw(old_task) });
    // SAFETY: this core's entry, interrupts are off, and no other reference into it lives.
    let own = unsafe { &mut *current.own.get() };
    assert!(own.left.is_none(), "the flow that was left was not taken");
    let old_stack = ::core::mem::replace(&mut own.stack, stack);
    let old_context = Context::on_stack(old_stack.as_ref());
    let left = own.left.insert((old_task, Suspended { context: old_context, stack: old_stack }));
    let from: *mut Context = &raw mut left.1.context;
    // SAFETY: `flow` was owned, so no other core resumes it, and its stack moved into `CURRENT`, so it is
    // alive. `from` stays there until the next flow takes it.
    unsafe { context::switch(from, &raw const context) };
}

/// Takes the task and the flow that this core just left. The task is `None` for the idle flow. Returns `None`
/// if they were taken.
pub fn take_left() -> Option<(Option<Arc<Task>>, Suspended)> {
    let _off = interrupts::off();
    // SAFETY: this core's entry, interrupts are off, and no other reference into it lives.
    unsafe { (*CURRENT.of(core()).own.get()).left.take() }
}

/// Calls `f` with the task that runs on this core. Returns `None` in the idle flow.
#[inline(always)]
pub fn with_current<R>(f: impl FnOnce(&Task) -> R) -> Option<R> {
    with_task_or_none(|task| task.map(f))
}

/// Calls `f` with the task that runs on this core, or with `None` in the idle flow.
#[inline(always)]
pub fn with_task_or_none<R>(f: impl FnOnce(Option<&Task>) -> R) -> R {
    // One load, of a line that only this core writes. A migration between finding the record and the load
    // would be a switch, which cannot happen here, since kernel code is never preempted.
    let task = CURRENT.of(core()).task.load(Ordering::Relaxed);
    // SAFETY: `CURRENT` holds a count of the running task. When `f` is switched away from, the scheduler
    // keeps the task's reference together with its flow, so the task outlives every `f` that still runs.
    f(unsafe { task.as_ref() })
}

/// Returns another reference to the task that runs on this core.
pub fn current() -> Option<Arc<Task>> {
    let task = CURRENT.of(core()).task.load(Ordering::Relaxed);
    // SAFETY: a non-null pointer came from `Arc::into_raw`, and `CURRENT` holds its count.
    (!task.is_null()).then(|| unsafe {
        Arc::increment_strong_count(task);
        Arc::from_raw(task)
    })
}
