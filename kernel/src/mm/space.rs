//! Address spaces and which one each core runs.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Deref;

use vm::{AddressSpace, Tables};

/// An address space together with its page tables. Derefs to [`AddressSpace`].
pub struct SpaceHandle {
    space: Box<dyn AddressSpace>,
}

impl Deref for SpaceHandle {
    type Target = dyn AddressSpace;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &*self.space
    }
}

/// An empty address space, unless memory is short.
pub fn new(_tables: Tables) -> Option<Arc<SpaceHandle>> {
    None
}

/// Makes `space` the one this core runs. Nothing to do when it is already. Interrupts are off.
pub fn activate(_space: &Arc<SpaceHandle>) {}

/// This core runs no address space now: it goes idle, or the space is about to go away. Interrupts are off.
pub fn deactivate() {}
