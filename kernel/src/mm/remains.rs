//! Objects that have no holder and take long to free: address spaces, large files. The core that dropped the
//! last reference frees them in pieces between its other work: on its way to user mode, in a pause of a long
//! call, and in the idle loop.
//!
//! It frees them in *rounds*. A round has the objects that were there when it began. Those that are released
//! meanwhile wait for the next one. So all objects of a moment are free when the second round after it
//! begins, or when the core has none, however many are released later ([`Rounds`]).

use alloc::boxed::Box;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use percore::{CoreId, Pinned, pin};
use sync::SpinLock;

use super::Scheduler;
use crate::above::Above;
use crate::arch;
use crate::arch::per_core::all_cores;

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
    waiting: SpinLock<Waiting>,
    /// The number of all, with one of which a piece is being freed. Only the core itself writes it. Release
    /// and Acquire: what the objects held is given back before others see that none is left.
    count: AtomicUsize,
    /// The number of rounds that have begun. Only the core itself writes it. Release and Acquire: what the
    /// objects of the round before held is given back.
    rounds: AtomicU64,
}

/// Lists of objects, each with the last one first, without one of which a piece is being freed.
struct Waiting {
    of_round: Option<Box<dyn Remains>>,
    of_next: Option<Box<dyn Remains>>,
}

all_cores! {
    static REMAINS: Released = Released {
        waiting: SpinLock::new(Waiting { of_round: None, of_next: None }),
        count: AtomicUsize::new(0),
        rounds: AtomicU64::new(0),
    };
}

/// Leaves `remains`, which has no holder, to this core, which frees it in pieces. It is stored in `place`.
/// Interrupts may be off.
pub fn leave<T: Remains + 'static>(place: Box<MaybeUninit<T>>, remains: T) {
    let remains: Box<T> = Box::write(place, remains);
    let pin = pin();
    count(&pin, 1);
    put(&mut REMAINS.mine(&pin).waiting.lock().of_next, remains);
    Above::ask_to_reap();
}

fn count(pin: &Pinned, change: isize) {
    let count = &REMAINS.mine(pin).count;
    count.store(count.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Release);
}

fn put(list: &mut Option<Box<dyn Remains>>, mut remains: Box<dyn Remains>) {
    *remains.next() = list.take();
    *list = Some(remains);
}

/// Takes an object of the round, or begins the next one. No object of this core is being freed.
fn take(pin: &Pinned) -> Option<Box<dyn Remains>> {
    let released = REMAINS.mine(pin);
    let mut waiting = released.waiting.lock();
    if waiting.of_round.is_none() {
        waiting.of_round = Some(waiting.of_next.take()?);
        released.rounds.store(released.rounds.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
    let mut taken = waiting.of_round.take()?;
    waiting.of_round = taken.next().take();
    Some(taken)
}

/// Returns whether this core has released an object that is not free yet.
pub fn has_any() -> bool {
    REMAINS.mine(&pin()).count.load(Ordering::Relaxed) > 0
}

/// Returns whether any core has released an object that is not free yet.
pub fn any_core_has() -> bool {
    REMAINS.first(arch::cores()).any(|released| released.count.load(Ordering::Relaxed) > 0)
}

/// A wait until all objects are free that the cores had released when it began. It looks at the cores one
/// after the other.
#[derive(Default)]
pub struct Rounds {
    /// The core that it waits for. All below it have freed what they had.
    core: usize,
    /// The rounds that this core had begun at the first look.
    before: Option<u64>,
}

impl Rounds {
    /// Returns whether the wait is over. It touches one line of a core at least.
    pub fn are_over(&mut self) -> bool {
        while self.core < arch::cores() {
            let released = REMAINS.of(CoreId::new(self.core));
            let rounds = released.rounds.load(Ordering::Acquire);
            let before = *self.before.get_or_insert(rounds);
            if released.count.load(Ordering::Acquire) > 0 && rounds < before + 2 {
                return false;
            }
            *self = Self { core: self.core + 1, before: None };
        }
        true
    }
}

/// Frees a piece of an object that this core released. Returns whether there is more. Interrupts are on.
pub fn free_piece() -> bool {
    let pin = pin();
    let Some(mut remains) = take(&pin) else { return false };
    // The piece may change refcounts, perhaps on an idle core.
    Above::come_online();
    if remains.free_piece(&pin) {
        put(&mut REMAINS.mine(&pin).waiting.lock().of_round, remains);
        return true;
    }
    drop(remains);
    count(&pin, -1);
    has_any()
}
