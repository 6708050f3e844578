//! The user's FS base: its thread-local storage.

use super::cpu::{msr, read_msr, write_msr};

/// Returns the running thread's FS base.
pub fn fs_base() -> u64 {
    read_msr(msr::FS_BASE)
}

/// Sets the running thread's FS base.
pub fn set_fs_base(base: u64) {
    // SAFETY: FS is the user's alone. The caller has checked that the address is canonical.
    unsafe { write_msr(msr::FS_BASE, base) };
}
