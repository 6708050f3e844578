//! What the kernel asks of a space's tables beyond `vm::Mmu`.

use percore::Pinned;

/// Tables that one piece of freeing them takes at most: each is a walk of its entries.
pub const PIECE: usize = 256;

/// Entering and leaving a space on this core. Interrupts are off.
pub trait SpaceTables: Send + Sync {
    /// This core runs the space from now on.
    fn enter(&self, pin: &Pinned);
    /// This core stops running it; the kernel's own map is loaded.
    fn leave(&self, pin: &Pinned);
    /// Frees this core's own table, if it has one: memory is short, and faults will bring back what is needed.
    fn drop_mine(&self, pin: &Pinned);
    /// Frames in the tables. Exact while no core runs the space.
    fn table_pages(&self) -> u64;
    /// Frees some tables: a bounded number of steps. Whether there are more. For who is about to drop them all: no core runs
    /// the space, nor will.
    fn free_piece(&mut self, pin: &Pinned) -> bool;
    /// Calls `visit` with every frame that the tables are made of. While no core runs the space, nor will.
    fn each_frame(&self, visit: &mut dyn FnMut(u64));
}
