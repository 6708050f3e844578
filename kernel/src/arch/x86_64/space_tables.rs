//! The operations of a space's tables that the kernel needs beyond `vm::Mmu`.

use percore::Pinned;
use vm::{FrameNum, PageNum};

/// Tables that one piece of freeing them takes at most: each is a walk of its entries.
pub const PIECE: usize = 256;

/// Entering and leaving a space on this core. Interrupts are off.
pub trait SpaceTables: Send + Sync {
    /// Makes the core run the space from now on.
    fn enter(&self, pin: &Pinned);
    /// Loads the kernel's own map, because this core stops running the space.
    fn leave(&self, pin: &Pinned);
    /// Frees this core's own table, if it has one, because memory is short. Faults bring back what is needed.
    fn drop_mine(&self, pin: &Pinned);
    /// Returns the number of frames in the tables. Exact while no core runs the space.
    fn table_pages(&self) -> u64;
    /// Frees some tables, in a bounded number of steps. Returns whether there are more. For a caller that is
    /// about to drop them all: no core runs the space, now or later.
    fn free_piece(&mut self, pin: &Pinned) -> bool;
    /// Calls `visit` with every frame that the tables are made of. While no core runs the space, nor will.
    fn each_frame(&self, visit: &mut dyn FnMut(u64));
    /// Returns whether the entry of `page` shows `frame` and counts a read of it. Asked with
    /// `read_refs=lodic-paper` only, which counts in no table but the one of all cores.
    fn counts_read(&self, page: PageNum, frame: FrameNum) -> bool;
}
