//! The machine around the program: mounts, a description for the host, power-off.

use programs::cores;
use serde_json::{Value, json};
use std::ffi::CString;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::program::{self, Failure};

/// Time that the kernel may take to find the disk.
const DISK_LIMIT: Duration = Duration::from_secs(60);

/// Mounts the file systems that a program may expect. A mount that fails is not fatal: the image decides what
/// is there.
pub fn mount_all() {
    for (kind, place) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/tmp")] {
        let made = std::fs::create_dir(place).is_ok();
        // A /tmp of the image is in memory as it is. A mount would hide the files in it.
        if made || kind != "tmpfs" {
            let _not_there = attach(Some(kind), kind, place, 0);
        }
    }
}

/// Binds the files of the disk, if there is one, to the paths where the program expects them: file N to the
/// Nth path in the list.
pub fn show_disk() -> Result<(), Failure> {
    let Ok(paths) = program::strings("/.radixvm/disk") else { return Ok(()) };
    let (disk, files) = ("/dev/nvme0n1", "/.radixvm/files");
    let waiting = Instant::now();
    while !Path::new(disk).exists() && waiting.elapsed() < DISK_LIMIT {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::create_dir(files).map_err(|error| Failure::guest(files, error))?;
    attach(Some("ext4"), disk, files, libc::MS_RDONLY)?;
    let shown =
        paths.iter().enumerate().map(|(number, path)| (format!("{files}/{number}"), path.to_string_lossy()));
    shown.into_iter().try_for_each(|(file, path)| attach(None, &file, &path, libc::MS_BIND))
}

/// Mounts a file system of this kind, or binds a file to another place.
fn attach(kind: Option<&str>, what: &str, place: &str, flags: u64) -> Result<(), Failure> {
    let name = |text: &str| CString::new(text).expect("no NUL in it");
    let (kind, what, at) = (kind.map(name), name(what), name(place));
    let kind = kind.as_ref().map_or(std::ptr::null(), |kind| kind.as_ptr());
    // SAFETY: the strings are NUL-terminated and live through the call.
    let outcome = unsafe { libc::mount(what.as_ptr(), at.as_ptr(), kind, flags, std::ptr::null()) };
    if outcome == 0 { Ok(()) } else { Err(Failure::guest(place, std::io::Error::last_os_error())) }
}

/// Makes `/proc/kallsyms` show addresses. A kernel without it is not fatal: only a meter asks for them.
pub fn show_symbols() {
    let _kernel_without = std::fs::write("/proc/sys/kernel/kptr_restrict", "0");
}

/// Returns the first line for the host.
pub fn booted() -> Value {
    // SAFETY: an all-zero `sysinfo` is a valid one.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills the structure it is given.
    unsafe { libc::sysinfo(&mut info) };
    let memory = info.totalram * u64::from(info.mem_unit);
    let cpus = cores::allowed().map_or(0, |cpus| cpus.len());
    json!({"type": "booted", "cpus": cpus, "memory_bytes": memory})
}

/// Kills every other process, so that none holds the program's pipes open.
pub fn kill_all_others() {
    // SAFETY: only sends signals, and -1 spares process 1.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Turns the machine off.
pub fn power_off() -> ! {
    // SAFETY: all output is drained, so nothing can be lost.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    unreachable!("the machine is off")
}
