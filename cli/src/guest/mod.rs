//! A guest: its boot image and command line, its boot, its messages, its end.
//!
//! ```text
//!   radixvm ──spawn──▶ guard ──exec──▶ QEMU ── kernel + boot image
//!      │  socket pair 0   program's stdout        ◀── COM1
//!      │  socket pair 1   JSON lines ◀──, stdin frames ──▶ COM2
//!      │  socket pair 2   program's stderr        ◀── COM3
//! ```
//!
//! The ports are socket pairs and the image is an anonymous memory file, not paths. So a killed run leaves no
//! files, and every reader sees end of file as soon as QEMU is gone.

pub mod boot_clock;
pub mod channels;
pub mod cpio;
pub mod disk;
pub mod file_arg;
pub mod gdb;
pub mod guard;
pub mod image;
pub mod kvm;
pub mod libraries;
pub mod linux;
pub mod live;
pub mod mount_arg;
pub mod network_arg;
pub mod overlay_out;
pub mod protocol;
pub mod qemu;
pub mod session;
pub mod signals;
pub mod skipped;
pub mod system;
