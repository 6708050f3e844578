//! Choice of the core on which a runnable task waits, idle cores, and stealing.
//!
//! Each core's own words tell whether it idles and how long its queue is. [`IDLE`] and [`SURPLUS`] tell which
//! cores' words to read. A core stays in these sets until another core looks at it in vain, so a core that
//! sleeps and wakes by its own timer writes to no line that others read (see [`Hints`]). Three races matter:
//!
//! 1. *A core goes idle while another core gives it work.* The idle core announces that it idles, then looks
//!    at the queues. The giver pushes, then looks for idle cores. A fence separates the two steps on both
//!    sides, so one of the two sees the other: the core finds the task, or the giver claims the core and
//!    interrupts it. An interrupt between the core's look and its `hlt` ends the `hlt` at once, since
//!    interrupts are off in between.
//! 2. *Two givers find the same idle core.* One of them claims it, and the second looks further, so that two
//!    new threads start on two idle cores. A claimed core that finds no task idles again.
//! 3. *A core is removed from a set while it joins.* The core that removed it looks again, puts it back, and
//!    acts for the cores that missed it: it claims the idle core, or wakes an idle core to look at the queue.
//!    The models are in `crates/percore/tests/loom.rs`.
//!
//! A task is *offered* to other cores (its core is in [`SURPLUS`]) unless its core takes it at once, because
//! the core was claimed for the task and is interrupted, or because its idle flow put the task there.

use alloc::sync::Arc;

use percore::{CoreId, CoreSet, Hints};

use super::{Task, attention, cores};
use crate::arch;

/// Cores that may idle.
static IDLE: Hints = Hints::new();
/// Cores with tasks that others may take.
static SURPLUS: Hints = Hints::new();

/// Announces that this core is idle, before its last look at the queues.
pub fn declare_idle(core: CoreId) {
    cores::of(core).set_idle();
    IDLE.announce(core);
}

/// Claims `core` if it idles, and returns whether it did.
pub fn claim_idle(core: CoreId) -> bool {
    cores::of(core).claim_idle()
}

/// Claims an idle core. The caller interrupts it.
fn claim_any_idle(allowed: &CoreSet) -> Option<CoreId> {
    let claim =
        |core| claim_idle(core) || IDLE.withdraw(core, || cores::of(core).idles()) && claim_idle(core);
    IDLE.cores().iter().filter(|&core| allowed.contains(core)).find(|&core| claim(core))
}

/// Puts a runnable task into the run queue of its last core if that idles, else of another idle core, else of
/// its last core, else of the core with the shortest queue. The task's affinity allows the core in each case.
pub fn enqueue(task: Arc<Task>) {
    let (allowed, last) = (task.affinity(), task.core());
    let stay = allowed.contains(last);
    if stay && takes_at_once(last) {
        return cores::of(last).push(task);
    }
    let claimed = if stay && claim_idle(last) { Some(last) } else { claim_any_idle(&allowed) };
    let core = claimed.unwrap_or_else(|| if stay { last } else { shortest_queue(&allowed) });
    task.set_core(core);
    cores::of(core).push(task);
    match claimed {
        Some(idle) => kick(idle),
        None => {
            SURPLUS.announce(core);
            wake_idle(&allowed);
        }
    }
}

/// Returns whether the caller is the idle flow of `core`, and is about to take the task that it queues.
fn takes_at_once(core: CoreId) -> bool {
    core == arch::core() && arch::with_current(|_| ()).is_none() && cores::of(core).waiting() == 0
}

/// Wakes an idle core, which may have looked for work before there was some (race 1).
fn wake_idle(allowed: &CoreSet) {
    if let Some(idle) = claim_any_idle(allowed) {
        kick(idle);
    }
}

/// Returns whether tasks wait for `core`, which is in [`SURPLUS`]. If none wait, it removes the core from the
/// set.
fn has_surplus(core: CoreId) -> bool {
    let waits = || cores::of(core).waiting() > 0;
    if waits() {
        return true;
    }
    let is_back = SURPLUS.withdraw(core, waits);
    if is_back {
        // Race 3. The caller looks at the queue itself.
        wake_idle(&cores::all().filter(|&other| other != arch::core()).collect());
    }
    is_back
}

/// Takes the next task from this core's own queue. The tasks that stay there are offered to others.
pub fn take_own() -> Option<Arc<Task>> {
    let core = arch::core();
    let task = cores::of(core).take(|_| true)?;
    if cores::of(core).waiting() > 0 && SURPLUS.announce(core) {
        wake_idle(&cores::all().collect());
    }
    Some(task)
}

/// Puts a runnable task into the queue of this core, which is about to be free.
pub fn enqueue_here(task: Arc<Task>) {
    if !task.affinity().contains(arch::core()) {
        return enqueue(task);
    }
    task.set_core(arch::core());
    cores::mine().push(task);
}

/// Returns this core, whose lines no other core writes, or another one if this one is not allowed.
pub fn near(allowed: &CoreSet) -> CoreId {
    let here = arch::core();
    if allowed.contains(here) { here } else { shortest_queue(allowed) }
}

/// Returns the allowed core for which the fewest tasks wait.
pub fn shortest_queue(allowed: &CoreSet) -> CoreId {
    let allowed = cores::all().filter(|&core| allowed.contains(core));
    allowed.min_by_key(|&core| cores::of(core).waiting()).expect("an affinity names a core of the machine")
}

fn kick(core: CoreId) {
    if core == arch::core() { attention::raise(attention::RESCHEDULE) } else { arch::send_reschedule(core) }
}

/// Finds work for this core, which is idle: from its own queue, else from another core's.
pub fn find_work() -> Option<Arc<Task>> {
    let me = arch::core();
    let steal = |other| cores::of(other).take(|task| task.affinity().contains(me));
    take_own().or_else(|| surplus().find_map(steal))
}

/// Returns whether a task that this core may run waits elsewhere.
pub fn stealable() -> bool {
    let me = arch::core();
    surplus().any(|other| cores::of(other).offers(|task| task.affinity().contains(me)))
}

/// Returns the cores with tasks that wait.
fn surplus() -> impl Iterator<Item = CoreId> {
    let cores = SURPLUS.cores();
    // By number: the iterator does not borrow from the set.
    cores::all().filter(move |&core| cores.contains(core)).filter(|&core| has_surplus(core))
}

/// Sets the affinity of `task`, which names at least one core of the machine, and moves the task at once if
/// it must.
pub fn set_affinity(task: &Arc<Task>, allowed: CoreSet) {
    task.replace_affinity(allowed);
    let core = task.core();
    if allowed.contains(core) {
        return;
    }
    // A task that waits in a queue is queued again. A running task is made to leave by its core. A sleeping
    // task is placed when it wakes. A task that another core places by its old affinity right now leaves at
    // the tick.
    match cores::of(core).take(|queued| Arc::ptr_eq(queued, task)) {
        Some(task) => enqueue(task),
        None => kick(core),
    }
}
