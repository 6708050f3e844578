//! Tests that boot QEMU.
