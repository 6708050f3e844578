//! The commit, the machine and the programs behind results.

use std::process::Command;

use anyhow::{Context, Result};

use super::output;

/// Shell commands that describe a machine, as [`Machine::of_host`] reads it.
pub const DESCRIBE: &str = "date --utc '+date : %F'; echo \"processors : $(nproc)\"; \
     echo \"Linux : $(uname -r)\"; grep -m 1 '^model name' /proc/cpuinfo";

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
    /// The names and versions of the programs that the results depend on.
    pub software: Vec<(&'static str, String)>,
}

impl Machine {
    /// Looks at this machine and at what guests depend on, for results of guests.
    pub fn of_guests() -> Result<Self> {
        let software = vec![
            ("QEMU", one_line("qemu-system-x86_64", &["--version"])?),
            ("stock Linux", stock_kernel(&output(Command::new("./radixvm").arg("doctor"))?)),
        ];
        Ok(Machine { software, ..Machine::here()? })
    }

    /// Looks at this machine, for results of the machine itself.
    pub fn here() -> Result<Self> {
        Machine::of_host(commit()?, &output(Command::new("sh").args(["-c", DESCRIBE]))?)
    }

    /// Reads what [`DESCRIBE`] printed on a machine.
    pub fn of_host(commit: String, description: &str) -> Result<Self> {
        let field = |name| field(description, name).with_context(|| format!("no {name}"));
        Ok(Machine {
            commit,
            date: field("date")?,
            processor: field("model name")?,
            processors: field("processors")?.parse()?,
            software: vec![("Linux", field("Linux")?)],
        })
    }
}

/// Returns the short name of the commit.
pub fn commit() -> Result<String> {
    one_line("git", &["rev-parse", "--short", "HEAD"])
}

fn one_line(program: &str, words: &[&str]) -> Result<String> {
    let text = output(Command::new(program).args(words))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Returns the value of a line `name : value`.
pub fn field(text: &str, name: &str) -> Option<String> {
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

    #[test]
    fn this_machine_describes_itself() {
        let machine = Machine::here().unwrap();
        assert_eq!(machine.processors, std::thread::available_parallelism().unwrap().get());
        assert!(machine.date.starts_with("20"), "{}", machine.date);
        assert_eq!(machine.software.len(), 1);
        assert!(
            Machine::of_host("c".into(), "date : 2026-01-01\n")
                .err()
                .unwrap()
                .to_string()
                .contains("model name")
        );
    }
}
