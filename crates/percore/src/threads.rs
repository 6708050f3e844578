//! Host threads play cores, for tests, benchmarks and uses of the crates without a kernel.
//!
//! A thread that plays a core is alone there, so `pin` has nothing to hold in place. It returns the core, and
//! counts, because a core cannot be given back while a caller is pinned to it. Under loom its model threads
//! play cores.

use core::marker::PhantomData;
use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use crate::{CoreId, CoreSet, Host};

/// The part that a thread plays.
#[derive(Clone, Copy)]
struct Part {
    core: CoreId,
    pins: u64,
}

#[cfg(not(loom))]
thread_local! {
    static PART: Cell<Option<Part>> = const { Cell::new(None) };
    static ON_RELAX: Cell<fn()> = const { Cell::new(nothing) };
    static SERVING: Cell<bool> = const { Cell::new(false) };
}
#[cfg(loom)]
sync::loom::thread_local! {
    static PART: Cell<Option<Part>> = Cell::new(None);
}

/// The cores that are played. The lock also hands a core over: its next player sees every write of the last
/// one.
#[cfg(not(loom))]
static TAKEN: Mutex<CoreSet> = Mutex::new(CoreSet::EMPTY);
#[cfg(loom)]
std::thread_local! {
    /// The played cores of the model that this thread runs, which is one thread to the host.
    static TAKEN: Mutex<CoreSet> = const { Mutex::new(CoreSet::EMPTY) };
}

/// This thread plays a core until the value is dropped.
#[derive(Debug)]
pub struct ThreadCore {
    core: CoreId,
    _stays_here: PhantomData<*mut ()>,
}

impl ThreadCore {
    /// Returns the core that this thread plays.
    pub fn id(&self) -> CoreId {
        self.core
    }

    /// Calls `serve` on every turn of a wait of this thread, which is where a simulated core takes its
    /// interrupts. A wait inside `serve` does not call it again.
    #[cfg(not(loom))]
    pub fn on_relax(&self, serve: fn()) {
        ON_RELAX.set(serve);
    }
}

#[cfg(not(loom))]
fn nothing() {}

/// Marks the thread as being in `ON_RELAX`'s function, until this is dropped.
#[cfg(not(loom))]
struct Serving;

#[cfg(not(loom))]
impl Serving {
    /// Returns `None` if the thread is there already.
    fn begin() -> Option<Self> {
        (!SERVING.replace(true)).then(|| Self)
    }
}

#[cfg(not(loom))]
impl Drop for Serving {
    fn drop(&mut self) {
        SERVING.set(false);
    }
}

/// Makes this thread play the lowest core below `cores` that no other thread plays.
///
/// # Panics
/// Panics if all are played, or this thread already plays one.
pub fn enter_any(cores: usize) -> ThreadCore {
    with_taken(|taken| {
        let free = (0..cores).map(CoreId::new).find(|&core| !taken.contains(core));
        play(taken, free.unwrap_or_else(|| panic!("all {cores} cores are played by other threads")))
    })
}

/// Makes this thread play `core`.
///
/// # Panics
/// Panics if another thread plays it, or this thread already plays one.
pub fn enter(core: CoreId) -> ThreadCore {
    with_taken(|taken| {
        assert!(!taken.contains(core), "core {} is played by another thread", core.index());
        play(taken, core)
    })
}

fn play(taken: &mut CoreSet, core: CoreId) -> ThreadCore {
    assert!(PART.with(Cell::get).is_none(), "this thread already plays a core");
    taken.insert(core);
    PART.with(|part| part.set(Some(Part { core, pins: 0 })));
    ThreadCore { core, _stays_here: PhantomData }
}

/// Calls `f` with the set of played cores. A panic in this file leaves the set valid, so a poisoned lock is
/// usable.
fn with_taken<R>(f: impl FnOnce(&mut CoreSet) -> R) -> R {
    let lock = |taken: &Mutex<CoreSet>| f(&mut taken.lock().unwrap_or_else(PoisonError::into_inner));
    #[cfg(not(loom))]
    return lock(&TAKEN);
    #[cfg(loom)]
    return TAKEN.with(lock);
}

impl Drop for ThreadCore {
    /// Gives the core back.
    ///
    /// # Panics
    /// Panics if the thread is pinned. Then it keeps the core. If the thread is panicking already, it keeps
    /// the core without a second panic.
    fn drop(&mut self) {
        let pinned = PART.with(Cell::get).is_some_and(|part| part.pins > 0);
        if pinned && std::thread::panicking() {
            return;
        }
        assert!(!pinned, "a pinned thread gave up its core");
        PART.with(|part| part.set(None));
        #[cfg(not(loom))]
        ON_RELAX.set(nothing);
        with_taken(|taken| taken.remove(self.core));
    }
}

struct Threads;

// SAFETY: a core is played by one thread at a time (`TAKEN`) and not given up while pinned, and a thread is
// one flow of control.
unsafe impl Host for Threads {
    #[inline]
    fn pin() -> CoreId {
        Self::try_pin().expect("this thread plays no core: call percore::threads::enter first")
    }

    #[inline]
    fn try_pin() -> Option<CoreId> {
        PART.with(|cell| {
            let part = cell.get()?;
            cell.set(Some(Part { pins: part.pins + 1, ..part }));
            Some(part.core)
        })
    }

    #[inline]
    fn unpin() {
        PART.with(|cell| cell.set(cell.get().map(|part| Part { pins: part.pins - 1, ..part })));
    }

    fn relax() {
        #[cfg(not(loom))]
        if let Some(_serving) = Serving::begin() {
            (ON_RELAX.get())();
        }
        std::thread::yield_now();
    }
}

crate::set_host!(Threads);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Pinned, pin};
    use std::panic::AssertUnwindSafe;

    fn another_enters(core: usize) -> std::thread::Result<CoreId> {
        std::thread::spawn(move || enter(CoreId::new(core)).id()).join()
    }

    #[test]
    fn a_core_is_played_by_one_thread_at_a_time() {
        let mine = enter(CoreId::new(7));
        assert_eq!((mine.id(), pin().core()), (CoreId::new(7), CoreId::new(7)));
        assert!(another_enters(7).is_err(), "another thread got the same core");
        drop(mine);
        assert_eq!(another_enters(7).unwrap(), CoreId::new(7), "the core was not given back");
    }

    #[test]
    fn a_pinned_thread_keeps_its_core() {
        let gave_up = std::thread::spawn(|| {
            let core = enter(CoreId::new(8));
            let _pinned = pin();
            drop(core);
        });
        assert!(gave_up.join().is_err());
        assert!(another_enters(8).is_err(), "somebody is pinned to a core that a new thread plays");
    }

    #[test]
    fn a_caller_on_another_core_than_its_pin_panics() {
        let core = enter(CoreId::new(20));
        pin().assert_here();
        // SAFETY: nothing that belongs to a core is touched by this token.
        let stale = unsafe { Pinned::assume(CoreId::new(21)) };
        let caught = std::panic::catch_unwind(AssertUnwindSafe(|| stale.assert_here())).unwrap_err();
        let message = caught.downcast_ref::<String>().unwrap();
        assert_eq!(message, "core 20 does what was begun by one pinned to core 21");
        drop(core);
    }

    #[test]
    fn pins_nest() {
        let core = enter(CoreId::new(9));
        let outer = pin();
        drop(pin());
        assert_eq!(outer.core(), CoreId::new(9));
        drop(outer);
        drop(core);
        assert!(fuzzing::attempt(pin).is_err_and(|message| message.contains("plays no core")));
        assert!(crate::try_pin().is_none());
    }

    #[test]
    fn a_pinned_thread_that_panics_keeps_its_core_and_does_not_abort() {
        let panicked = std::thread::spawn(|| {
            let _core = enter(CoreId::new(10));
            std::mem::forget(pin());
            fuzzing::attempt(|| panic!("first")).unwrap_err();
            std::panic::resume_unwind(Box::new("second"));
        });
        assert_eq!(panicked.join().unwrap_err().downcast_ref(), Some(&"second"));
        assert!(another_enters(10).is_err());
    }

    #[test]
    fn a_serving_core_may_wait() {
        thread_local! {
            static CALLS: Cell<u32> = const { Cell::new(0) };
        }
        let core = enter(CoreId::new(11));
        core.on_relax(|| {
            CALLS.set(CALLS.get() + 1);
            (0..2).for_each(|_| crate::relax());
            assert!(CALLS.get() < 2, "on the second turn");
        });
        crate::relax();
        assert!(fuzzing::attempt(crate::relax).is_err());
        assert!(fuzzing::attempt(crate::relax).is_err(), "a panic ends the serving");
        assert_eq!(CALLS.get(), 3);
    }
}
