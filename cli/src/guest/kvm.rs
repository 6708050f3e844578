//! Finds out whether KVM works by booting our kernel with it. A device node alone does not show that.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::channels::Sink;
use super::image::Tree;
use super::qemu::{Accel, Machine};
use super::session::{self, End, Farewell, Plan};
use crate::exit_status::is_interrupt;
use crate::place;

/// The answer, and the boot and the user for which it holds.
#[derive(Clone, Serialize, Deserialize)]
struct Answer {
    boot: String,
    user: u32,
    /// The reason why KVM does not work, or `None` if it does.
    trouble: Option<String>,
}

/// Returns the reason why KVM cannot be used, or `None` if it can. Probes once per boot of this machine.
///
/// # Errors
/// If a signal ended the probe.
pub fn trouble(kernel: &Path) -> Result<Option<String>> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let user = rustix::process::getuid().as_raw();
    match remembered() {
        Some(answer) if !boot.is_empty() && answer.boot == boot && answer.user == user => Ok(answer.trouble),
        _ => {
            let trouble = probe(kernel)?;
            remember(&Answer { boot, user, trouble: trouble.clone() });
            Ok(trouble)
        }
    }
}

/// Boots a guest that reports its boot and ends. Returns the error, if there was one.
///
/// # Errors
/// If a signal ended it.
pub fn probe(kernel: &Path) -> Result<Option<String>> {
    match probe_plan(kernel).and_then(session::run_unwatched) {
        Ok(outcome) if outcome.end == End::Exited(0) => Ok(None),
        Ok(outcome) => Ok(Some(describe(&outcome.end))),
        Err(error) if is_interrupt(&error) => Err(error),
        Err(error) => Ok(Some(format!("{error:#}"))),
    }
}

fn probe_plan(kernel: &Path) -> Result<Plan> {
    Ok(Plan {
        machine: Machine { cpus: 1, memory: 128 << 20, accel: Accel::Kvm, cpu_model: "max", gdb: None },
        kernel: kernel.to_owned(),
        command_line: "probe".to_owned(),
        image: Tree::default().pack()?,
        disk: None,
        host_files: false,
        mounts: Vec::new(),
        network: None,
        stdout: Sink::buffer(),
        stderr: Sink::buffer(),
        stdin: false,
        terminal: false,
        kernel_log: false,
        boot_limit: Duration::from_secs(5),
        limit: Some(Duration::from_secs(60)),
        farewell: Farewell::Killed,
        plugin: None,
        wanted: None,
    })
}

/// Returns the first line of the reason.
fn describe(end: &End) -> String {
    let text = match end {
        End::Failed(text) | End::Unbooted(text) => text.clone(),
        other => format!("the probe guest ended with {other:?}"),
    };
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    line.trim_start_matches("the guest stopped: ").trim().to_owned()
}

fn remembered() -> Option<Answer> {
    serde_json::from_str(&fs::read_to_string(place::cache().join("kvm.json")).ok()?).ok()
}

/// Stores the answer, if there is a place to write. Otherwise the next run probes again.
fn remember(answer: &Answer) {
    let folder = place::cache();
    let written = serde_json::to_string(answer)
        .map(|text| fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join("kvm.json"), text)));
    drop(written);
}
