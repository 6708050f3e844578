//! What is left of address spaces that nobody has any more. The core that let go last takes it apart, a piece at a time,
//! between whatever else it does: on its way to user mode, in a pause of a long call, and in the idle loop.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::mem::MaybeUninit;

use percore::{AllCores, MAX_CORES, Pinned, pin};
use radixmap::NodeCounters;
use sync::{CachePadded, SpinLock};
use vm::{AddressSpace, PageRange};

use super::space::user_pages;
use crate::arch::SpaceTables;
use crate::counters::{self, Counter};
use crate::sched::{self, attention};

/// A space that is being taken apart.
pub struct Remains {
    /// None: it is gone, and its tables follow.
    space: Option<Box<dyn AddressSpace>>,
    tables: Arc<dyn SpaceTables>,
    nodes: Arc<NodeCounters>,
    /// What may be mapped still.
    rest: PageRange,
    next: Option<Box<Remains>>,
}

/// Where the remains of a space will be: taken when it is made, since there may be no memory when it dies.
pub type Place = Box<MaybeUninit<Remains>>;

/// What each core let go, the last first.
static REMAINS: AllCores<SpinLock<Option<Box<Remains>>>> =
    AllCores::new([const { CachePadded::new(SpinLock::new(None)) }; MAX_CORES]);

/// Nobody has the space any more: this core will take it apart. Interrupts may be off.
pub fn leave(
    place: Place,
    space: Box<dyn AddressSpace>,
    tables: Arc<dyn SpaceTables>,
    nodes: Arc<NodeCounters>,
) {
    let remains = Remains { space: Some(space), tables, nodes, rest: user_pages(), next: None };
    put(&pin(), Box::write(place, remains));
    attention::raise(attention::REAP);
}

fn put(pin: &Pinned, mut remains: Box<Remains>) {
    let mut first = REMAINS.mine(pin).lock();
    remains.next = first.take();
    *first = Some(remains);
}

fn take(pin: &Pinned) -> Option<Box<Remains>> {
    let mut first = REMAINS.mine(pin).lock();
    let mut taken = first.take()?;
    *first = taken.next.take();
    Some(taken)
}

/// Takes a piece of what this core let go apart. Whether there is more. Interrupts are on.
pub fn free_piece() -> bool {
    let pin = pin();
    let Some(mut remains) = take(&pin) else { return false };
    // Counts are touched, perhaps by an idle core.
    sched::come_online();
    if remains.free_piece(&pin) {
        put(&pin, remains);
        return true;
    }
    counters::add(&pin, Counter::Spaces, -1);
    !REMAINS.mine(&pin).lock().is_none()
}

impl Remains {
    /// Whether there is more.
    fn free_piece(&mut self, pin: &Pinned) -> bool {
        if let Some(space) = &mut self.space {
            self.rest = space.dismantle(pin, self.rest);
            if !self.rest.is_empty() {
                return true;
            }
            counters::keep(pin, space.counters(), self.nodes.total().created);
            self.space = None;
        }
        // The space was the only other one that had them.
        Arc::get_mut(&mut self.tables).is_some_and(|tables| tables.free_piece(pin))
    }
}
