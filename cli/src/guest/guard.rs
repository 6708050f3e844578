//! The guard, a process between `radixvm` and QEMU that ends QEMU with `radixvm`.
//!
//! `radixvm` starts itself again with [`ARGUMENT`]. That process asks to be killed when its parent dies and
//! then becomes QEMU, which keeps this setting. So even a `kill -9` of `radixvm` leaves no QEMU behind.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::terminal;

/// The first argument that makes `radixvm` a guard. The parent's process id, a program and its arguments
/// follow.
pub const ARGUMENT: &str = "__guard";

/// The variable with the path of a library that the program, but not its guard, loads before all others.
pub const PRELOAD: &str = "RADIXVM_PRELOAD";

/// Returns a command that runs `program` under a guard.
pub fn command(program: &str) -> Command {
    // Not by its path, which another file may have by now, or none: cargo builds it anew while guests run.
    let mut command = Command::new("/proc/self/exe");
    command.arg(ARGUMENT).arg(std::process::id().to_string()).arg(program);
    // A process group of its own: a Ctrl-C at the terminal reaches only radixvm, which then ends the guest in
    // order.
    command.process_group(0);
    command
}

/// Runs the guard.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = arguments.next().and_then(|word| word.to_str()?.parse().ok()).and_then(Pid::from_raw);
    let Some(program) = arguments.next() else { return ExitCode::from(125) };
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() {
        return ExitCode::from(125);
    }
    // The parent may have died before the setting was in place.
    if getppid() != parent {
        return ExitCode::from(125);
    }
    let mut command = Command::new(&program);
    command.args(arguments).env_remove(PRELOAD);
    if let Some(library) = std::env::var_os(PRELOAD) {
        command.env("LD_PRELOAD", library);
    }
    let error = command.exec();
    terminal::message(format_args!("cannot start {}: {error}", program.to_string_lossy()));
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}
