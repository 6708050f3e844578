//! The commit, the machine and the programs behind results.

use std::fs;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};

use super::output;

/// The commit, and the machine and programs that ran it.
pub struct Machine {
    /// The commit's short name.
    pub commit: String,
    /// The day of the run.
    pub date: String,
    /// The model of the host's processor.
    pub processor: String,
    /// The number of processors that the command may use.
    pub processors: usize,
    /// QEMU's version.
    pub qemu: String,
    /// The file of the stock kernel in the guests called Linux.
    pub linux: String,
}

impl Machine {
    /// Looks at this machine.
    pub fn here() -> Result<Self> {
        let one_line = |program: &str, words: &[&str]| -> Result<String> {
            let text = output(Command::new(program).args(words))?;
            Ok(text.lines().next().unwrap_or_default().to_owned())
        };
        Ok(Machine {
            commit: one_line("git", &["rev-parse", "--short", "HEAD"])?,
            date: one_line("date", &["--utc", "+%F"])?,
            processor: field(&fs::read_to_string("/proc/cpuinfo")?, "model name").context("no model name")?,
            processors: thread::available_parallelism()?.get(),
            qemu: one_line("qemu-system-x86_64", &["--version"])?,
            linux: stock_kernel(&output(Command::new("./radixvm").arg("doctor"))?),
        })
    }
}

/// Returns the value of a line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// Returns the name of the kernel's file, which contains its version, from the output of `radixvm doctor`.
fn stock_kernel(doctor: &str) -> String {
    let line = doctor.lines().find(|line| line.starts_with("stock Linux kernel")).unwrap_or_default();
    line.rsplit(['/', ' ']).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_print() {
        assert_eq!(field("vendor_id\t: A\nmodel name\t: A B\n", "model name").unwrap(), "A B");
        assert_eq!(
            stock_kernel("QEMU  ok  x\nstock Linux kernel  ok  /a/vmlinuz-6.1.0-1\n"),
            "vmlinuz-6.1.0-1"
        );
    }
}
