//! `radixvm doctor`: lists the tools that are here and those that are missing, and how to get them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use launch::guest::{kvm, linux, qemu};
use launch::table::Table;
use launch::{artifacts, place, terminal};

/// The result of one check.
struct Finding {
    name: &'static str,
    /// Its version, if it is there.
    found: Option<String>,
    /// Its purpose, and how to get it.
    remedy: String,
    /// Set if `radixvm run` works without it.
    optional: bool,
    /// Set if it is there and does not work.
    unusable: bool,
}

impl Finding {
    fn state(&self) -> &'static str {
        match self {
            Finding { found: Some(_), .. } => "ok",
            Finding { unusable: true, .. } => "unusable",
            Finding { optional: true, .. } => "absent",
            Finding { optional: false, .. } => "MISSING",
        }
    }
}

/// Prints the findings. Returns status 1 if something needed is missing.
pub fn run() -> Result<u8> {
    let findings = findings()?;
    let mut table = Table::new(["what", "state", "version, or how to get it"]).left(2);
    for finding in &findings {
        table.row([finding.name, finding.state(), finding.found.as_deref().unwrap_or(&finding.remedy)]);
    }
    terminal::print_plain(table)?;
    Ok(findings.iter().any(|finding| finding.found.is_none() && !finding.optional).into())
}

fn findings() -> Result<Vec<Finding>> {
    let mut findings = vec![tool("QEMU", &qemu::program(), &["--version"], apt("qemu-system-x86"), false)];
    if place::installed().is_none() {
        findings.extend(builders());
    }
    findings.extend(linux_fetchers());
    findings.extend([radix_kernel(), stock_kernel(), kvm_works()?]);
    Ok(findings)
}

fn apt(package: &str) -> String {
    format!("apt-get install {package}")
}

fn builders() -> Vec<Finding> {
    let mut findings = vec![
        tool("Rust", "rustc", &["--version"], "from rustup.rs".to_owned(), false),
        tool("cargo", "cargo", &["--version"], "from rustup.rs".to_owned(), false),
        tool("C compiler", "gcc", &["--version"], apt("gcc libc6-dev"), false),
        tool("musl compiler", "musl-gcc", &["-dumpversion"], apt("musl-tools") + " (for the tests)", true),
        miri(),
    ];
    findings.extend(artifacts::targets().map(target));
    findings
}

fn linux_fetchers() -> [Finding; 3] {
    let comes = |what: &str| format!("comes with Debian and Ubuntu ({what} stock Linux)");
    [
        tool("apt-get", "apt-get", &["--version"], comes("fetches"), true),
        tool("dpkg", "dpkg", &["--version"], comes("unpacks"), true),
        tool(
            "mke2fs",
            "sh",
            // It prints that on stderr, and is often not on the PATH.
            &["-c", "PATH=$PATH:/usr/sbin:/sbin; mke2fs -V 2>&1"],
            apt("e2fsprogs") + " (large files for stock Linux)",
            true,
        ),
    ]
}

fn tool(name: &'static str, program: &str, arguments: &[&str], remedy: String, optional: bool) -> Finding {
    Finding { name, found: first_line(program, arguments), remedy, optional, unusable: false }
}

/// Returns the first line that a program prints, if it succeeds.
fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| text.lines().next().unwrap_or("").trim().to_owned())
}

fn target(name: &'static str) -> Finding {
    let sysroot = first_line("rustc", &["--print", "sysroot"]).map(PathBuf::from);
    let there = sysroot.is_some_and(|sysroot| artifacts::has_target(&sysroot, name));
    let remedy = format!("rustup target add {name}");
    Finding { name, found: there.then(|| "Rust target".to_owned()), remedy, optional: false, unusable: false }
}

fn miri() -> Finding {
    let remedy = "rustup +nightly component add miri (for the tests)".to_owned();
    tool("Miri", "cargo", &["+nightly", "miri", "--version"], remedy, true)
}

fn radix_kernel() -> Finding {
    let (found, remedy) = match artifacts::kernel() {
        Ok(path) => (Some(path.display().to_string()), String::new()),
        Err(error) => (None, line(&error)),
    };
    Finding { name: "RadixVM kernel", found, remedy, optional: false, unusable: false }
}

fn stock_kernel() -> Finding {
    let found = linux::fetched().map(|kernel| kernel.path.display().to_string());
    let remedy =
        format!("radixvm demo fetches it into {}; --linux FILE takes another one", place::cache().display());
    Finding { name: "stock Linux kernel", found, remedy, optional: true, unusable: false }
}

/// Checks KVM by booting a guest with it now. A device node alone does not show that it works.
fn kvm_works() -> Result<Finding> {
    let trouble = match artifacts::kernel() {
        Ok(kernel) => kvm::probe(&kernel)?,
        Err(error) => Some(line(&error)),
    };
    let remedy =
        format!("a guest does not boot with it, QEMU translates: {}", trouble.clone().unwrap_or_default());
    let found = trouble.is_none().then(|| "a probe guest booted".to_owned());
    Ok(Finding { name: "KVM", found, remedy, optional: true, unusable: Path::new("/dev/kvm").exists() })
}

/// Returns the cause of an error in one line.
fn line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let cause = text.lines().find(|line| line.starts_with("error")).or(text.lines().next());
    cause.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_tool_is_not_absent() {
        let state = |found: Option<&str>, optional, unusable| {
            Finding { name: "", found: found.map(str::to_owned), remedy: String::new(), optional, unusable }
                .state()
        };
        assert_eq!(state(None, true, true), "unusable");
        assert_eq!(state(None, true, false), "absent");
        assert_eq!(state(None, false, false), "MISSING");
        assert_eq!(state(Some("a probe guest booted"), true, true), "ok");
    }
}
