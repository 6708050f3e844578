//! Faults of programs.

use vm::{Access, VirtAddr};

use crate::arch::TrapFrame;

/// A page fault in user mode.
pub fn from_user(_frame: &mut TrapFrame, _address: VirtAddr, _access: Access) {}

/// Any other exception in user mode.
pub fn exception(_frame: &mut TrapFrame, _vector: u8, _error: u64) {}

/// A fault inside a copy to or from user memory: whether to try again.
pub fn from_kernel(_address: VirtAddr, _access: Access) -> bool {
    false
}
