//! Serial ports as plain byte pipes.

use programs::require;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Opens a port that changes no byte in either direction and never becomes the controlling terminal.
pub fn open_raw(path: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    let port = require(options.open(path), path);
    // SAFETY: an all-zero `termios` is a valid one.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and the structure is a local variable.
    unsafe {
        libc::tcgetattr(port.as_raw_fd(), &mut settings);
        libc::cfmakeraw(&mut settings);
        libc::cfsetspeed(&mut settings, libc::B115200);
        libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &settings);
    }
    port
}

/// Waits until all bytes have left the machine.
pub fn drain(port: &File) {
    // SAFETY: the descriptor is open.
    unsafe { libc::tcdrain(port.as_raw_fd()) };
}
