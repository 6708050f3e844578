//! The traits by which the scheduler reaches the rooms above: see `above.rs` in the kernel's folder.

use alloc::sync::Arc;

use super::Task;
use crate::arch::TrapFrame;
use crate::mm::space::SpaceHandle;
use crate::users::Slot;

/// Processes, whose threads are scheduled.
pub trait Threads {
    /// The part of a task that belongs to its process.
    type Thread: Thread;
    /// Does what the running task was notified of, before it returns to user mode with `frame`.
    fn handle_attention(frame: &mut TrapFrame);
    /// Looks at the timers of CPU time of the process of `task`, at a tick of the core that runs it.
    fn on_tick(task: &Task);
    /// Takes bytes of standard input that have arrived.
    fn take_input();
    /// Chooses the entry of system calls on this core.
    fn choose_entry();
    /// Exchanges packets with the network.
    fn serve_network();
}

/// The part of a task that belongs to its process.
pub trait Thread: Send + Sync + 'static {
    /// Returns the address space that the task runs in.
    fn space(&self) -> &Arc<SpaceHandle>;
    /// Returns whether a signal waits that the task does not block.
    fn has_signal(&self) -> bool;
    /// Returns the number of its process.
    fn pid(&self) -> u32;
    /// Returns the place of its credentials.
    fn credentials(&self) -> &Slot;
}
