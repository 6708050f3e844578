//! Tasks and run queues.

use crate::arch::TrapFrame;

/// The timer of this core rang. Interrupts are off.
pub fn on_timer() {}

/// The last thing before user mode. Interrupts are off.
pub fn on_return_to_user(_frame: &mut TrapFrame) {}

/// The first thing after a switch, on the new stack.
pub fn finish_switch() {}

/// This core's first task: it waits for work.
pub fn enter_idle() -> ! {
    loop {
        crate::arch::halt_until_interrupt();
    }
}
