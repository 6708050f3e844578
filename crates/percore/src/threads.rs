//! Host threads play cores: for tests, benchmarks and anybody who wants the crates without a kernel.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{CoreId, Host, MAX_CORES};

thread_local! {
    static CORE: Cell<Option<CoreId>> = const { Cell::new(None) };
    static ON_RELAX: Cell<fn()> = const { Cell::new(nothing) };
}

static TAKEN: [AtomicBool; MAX_CORES] = [const { AtomicBool::new(false) }; MAX_CORES];

/// This thread plays a core until the value is dropped.
#[derive(Debug)]
pub struct ThreadCore {
    core: CoreId,
    _stays_here: core::marker::PhantomData<*mut ()>,
}

impl ThreadCore {
    /// The core this thread plays.
    pub fn id(&self) -> CoreId {
        self.core
    }

    /// Has `serve` called on every turn of a wait of this thread: where a simulated core takes its interrupts.
    pub fn on_relax(&self, serve: fn()) {
        ON_RELAX.set(serve);
    }
}

fn nothing() {}

/// Makes this thread play the lowest core below `cores` that no other thread plays.
///
/// # Panics
/// If all are played, or this thread already plays one.
pub fn enter_any(cores: usize) -> ThreadCore {
    let free = (0..cores).find_map(|core| try_enter(CoreId::new(core)));
    free.unwrap_or_else(|| panic!("all {cores} cores are played by other threads"))
}

/// Makes this thread play `core`.
///
/// # Panics
/// If another thread plays it, or this thread already plays one.
pub fn enter(core: CoreId) -> ThreadCore {
    try_enter(core).unwrap_or_else(|| panic!("core {} is played by another thread", core.index()))
}

fn try_enter(core: CoreId) -> Option<ThreadCore> {
    assert!(CORE.get().is_none(), "this thread already plays a core");
    // Acquire pairs with the Release in `drop`: the new player sees what the last one did as this core.
    if TAKEN[core.index()].swap(true, Ordering::Acquire) {
        return None;
    }
    CORE.set(Some(core));
    Some(ThreadCore { core, _stays_here: core::marker::PhantomData })
}

impl Drop for ThreadCore {
    fn drop(&mut self) {
        CORE.set(None);
        ON_RELAX.set(nothing);
        TAKEN[self.core.index()].store(false, Ordering::Release);
    }
}

struct Threads;

// SAFETY: a core is played by one thread at a time (`TAKEN`), and a thread is one flow of control.
unsafe impl Host for Threads {
    fn pin() -> CoreId {
        CORE.get().expect("this thread plays no core: call percore::threads::enter first")
    }
    fn unpin() {}
    fn relax() {
        (ON_RELAX.get())();
        std::thread::yield_now();
    }
}

crate::set_host!(Threads);
