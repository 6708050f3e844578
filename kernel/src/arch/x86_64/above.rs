//! The traits by which the machine reaches the rooms above: see `above.rs` in the kernel's folder.

use percore::Pinned;
use vm::{Access, VirtAddr};

use super::TrapFrame;

/// The beginning of the kernel.
pub trait Boot {
    /// Runs the boot core, from its first Rust line. `start_info` is the address of the boot loader's
    /// information.
    extern "sysv64" fn boot(start_info: u64) -> !;
    /// Runs every other core. Its own tables, traps and clock are ready.
    fn run_core() -> !;
}

/// The handlers of traps. Those of system calls, faults and exceptions run with interrupts on, the others
/// with interrupts off.
pub trait Handlers {
    /// Handles a system call.
    fn syscall(frame: &mut TrapFrame);
    /// Handles a syscall that is perhaps to be reported, or of a traced task.
    fn traced_syscall(frame: &mut TrapFrame);
    /// Handles a page fault in user mode.
    fn page_fault(frame: &mut TrapFrame, address: VirtAddr, access: Access);
    /// Handles any other exception in user mode.
    fn exception(frame: &mut TrapFrame, vector: u8);
    /// Handles a page fault in a copy to or from user memory. Returns whether to try the access again.
    /// Interrupts are as they were in the copy.
    fn copy_fault(address: VirtAddr, access: Access) -> bool;
    /// Runs the first code of a new thread, after the switch to it.
    fn first_return();
    /// Runs the last code before user mode.
    fn return_to_user(frame: &mut TrapFrame);
    /// Handles the interrupt of this core's timer.
    fn timer();
    /// Handles the interrupt by which another core asks this core to look up.
    fn reschedule();
    /// Handles input on the control port.
    fn control_input();
    /// Handles the arrival of packets from the network.
    fn network();
}

/// The flows of control that cores run.
pub trait Running {
    /// A thread. Each core keeps the one that it runs.
    type Task: Send + Sync + 'static;
}

/// Memory for page tables and kernel stacks.
pub trait KernelFrames {
    /// Allocates a frame of zeroes for a table of an address space.
    fn alloc_table(pin: &Pinned) -> Option<u64>;
    /// Frees such a frame.
    fn free_table(pin: &Pinned, frame: u64);
    /// Allocates a frame of zeroes for a table of the kernel's half, which is kept for ever.
    fn alloc_kernel_table(pin: &Pinned) -> Option<u64>;
    /// Allocates a frame of zeroes for a kernel stack.
    fn alloc_stack(pin: &Pinned) -> Option<u64>;
    /// Frees such a frame.
    fn free_stack(pin: &Pinned, frame: u64);
    /// Takes the frames from `start` to `end`, a part of the image that nothing uses.
    fn take_image(start: u64, end: u64);
    /// Adds reads to the count in a frame's descriptor, or takes some back.
    fn add_reads(frame: u64, reads: i64);
}
