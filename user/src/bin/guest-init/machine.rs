//! The machine around the program: file systems, what it has, how to turn it off.

use programs::cores;
use serde_json::{Value, json};
use std::ffi::CString;

/// Mounts what a program may expect. A mount that fails is not fatal: the image decides what is there.
pub fn mount_all() {
    for (kind, place) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/tmp")] {
        let made = std::fs::create_dir(place).is_ok();
        // A /tmp of the image is in memory as it is; a mount would hide the files in it.
        if made || kind != "tmpfs" {
            mount(kind, place);
        }
    }
}

fn mount(kind: &str, place: &str) {
    let name = |text| CString::new(text).expect("no NUL in it");
    let (kind, place) = (name(kind), name(place));
    // SAFETY: the strings are NUL-terminated and live through the call.
    unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
}

/// Has `/proc/kallsyms` tell addresses. A kernel without it is not fatal: only a meter asks.
pub fn show_symbols() {
    let _kernel_without = std::fs::write("/proc/sys/kernel/kptr_restrict", "0");
}

/// The first line the host hears.
pub fn booted() -> Value {
    // SAFETY: an all-zero `sysinfo` is a valid one.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills the structure it is given.
    unsafe { libc::sysinfo(&mut info) };
    let memory = info.totalram * u64::from(info.mem_unit);
    let cpus = cores::allowed().map_or(0, |cpus| cpus.len());
    json!({"type": "booted", "cpus": cpus, "memory_bytes": memory})
}

/// Kills every process but this one, so that nobody holds the program's pipes open.
pub fn kill_everybody_else() {
    // SAFETY: only sends signals; -1 spares process 1.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Turns the machine off.
pub fn power_off() -> ! {
    // SAFETY: there is nothing left to lose: all output is drained.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    unreachable!("the machine is off")
}
