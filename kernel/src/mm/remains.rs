//! Objects that have no holder and take long to free: address spaces, large files. The core that dropped the
//! last reference frees them in pieces between its other work: on its way to user mode, in a pause of a long
//! call, and in the idle loop.

use alloc::boxed::Box;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};

use percore::{AllCores, MAX_CORES, Pinned, pin};
use sync::{CachePadded, SpinLock};

use super::Scheduler;
use crate::above::Above;
use crate::arch;

/// An object that is freed in pieces.
pub trait Remains: Send + Sync {
    /// Frees a piece, in a bounded number of steps. Returns whether there is more.
    fn free_piece(&mut self, pin: &Pinned) -> bool;
    /// Returns the link to the next object, which is stored in the object itself, since there may be no
    /// memory when an object dies.
    fn next(&mut self) -> &mut Option<Box<dyn Remains>>;
}

/// The objects that a core released.
struct Released {
    /// The last one first, without one of which a piece is being freed.
    first: SpinLock<Option<Box<dyn Remains>>>,
    /// The number of all. Relaxed: only the core itself writes it, for others it is a hint.
    count: AtomicUsize,
}

static REMAINS: AllCores<Released> = AllCores::new(
    [const { CachePadded::new(Released { first: SpinLock::new(None), count: AtomicUsize::new(0) }) };
        MAX_CORES],
);

/// Leaves `remains`, which has no holder, to this core, which frees it in pieces. It is stored in `place`.
/// Interrupts may be off.
pub fn leave<T: Remains + 'static>(place: Box<MaybeUninit<T>>, remains: T) {
    let remains: Box<T> = Box::write(place, remains);
    let pin = pin();
    count(&pin, 1);
    put(&pin, remains);
    Above::ask_to_reap();
}

fn count(pin: &Pinned, change: isize) {
    let count = &REMAINS.mine(pin).count;
    count.store(count.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Relaxed);
}

fn put(pin: &Pinned, mut remains: Box<dyn Remains>) {
    let mut first = REMAINS.mine(pin).first.lock();
    *remains.next() = first.take();
    *first = Some(remains);
}

fn take(pin: &Pinned) -> Option<Box<dyn Remains>> {
    let mut first = REMAINS.mine(pin).first.lock();
    let mut taken = first.take()?;
    *first = taken.next().take();
    Some(taken)
}

/// Returns whether this core has released an object that is not free yet.
pub fn has_any() -> bool {
    REMAINS.mine(&pin()).first.lock().is_some()
}

/// Returns whether any core has released an object that is not free yet.
pub fn any_core_has() -> bool {
    REMAINS.iter().take(arch::cores()).any(|released| released.count.load(Ordering::Relaxed) > 0)
}

/// Frees a piece of an object that this core released. Returns whether there is more. Interrupts are on.
pub fn free_piece() -> bool {
    let pin = pin();
    let Some(mut remains) = take(&pin) else { return false };
    // The piece may change refcounts, perhaps on an idle core.
    Above::come_online();
    if remains.free_piece(&pin) {
        put(&pin, remains);
        return true;
    }
    drop(remains);
    count(&pin, -1);
    has_any()
}
