//! Interrupts from core to core.

use percore::CoreId;

/// Makes `core` look at its run queue on its way to user mode, or out of its sleep.
pub fn send_reschedule(_core: CoreId) {}

pub(super) fn stop_others() {}
