//! What tasks that share an address space share with it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;

use super::heap::Heap;
use crate::fs::fallible;
use crate::mm::space::{self, SpaceHandle};

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
    /// A copy, page for page, that changes independently.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn fork(&self) -> Result<Arc<Self>, Errno> {
        let space = space::fork(&self.space)?;
        fallible::arc(Self { space, heap: self.heap.copy(), program: self.program.clone() })
    }
}
