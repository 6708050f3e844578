//! Messages of a program or a kernel to the contention meter: no-operations that carry a number.
//!
//! A marker is the 7-byte instruction `nopl disp32(%rax)`, bytes `0f 1f 80` and a displacement that no other
//! code uses. It does nothing on any x86-64 machine, at any privilege. The meter (`meter/`) knows it by its
//! bytes.
//!
//! ```text
//! disp32:  0x5256 | operation (8 bits) | argument (8 bits)
//! ```
//! A run, between [`RUN`] and [`STOP`], has one window. It opens when as many threads as the argument says
//! have said [`BEGIN`], and closes at the first [`END`]. The work of a CPU from the opening, or its last
//! [`ITER`], to its next [`ITER`] is one round. Threads are pinned, one to a CPU, so that a CPU stands for a
//! thread.

/// The upper half of every marker's displacement: "RV".
pub const MAGIC: u32 = 0x5256_0000;

/// The program starts. The kernel or process that starts it says so once.
pub const RUN: u8 = 1;
/// This thread is warm and starts its first counted round. Argument: the number of threads that will say so,
/// or 0 if more than 255.
pub const BEGIN: u8 = 2;
/// This CPU has finished a round.
pub const ITER: u8 = 3;
/// This thread has finished its rounds.
pub const END: u8 = 4;
/// From now on this CPU is in the phase of the argument, 0 to 7. It begins in 0.
pub const PHASE: u8 = 5;
/// The program is over. The kernel or process that started it says so once.
pub const STOP: u8 = 6;

/// This CPU begins a call of a test whose lines are to be listed.
pub const CALL: u8 = 7;
/// This CPU has finished that call.
pub const RETURN: u8 = 8;
/// Both calls of a test have returned: the lines that they conflict over are listed, and forgotten.
pub const PAIR: u8 = 9;

/// Number of phases.
pub const PHASES: usize = 8;

/// Returns the displacement of a marker.
pub const fn displacement(operation: u8, argument: u8) -> u32 {
    MAGIC | (operation as u32) << 8 | argument as u32
}
