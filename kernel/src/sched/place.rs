//! Which core a runnable task waits for; idle cores; stealing.
//!
//! A set of idle cores, one bit each, changes only when a core goes idle or is claimed. Two races matter:
//!
//! 1. *A core goes idle while somebody gives it work.* The core sets its bit, then looks at every queue;
//!    the giver pushes, then looks at the bits. Bits and queue lengths are SeqCst, so one of the two sees
//!    the other: the core finds the task, or the giver claims the bit and interrupts the core. An interrupt
//!    between the core's look and its `hlt` ends the `hlt` at once, since interrupts are off in between.
//! 2. *Two givers find the same idle core.* Clearing the bit claims it: the second looks further, so that
//!    two new threads start on two idle cores. A claimed core that finds nothing sets its bit again.

use alloc::sync::Arc;

use percore::{CoreId, CoreSet, MAX_CORES};
use sync::atomic::{AtomicU64, Ordering};

use super::{Task, attention, cores};
use crate::arch;

static IDLE: [AtomicU64; MAX_CORES / 64] = [const { AtomicU64::new(0) }; MAX_CORES / 64];

fn idle_word(core: CoreId) -> (&'static AtomicU64, u64) {
    (&IDLE[core.index() / 64], 1 << (core.index() % 64))
}

/// This core goes idle (before its last look at the queues).
pub fn declare_idle(core: CoreId) {
    let (word, bit) = idle_word(core);
    word.fetch_or(bit, Ordering::SeqCst);
}

/// Takes `core` out of the idle set; whether it was in.
pub fn claim_idle(core: CoreId) -> bool {
    let (word, bit) = idle_word(core);
    word.load(Ordering::SeqCst) & bit != 0 && word.fetch_and(!bit, Ordering::SeqCst) & bit != 0
}

fn claim_any_idle(allowed: &CoreSet) -> Option<CoreId> {
    let nobody = IDLE.iter().all(|word| word.load(Ordering::SeqCst) == 0);
    if nobody {
        None
    } else {
        cores::all().filter(|&core| allowed.contains(core)).find(|&core| claim_idle(core))
    }
}

/// Puts a runnable task into a run queue: of its last core if that idles, else of another idle core, else
/// of its last core, else of the shortest queue; always one that the task may run on.
pub fn enqueue(task: Arc<Task>) {
    let (allowed, last) = (task.affinity(), task.core());
    let stay = allowed.contains(last);
    let claimed = if stay && claim_idle(last) { Some(last) } else { claim_any_idle(&allowed) };
    let core = claimed.unwrap_or_else(|| if stay { last } else { shortest_queue(&allowed) });
    task.set_core(core);
    cores::of(core).push(task);
    // Race 1: whoever went idle since then may not have seen the task.
    if let Some(idle) = claimed.or_else(|| claim_any_idle(&allowed)) {
        kick(idle);
    }
}

/// Puts a runnable task into the queue of the core we run on, which is about to be free.
pub fn enqueue_here(task: Arc<Task>) {
    if !task.affinity().contains(arch::core()) {
        return enqueue(task);
    }
    task.set_core(arch::core());
    cores::mine().push(task);
}

/// The core we run on, whose lines no other core writes; another one if that is not allowed.
pub fn near(allowed: &CoreSet) -> CoreId {
    let here = arch::core();
    if allowed.contains(here) { here } else { shortest_queue(allowed) }
}

/// The allowed core for which the fewest wait.
pub fn shortest_queue(allowed: &CoreSet) -> CoreId {
    let allowed = cores::all().filter(|&core| allowed.contains(core));
    allowed.min_by_key(|&core| cores::of(core).waiting()).expect("an affinity names a core of the machine")
}

fn kick(core: CoreId) {
    if core == arch::core() { attention::raise(attention::RESCHEDULE) } else { arch::send_reschedule(core) }
}

/// Work for the idle core we run on: from its own queue, else from another's.
pub fn find_work() -> Option<Arc<Task>> {
    let me = arch::core();
    let own = cores::of(me).take(|_| true);
    own.or_else(|| cores::all().find_map(|other| cores::of(other).take(|task| task.affinity().contains(me))))
}

/// Whether a task waits elsewhere that the core we run on may take.
pub fn stealable() -> bool {
    let me = arch::core();
    cores::all().any(|other| cores::of(other).offers(|task| task.affinity().contains(me)))
}

/// Sets where `task` may run, which names at least one core of the machine; moves it at once if it must.
pub fn set_affinity(task: &Arc<Task>, allowed: CoreSet) {
    task.replace_affinity(allowed);
    let core = task.core();
    if allowed.contains(core) {
        return;
    }
    // It waits in a queue: requeue it. Else it runs, and its core makes it leave; or it sleeps, and is
    // placed anew when it wakes. One that somebody places by its old affinity right now leaves at the tick.
    match cores::of(core).take(|queued| Arc::ptr_eq(queued, task)) {
        Some(task) => enqueue(task),
        None => kick(core),
    }
}
