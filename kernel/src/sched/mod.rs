//! The scheduler: which task runs on which core, which sleep, and which is next.
//!
//! Every core has a run queue of its own, first in, first out. A task waits for the core that it last ran on.
//! Idle cores take new and woken tasks first, and steal. The kernel is never preempted: a task leaves its
//! core when it sleeps or exits, or, on the way back to user mode, when its slice is over and another task
//! waits.
//!
//! Sleepers and wakers synchronise in one word of each task, [`sync::Parking`].
//!
//! Interrupt handlers take no lock here: they set bits ([`attention`]) that the core acts on ([`work`])
//! when it is about to return to user mode, or idles. So no lock of the scheduler needs interrupts off.
//!
//! | file | what |
//! |---|---|
//! | `task` | a thread as the scheduler sees it |
//! | `switch` | the two halves of a switch |
//! | `place` | choosing a core, idle cores, stealing, affinity |
//! | `idle` | a core that has no task to run |
//! | `timers` | sleepers, ticks |
//! | `work`, `attention` | work that interrupts leave to be done |
//! | `pause` | pauses in the middle of a long call |
//! | `wait`, `list` | queues of sleeping tasks |
#![deny(unsafe_code)]

mod above;
mod alarm;
pub mod attention;
mod cores;
mod idle;
mod list;
mod pause;
mod place;
mod switch;
mod task;
mod timers;
mod wait;
mod work;

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

pub use above::{Thread, Threads};
pub use alarm::{Alarm, Ring, Rings, Setting, due};
pub use idle::enter_idle;
pub use list::TaskList;
pub use pause::{is_asked, lock, pause};
pub use place::{enqueue, enqueue_here, set_affinity};
pub use switch::{exit, finish_switch, park, yield_now};
pub use task::{Start, Task};
pub use timers::{park_until, passed, sleep_until};
pub use wait::{WaitChain, WaitQueue, wait_at_most};
pub use work::{give_way, on_network, on_reschedule, on_return_to_user, on_timer, reap, renew_entries};

use switch::Departure;

use crate::above::Above;
use crate::mm;
use crate::users::Credentials;

/// Returns the task that runs here.
///
/// # Panics
/// In the idle flow.
pub fn current() -> Arc<Task> {
    crate::arch::current().expect("no task runs here")
}

/// Calls `f` with the task that runs here, without counting a reference.
///
/// # Panics
/// In the idle flow.
#[inline(always)]
pub fn with_current<R>(f: impl FnOnce(&Task) -> R) -> R {
    // The result is not moved into an `Option` and out of it.
    crate::arch::with_task_or_none(|task| f(task.expect("no task runs here")))
}

/// Calls `f` with the credentials that count for the task that runs here, or with root's if none runs. `f`
/// does not sleep.
#[inline]
pub fn with_credentials<R>(f: impl FnOnce(&Credentials) -> R) -> R {
    crate::arch::with_task_or_none(|task| match task {
        Some(task) => f(task.thread.credentials().peek_acting(&percore::pin())),
        None => f(Credentials::root()),
    })
}

/// Lets this core change refcounts, though it may idle, by joining the epochs.
pub fn come_online() {
    let core = cores::mine();
    if !core.online.load(Ordering::Relaxed) {
        idle::come_online(core);
    }
}

impl mm::Scheduler for Above {
    #[inline(always)]
    fn come_online() {
        come_online();
    }
    #[inline(always)]
    fn is_asked() -> bool {
        is_asked()
    }
    #[inline(always)]
    fn pause() -> bool {
        pause()
    }
    fn reap() {
        reap();
    }
    #[inline(always)]
    fn ask_to_reap() {
        attention::raise(attention::REAP);
    }
}
