//! The slots of descriptors. A table has its own, or shares them with other tables until one of these changes
//! them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use abi::Errno;

use crate::fs::open_file::OpenFile;
use crate::mm::fallible;
use crate::mm::static_or_arc::StaticOrArc;

/// An open file and the flag of its descriptor.
#[derive(Clone)]
pub(super) struct Descriptor {
    pub file: StaticOrArc<OpenFile>,
    pub close_on_exec: bool,
}

/// The state of a number.
#[derive(Clone)]
pub(super) enum Slot {
    Free,
    /// A call has reserved it ([`Reserved`]).
    Reserved,
    Open(Descriptor),
}

impl Slot {
    pub fn is_open(&self) -> bool {
        matches!(self, Slot::Open(_))
    }
}

/// The slots, by descriptor.
pub(super) type Slots = Vec<Slot>;

/// The slots of a table, and its part in sharing them (see the parent module).
pub(super) struct Descriptors {
    /// Only a table that has them alone changes them. None is reserved while they are shared.
    pub slots: Arc<Slots>,
    /// Room for a copy, as long as the slots may be shared.
    pub room: Option<Arc<Slots>>,
}

impl Descriptors {
    /// Returns the same slots for another table: shared, or as a copy if a thread has reserved some here.
    pub fn copy(&mut self) -> Result<Self, Errno> {
        let used = used(&self.slots);
        if used.iter().any(|slot| matches!(slot, Slot::Reserved)) {
            let mut copy = fallible::empty(used.len())?;
            copy.extend(used.iter().map(|slot| if slot.is_open() { slot.clone() } else { Slot::Free }));
            return Ok(Self { slots: fallible::arc(copy)?, room: None });
        }
        let theirs = room_for(used)?;
        if self.room.is_none() {
            self.room = Some(room_for(used)?);
        }
        Ok(Self { slots: self.slots.clone(), room: Some(theirs) })
    }

    /// Replaces the slots by copies of those that satisfy `stays`, if they may be shared, and returns the
    /// shared ones.
    pub fn unshare(&mut self, stays: impl Fn(&Slot) -> bool) -> Option<Arc<Slots>> {
        let mut room = self.room.take()?;
        if Arc::get_mut(&mut self.slots).is_some() {
            return None;
        }
        let copy = |slot: &Slot| if stays(slot) { slot.clone() } else { Slot::Free };
        exclusive(&mut room).extend(used(&self.slots).iter().map(copy));
        Some(mem::replace(&mut self.slots, room))
    }
}

/// Returns the slots, which the caller does not share.
pub(super) fn exclusive(slots: &mut Arc<Slots>) -> &mut Slots {
    Arc::get_mut(slots).unwrap_or_else(|| unreachable!("shared slots are copied before a change"))
}

/// Returns the slots up to the last one in use.
fn used(slots: &Slots) -> &[Slot] {
    let is_used = |slot: &Slot| !matches!(slot, Slot::Free);
    slots.split_at(slots.iter().rposition(is_used).map_or(0, |last| last + 1)).0
}

/// Allocates room for copies of the slots.
fn room_for(slots: &[Slot]) -> Result<Arc<Slots>, Errno> {
    fallible::arc(fallible::empty(slots.len())?)
}

/// Makes sure that slot `fd` exists.
pub(super) fn grow(slots: &mut Slots, fd: usize) -> Result<(), Errno> {
    if slots.len() <= fd {
        slots.try_reserve(fd + 1 - slots.len()).map_err(|_| Errno::ENOMEM)?;
        slots.resize_with(fd + 1, || Slot::Free);
    }
    Ok(())
}
