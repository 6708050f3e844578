//! The boot of each system.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use abi::config::{COMPRESS, Choice, HOST_FILES, HOST_USER, Huge};
use anyhow::{Result, bail, ensure};

use super::System;
use crate::artifacts;
use crate::guest::boot_clock;
use crate::guest::channels::Sink;
use crate::guest::disk;
use crate::guest::file_arg::FileArg;
use crate::guest::image::{self, Tree};
use crate::guest::linux;
use crate::guest::mount_arg::MountArg;
use crate::guest::network_arg::{NAME_SERVER, Network};
use crate::guest::qemu::{Accel, Machine};
use crate::guest::session::{Farewell, Plan};
use crate::program::Program;
use crate::terminal;

/// A program with its arguments, environment and files.
pub struct Job {
    /// The program.
    pub program: Program,
    /// The arguments, the program's name first.
    pub argv: Vec<OsString>,
    /// The environment, `K=V` each.
    pub envp: Vec<OsString>,
    /// Its files.
    pub files: Vec<FileArg>,
    /// Set if the guest's tree of names is the host's. Our kernel only.
    pub host_files: bool,
    /// The directories of the host that it may change, if so.
    pub mounts: Vec<MountArg>,
    /// The network, if it has one. Our kernel only.
    pub network: Option<Network>,
    /// Set if the program has the path that it has here, too, though it does not see the host's files.
    pub is_at_own_path: bool,
}

impl Job {
    /// Returns a job for a program with its own name and without files.
    pub fn new(program: Program, arguments: impl IntoIterator<Item = OsString>) -> Self {
        let argv = [OsString::from(program.name())].into_iter().chain(arguments).collect();
        Job {
            program,
            argv,
            envp: environment([]),
            files: Vec::new(),
            host_files: false,
            mounts: Vec::new(),
            network: None,
            is_at_own_path: false,
        }
    }

    /// Returns the program's path in the guest.
    pub fn place(&self) -> String {
        if self.host_files || self.is_at_own_path {
            return self.program.path.display().to_string();
        }
        format!("/bin/{}", self.program.name())
    }
}

/// Returns the environment of a program: the defaults, replaced and extended by `given`.
pub fn environment(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let defaults = ["PATH=/bin:/usr/bin", "HOME=/tmp", "PWD=/"].map(OsString::from);
    merged(defaults.into_iter().chain(given))
}

/// Returns the environment of a program that sees the host's files: this command's own, replaced and extended
/// by `given`.
pub fn host_environment(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let own = std::env::vars_os().map(|(mut setting, value)| {
        setting.push("=");
        setting.push(value);
        setting
    });
    merged(own.chain(given))
}

/// Returns the settings. Of several with one name the last counts.
fn merged(all: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut settings: Vec<OsString> = Vec::new();
    for setting in all {
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
    /// The accelerator.
    pub accel: Accel,
}

/// The program's standard streams.
pub struct Streams {
    /// Its standard output.
    pub stdout: Sink,
    /// Its standard error.
    pub stderr: Sink,
    /// Set if it reads our standard input.
    pub stdin: bool,
}

/// Plans a session.
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
        command_line: command_line(system) + &host_files(system, job)? + &network(system, job)?,
        image,
        disk,
        host_files: job.host_files,
        mounts: job.mounts.iter().map(|mount| mount.host.clone()).collect(),
        network: job.network.clone(),
        stdout: streams.stdout,
        stderr: streams.stderr,
        stdin: streams.stdin,
        terminal: false,
        kernel_log: linux,
        boot_limit: boot_clock::limit_or(Duration::from_secs(90 + 4 * u64::from(size.cpus))),
        limit: None,
        farewell: if linux { Farewell::Killed } else { Farewell::ByItself },
        plugin: None,
        wanted: None,
    })
}

/// The fraction of its memory that files may take in the stock kernel's boot image.
const SHARE: u64 = 8;

/// Checks the memory. With less than it needs, the stock kernel stops before it can report that.
fn check_memory(system: System, memory: u64) -> Result<()> {
    ensure!(
        system != System::Linux || memory >= linux::LEAST_MEMORY,
        "stock Linux needs at least 128 MiB: give -m 128M or more"
    );
    Ok(())
}

/// The CPU model of stock Linux, and of either kernel when instructions are counted. It leaves out the
/// x2APIC, which QEMU has from version 9 on, because the meter does not see its interrupts. The family is
/// that of QEMU 7.2: with the family of newer ones Linux clears pages by a loop, not by a string instruction.
pub const CPU_MODEL: &str = "max,family=15,model=107,stepping=1,-hypervisor,-erms,-fsrm,-x2apic";

fn machine(system: System, Size { cpus, memory, accel }: Size) -> Machine {
    let cpu_model = match (system, accel) {
        // These are in Linux's favour. If the hypervisor bit is set, it uses simpler, slower spin locks. With
        // fast string instructions it clears a page byte by byte, and the translator executes, and counts,
        // each of them.
        (System::Linux, _) => CPU_MODEL,
        // QEMU 9 and later stop with "Bad icount read" when the timer of an x2APIC is set while they count.
        (_, Accel::Counting) => "max,-x2apic",
        _ => "max",
    };
    Machine { cpus, memory, accel, cpu_model, gdb: None }
}

fn kernel(system: System) -> Result<PathBuf> {
    match system {
        System::Radixvm(..) => artifacts::kernel(),
        System::Linux => Ok(linux::kernel()?.path.clone()),
    }
}

fn command_line(system: System) -> String {
    match system {
        System::Radixvm(design, tables, refs, read_refs) => format!(
            "vm={} tables={} refs={} read_refs={} stats",
            design.word(),
            tables.word(),
            refs.word(),
            read_refs.word()
        ),
        System::Linux => linux::COMMAND_LINE.to_owned(),
    }
}

/// Returns the option for huge pages on a kernel's command line, after a space.
pub fn huge(system: System, huge: Huge) -> String {
    let key = if system == System::Linux { "transparent_hugepage" } else { "huge" };
    format!(" {key}={}", huge.word())
}

/// Returns the option for compressed memory on a kernel's command line, after a space.
///
/// # Errors
/// If the system cannot compress memory.
pub fn compress(system: System) -> Result<String> {
    match system {
        System::Radixvm(design, ..) if design.compresses() => Ok(format!(" {COMPRESS}")),
        System::Radixvm(design, ..) => bail!("--compress: --vm {} cannot compress pages", design.word()),
        System::Linux => bail!("--compress is for --system radixvm"),
    }
}

/// Returns the option for the host's files on a kernel's command line, after a space, if the job needs it.
///
/// # Errors
/// If the system cannot read them.
fn host_files(system: System, job: &Job) -> Result<String> {
    ensure!(
        !job.host_files || system != System::Linux,
        "{}: the guest with stock Linux does not see this machine's files: a static program, its files by --file",
        job.program.path.display()
    );
    Ok(if job.host_files { format!(" {HOST_FILES}{}", host_user()) } else { String::new() })
}

/// Returns the option that says who runs the guest, whose files are root's there.
fn host_user() -> String {
    match fs::metadata("/proc/self") {
        Ok(own) if (own.uid(), own.gid()) != (0, 0) => format!(" {HOST_USER}={}:{}", own.uid(), own.gid()),
        _ => String::new(),
    }
}

/// Returns the option for the network on a kernel's command line, after a space, if the job has one.
///
/// # Errors
/// If the system has no driver for it.
fn network(system: System, job: &Job) -> Result<String> {
    ensure!(job.network.is_none() || system != System::Linux, "-p and --net are for the RadixVM kernel");
    Ok(job.network.as_ref().map_or_else(String::new, Network::word))
}

/// Returns the boot image, and a disk if the files would leave stock Linux too little memory, because it
/// keeps what it unpacks.
fn image(system: System, job: &Job, memory: u64) -> Result<(Vec<u8>, Option<File>)> {
    let mut tree = Tree::default();
    for file_arg in &job.files {
        // Printed even if messages are not wanted, because the program has not started yet.
        if let Some(skipped) = tree.add_file_arg(file_arg)?.sentence() {
            terminal::message(format_args!("--file {}: {skipped}", file_arg.host.display()));
        }
    }
    if job.network.as_ref().is_some_and(Network::goes_out) && !tree.has("etc/resolv.conf") {
        let server = format!("nameserver {NAME_SERVER}\n");
        tree.file("etc/resolv.conf", 0o644, server.into_bytes())?;
    }
    let is_large = system == System::Linux && tree.bytes() > memory / SHARE;
    let disk = is_large.then(|| disk::take(&mut tree)).transpose()?;
    let place = job.place();
    if job.host_files {
        image::refuse_guests_own(&job.program.path)?;
        tree.like_here()?;
        tree.mounts(&job.mounts)?;
    } else {
        image::refuse_guests_own(Path::new(&place))?;
        tree.file(place.trim_start_matches('/'), 0o755, job.program.bytes.clone())?;
    }
    tree.command(&place, &job.argv, &job.envp)?;
    match system {
        System::Radixvm(..) => tree.seed()?,
        System::Linux => tree.file("init", 0o755, fs::read(artifacts::program("guest-init")?)?)?,
    }
    Ok((tree.pack()?, disk))
}

#[cfg(test)]
mod tests {
    use abi::config::{Design, ReadRefs, Refs, Tables};

    use super::*;

    /// QEMU cannot count the instructions of a machine whose x2APIC has a timer.
    #[test]
    fn machines_that_count_have_no_x2apic() {
        let system = System::Radixvm(Design::Radix, Tables::Adaptive, Refs::Refcache, ReadRefs::Pinned);
        let model = |accel| machine(system, Size { cpus: 1, memory: 64 << 20, accel }).cpu_model;
        assert!(model(Accel::Counting).contains("-x2apic") && !model(Accel::Tcg).contains("-x2apic"));
    }

    #[test]
    fn settings_given_replace_the_defaults() {
        let settings = environment(["HOME=/x".into(), "A=1".into(), "A=2".into()]);
        assert_eq!(settings, ["PATH=/bin:/usr/bin", "PWD=/", "HOME=/x", "A=2"].map(OsString::from));
    }

    /// Stock Linux does not see this machine's files, and says so before it boots.
    #[test]
    fn only_our_kernel_sees_the_files_of_this_machine() {
        let program = Program { path: "/bin/ls".into(), bytes: Vec::new() };
        let job = |host_files| Job { host_files, ..Job::new(program.clone(), []) };
        assert_eq!(host_files(System::DEFAULT, &job(true)).unwrap(), format!(" host-files{}", host_user()));
        assert_eq!(host_files(System::Linux, &job(false)).unwrap(), "");
        assert!(host_files(System::Linux, &job(true)).unwrap_err().to_string().contains("/bin/ls"));
        assert_eq!((job(true).place(), job(false).place()), ("/bin/ls".to_owned(), "/bin/ls".to_owned()));
    }

    #[test]
    fn only_our_kernel_has_a_network() {
        let network_of = |ports: &[String], out| Network::parse(ports, out).unwrap();
        let program = Program { path: "/bin/ls".into(), bytes: Vec::new() };
        let job = |network| Job { network, ..Job::new(program.clone(), []) };
        let ports = ["8080:80".to_owned()];
        assert_eq!(network(System::DEFAULT, &job(network_of(&ports, false))).unwrap(), " network");
        assert_eq!(network(System::DEFAULT, &job(network_of(&ports, true))).unwrap(), " network-out");
        assert_eq!(network(System::Linux, &job(None)).unwrap(), "");
        assert!(
            network(System::Linux, &job(network_of(&ports, false))).unwrap_err().to_string().contains("-p")
        );
    }

    #[test]
    fn stock_linux_is_not_squeezed() {
        assert!(check_memory(System::Linux, (128 << 20) - 1).unwrap_err().to_string().contains("-m 128M"));
        assert!(check_memory(System::Linux, 128 << 20).is_ok());
        assert!(check_memory(System::PERCORE, 16 << 20).is_ok());
    }

    #[test]
    fn command_lines_name_what_was_chosen() {
        let shared = "vm=radix tables=shared refs=refcache read_refs=pinned stats";
        assert_eq!(command_line(System::SHARED), shared);
        let bonsai = System::tree(Design::Bonsai).counting(Refs::Snzi).reading(ReadRefs::Paygo);
        assert_eq!(command_line(bonsai), "vm=bonsai tables=shared refs=snzi read_refs=paygo stats");
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
