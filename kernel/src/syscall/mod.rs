//! The Linux calls.

use crate::arch::TrapFrame;

/// Handles the call in `frame`. Interrupts are on.
pub fn dispatch(_frame: &mut TrapFrame) {}
