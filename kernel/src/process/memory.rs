//! What tasks that share an address space share with it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use abi::Errno;
use percore::pin;
use vm::Region;

use super::heap::Heap;
use crate::fs::fallible;
use crate::mm::space::{self, SpaceHandle, user_pages};

/// The program in an address space, as it was started.
pub struct Program {
    /// The path of its file.
    pub path: Vec<u8>,
    /// Its arguments, each with a NUL.
    pub argv: Vec<u8>,
    /// Its environment, each with a NUL.
    pub envp: Vec<u8>,
    /// What was added to the addresses in its file.
    pub load_bias: u64,
}

/// Pages of a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pages {
    /// All.
    pub mapped: u64,
    /// Those in memory.
    pub resident: u64,
}

/// An address space with what runs in it.
pub struct Memory {
    /// The space.
    pub space: Arc<SpaceHandle>,
    /// The end of the data segment.
    pub heap: Heap,
    /// Whose it is.
    pub program: Arc<Program>,
}

impl Memory {
    /// Shows what is mapped to `visit`, which must not touch memory of the program, or sleep.
    pub fn each_region(&self, mut visit: impl FnMut(&Region) -> ControlFlow<()>) {
        self.space.regions(&pin(), user_pages(), &mut visit);
    }

    /// How much of it is used.
    pub fn pages(&self) -> Pages {
        let mut pages = Pages::default();
        self.each_region(|region| {
            pages.mapped += region.pages.pages();
            pages.resident += region.resident.total();
            ControlFlow::Continue(())
        });
        pages
    }

    /// A copy, page for page, that changes independently.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn fork(&self) -> Result<Arc<Self>, Errno> {
        let space = space::fork(&self.space)?;
        fallible::arc(Self { space, heap: self.heap.copy(), program: self.program.clone() })
    }
}
