//! What booting each system takes.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use abi::config::{COMPRESS, Choice, Huge};
use anyhow::{Result, bail, ensure};

use super::System;
use crate::artifacts;
use crate::guest::channels::Sink;
use crate::guest::disk;
use crate::guest::file_arg::FileArg;
use crate::guest::image::Tree;
use crate::guest::linux;
use crate::guest::qemu::{Accel, Machine};
use crate::guest::session::{Farewell, Plan};
use crate::program::Program;
use crate::terminal;

/// A program with everything it is to find.
pub struct Job {
    /// The program.
    pub program: Program,
    /// argv, the program's name first.
    pub argv: Vec<OsString>,
    /// `K=V` each.
    pub envp: Vec<OsString>,
    /// Files for it.
    pub files: Vec<FileArg>,
}

impl Job {
    /// A program run by its own name, without files.
    pub fn new(program: Program, arguments: impl IntoIterator<Item = OsString>) -> Self {
        let argv = [OsString::from(program.name())].into_iter().chain(arguments).collect();
        Job { program, argv, envp: environment([]), files: Vec::new() }
    }

    /// Where the guest has the program.
    pub fn place(&self) -> String {
        format!("/bin/{}", self.program.name())
    }
}

/// What every program finds in its environment; `given` replaces and adds.
pub fn environment(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let defaults = ["PATH=/bin:/usr/bin", "HOME=/tmp", "PWD=/"].map(OsString::from);
    let mut settings: Vec<OsString> = Vec::new();
    for setting in defaults.into_iter().chain(given) {
        settings.retain(|old| name(old) != name(&setting));
        settings.push(setting);
    }
    settings
}

fn name(setting: &OsString) -> String {
    let text = setting.to_string_lossy();
    text.split('=').next().unwrap_or_default().to_owned()
}

/// The size of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Virtual CPUs.
    pub cpus: u16,
    /// Bytes of memory.
    pub memory: u64,
    /// Who executes the instructions.
    pub accel: Accel,
}

/// Where the program's bytes go and come from.
pub struct Streams {
    /// Its standard output.
    pub stdout: Sink,
    /// Its standard error.
    pub stderr: Sink,
    /// Whether it reads our standard input.
    pub stdin: bool,
}

/// Puts together all that a session needs.
pub fn plan(system: System, job: &Job, size: Size, streams: Streams) -> Result<Plan> {
    check_memory(system, size.memory)?;
    let (image, disk) = image(system, job, size.memory)?;
    if image.len() as u64 > size.memory / 2 {
        bail!("program and files take {} MiB: give the guest more memory with -m", image.len() >> 20);
    }
    let linux = system == System::Linux;
    Ok(Plan {
        machine: machine(system, size),
        kernel: kernel(system)?,
        command_line: command_line(system),
        image,
        disk,
        stdout: streams.stdout,
        stderr: streams.stderr,
        stdin: streams.stdin,
        kernel_log: linux,
        boot_limit: Duration::from_secs(90 + 4 * u64::from(size.cpus)),
        limit: None,
        farewell: if linux { Farewell::Killed } else { Farewell::ByItself },
        plugin: None,
        wanted: None,
    })
}

/// Part of its memory that files may take in the stock kernel's boot image.
const SHARE: u64 = 8;

/// With less than it needs, the stock kernel stops before it has a way to say so.
fn check_memory(system: System, memory: u64) -> Result<()> {
    ensure!(
        system != System::Linux || memory >= linux::LEAST_MEMORY,
        "stock Linux needs at least 128 MiB: give -m 128M or more"
    );
    Ok(())
}

/// The CPU of stock Linux, and of either kernel where instructions are counted.
pub const CPU_MODEL: &str = "max,-hypervisor,-erms,-fsrm";

fn machine(system: System, Size { cpus, memory, accel }: Size) -> Machine {
    // In Linux's favour. With the bit that says "virtual machine" it takes simpler, slower spin locks. With fast string
    // instructions it clears a page byte by byte, and the translator executes, and counts, every one of them.
    let cpu_model = if system == System::Linux { CPU_MODEL } else { "max" };
    Machine { cpus, memory, accel, cpu_model }
}

fn kernel(system: System) -> Result<PathBuf> {
    match system {
        System::Radixvm(..) => artifacts::kernel(),
        System::Linux => linux::kernel(),
    }
}

fn command_line(system: System) -> String {
    match system {
        System::Radixvm(design, tables, refs) => {
            format!("vm={} tables={} refs={} stats", design.word(), tables.word(), refs.word())
        }
        System::Linux => linux::COMMAND_LINE.to_owned(),
    }
}

/// What a kernel's command line says of huge pages, after a space.
pub fn huge(system: System, huge: Huge) -> String {
    let key = if system == System::Linux { "transparent_hugepage" } else { "huge" };
    format!(" {key}={}", huge.word())
}

/// What a kernel's command line says of compressed memory, after a space.
///
/// # Errors
/// The system has none.
pub fn compress(system: System) -> Result<String> {
    match system {
        System::Radixvm(design, ..) if design.compresses() => Ok(format!(" {COMPRESS}")),
        System::Radixvm(design, ..) => bail!("--compress: --vm {} cannot compress pages", design.word()),
        System::Linux => bail!("--compress is for --system radixvm"),
    }
}

/// The boot image, and a disk for what would leave stock Linux too little of its memory: it keeps what it unpacks.
fn image(system: System, job: &Job, memory: u64) -> Result<(Vec<u8>, Option<File>)> {
    let mut tree = Tree::default();
    for file_arg in &job.files {
        // Even where remarks are not wanted: the program has not begun to say anything yet.
        if let Some(skipped) = tree.add_file_arg(file_arg)?.sentence() {
            terminal::message(format_args!("--file {}: {skipped}", file_arg.host.display()));
        }
    }
    let is_large = system == System::Linux && tree.bytes() > memory / SHARE;
    let disk = is_large.then(|| disk::take(&mut tree)).transpose()?;
    let place = job.place();
    tree.file(place.trim_start_matches('/'), 0o755, job.program.bytes.clone())?;
    tree.command(&place, &job.argv, &job.envp)?;
    match system {
        System::Radixvm(..) => tree.seed()?,
        System::Linux => tree.file("init", 0o755, fs::read(artifacts::program("guest-init")?)?)?,
    }
    Ok((tree.pack()?, disk))
}

#[cfg(test)]
mod tests {
    use abi::config::Design;

    use super::*;

    #[test]
    fn settings_given_replace_the_defaults() {
        let settings = environment(["HOME=/x".into(), "A=1".into(), "A=2".into()]);
        assert_eq!(settings, ["PATH=/bin:/usr/bin", "PWD=/", "HOME=/x", "A=2"].map(OsString::from));
    }

    #[test]
    fn stock_linux_is_not_squeezed() {
        assert!(check_memory(System::Linux, (128 << 20) - 1).unwrap_err().to_string().contains("-m 128M"));
        assert!(check_memory(System::Linux, 128 << 20).is_ok());
        assert!(check_memory(System::PERCORE, 16 << 20).is_ok());
    }

    #[test]
    fn command_lines_name_what_was_chosen() {
        assert_eq!(command_line(System::SHARED), "vm=radix tables=shared refs=refcache stats");
        assert_eq!(command_line(System::tree(Design::Bonsai)), "vm=bonsai tables=shared refs=refcache stats");
    }

    #[test]
    fn linux_has_words_of_its_own() {
        assert!(command_line(System::Linux).contains("console=ttyS3"));
        assert_eq!(huge(System::PERCORE, Huge::Madvise), " huge=madvise");
        assert_eq!(compress(System::SHARED).unwrap(), " compress");
        assert!(compress(System::Linux).is_err() && compress(System::tree(Design::Bonsai)).is_err());
        assert_eq!(huge(System::Linux, Huge::Never), " transparent_hugepage=never");
    }
}
