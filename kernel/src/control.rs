//! The control port: JSON lines out, standard input in.

/// A byte arrived on the control port. Interrupts are off.
pub fn on_receive() {}
