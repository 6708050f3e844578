//! The traits by which the scheduler reaches the rooms above: see `above.rs` in the kernel's folder.

use alloc::sync::Arc;

use crate::arch::TrapFrame;
use crate::mm::space::SpaceHandle;

/// Processes, whose threads are scheduled.
pub trait Threads {
    /// The part of a task that belongs to its process.
    type Thread: Thread;
    /// Does what the running task was notified of, before it returns to user mode with `frame`.
    fn handle_attention(frame: &mut TrapFrame);
    /// Takes bytes of standard input that have arrived.
    fn take_input();
}

/// The part of a task that belongs to its process.
pub trait Thread: Send + Sync + 'static {
    /// Returns the address space that the task runs in.
    fn space(&self) -> &Arc<SpaceHandle>;
    /// Returns whether a signal waits that the task does not block.
    fn has_signal(&self) -> bool;
}
