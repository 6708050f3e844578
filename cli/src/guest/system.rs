//! The systems that can run a program, and what booting each of them takes.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::channels::Sink;
use super::handed::Handed;
use super::image::Tree;
use super::linux;
use super::qemu::{Accel, Machine};
use super::session::{Farewell, Plan};
use crate::artifacts;
use crate::program::Program;

/// The address-space design of the RadixVM kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Design {
    /// A radix tree of page slots: the paper's design.
    Radix,
    /// A tree of regions under one reader-writer lock, as in Linux 2.6.
    Rwlock,
    /// The same; faults have a lock of their own.
    Faultlock,
    /// The same; faults lock the tree only while they look a region up.
    Hybrid,
    /// The same; faults take no lock.
    Bonsai,
    /// The same; each region has a lock for faults, as in today's Linux.
    Pervma,
}

/// Page tables of the RadixVM kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tables {
    /// One per core, shootdowns to exactly the cores that used a page.
    Percore,
    /// One for all cores, shootdowns to every core that runs the program.
    Shared,
    /// Each core links the leaves of the space's own tree, or has pages of its own: as the program shares memory.
    Adaptive,
}

impl From<Tables> for vm::Tables {
    fn from(tables: Tables) -> Self {
        match tables {
            Tables::Percore => Self::PerCore,
            Tables::Shared => Self::Shared,
            Tables::Adaptive => Self::Adaptive,
        }
    }
}

/// Who gets huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Huge {
    /// Nobody.
    Never,
    /// Memory that was advised so.
    Madvise,
    /// All memory that was not advised against.
    Always,
}

/// What counts the references to the pages of files in the RadixVM kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Refs {
    /// Deltas for each core, and epochs.
    Refcache,
    /// One atomic word for all cores.
    Atomic,
    /// A word under a lock.
    Locked,
    /// A tree of words, with a leaf for each core.
    Snzi,
    /// A word, and spare references for each core.
    Sloppy,
    /// Nothing: pages that leave their file are lost.
    None,
}

/// A kernel under which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Ours.
    Radix(Design, Tables, Refs),
    /// The distribution's.
    Linux,
}

/// What is known of a system.
struct Known {
    system: System,
    /// In options.
    name: &'static str,
    /// In tables.
    title: &'static str,
    /// Where there is room.
    label: &'static str,
}

/// All systems that can be compared; what else is to be known of them is asked here.
#[rustfmt::skip]
const KNOWN: [Known; 9] = [
    Known { system: System::PERCORE, name: "radix", title: "RadixVM percore", label: "RadixVM, a table per core" },
    Known { system: System::SHARED, name: "shared", title: "RadixVM shared", label: "RadixVM, one shared table" },
    Known { system: System::ADAPTIVE, name: "adaptive", title: "RadixVM adaptive", label: "RadixVM, adaptive tables" },
    Known { system: System::tree(Design::Rwlock), name: "rwlock", title: "rwlock", label: "read/write lock (Linux 2.6)" },
    Known { system: System::tree(Design::Faultlock), name: "faultlock", title: "faultlock", label: "fault lock" },
    Known { system: System::tree(Design::Hybrid), name: "hybrid", title: "hybrid", label: "hybrid lock/RCU" },
    Known { system: System::tree(Design::Bonsai), name: "bonsai", title: "bonsai", label: "pure RCU (Bonsai)" },
    Known { system: System::tree(Design::Pervma), name: "pervma", title: "pervma", label: "a lock per region (today's Linux)" },
    Known { system: System::Linux, name: "linux", title: "stock Linux", label: "stock Linux" },
];

impl System {
    /// Ours as the paper has it.
    pub const PERCORE: System = System::Radix(Design::Radix, Tables::Percore, Refs::Refcache);
    /// Ours with one page table.
    pub const SHARED: System = System::Radix(Design::Radix, Tables::Shared, Refs::Refcache);
    /// Ours with tables that are shared as the program shares memory.
    pub const ADAPTIVE: System = System::Radix(Design::Radix, Tables::Adaptive, Refs::Refcache);
    /// All of them.
    pub const ALL: [System; KNOWN.len()] = {
        let mut all = [System::Linux; KNOWN.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = KNOWN[at].system;
            at += 1;
        }
        all
    };

    const fn tree(design: Design) -> System {
        System::Radix(design, Tables::Shared, Refs::Refcache)
    }

    /// Our kernel with a design, and the tables that go with it if none are named.
    ///
    /// # Errors
    /// The design has no such tables.
    pub fn ours(design: Design, tables: Option<Tables>) -> Result<System> {
        match (design, tables) {
            (Design::Radix, None | Some(Tables::Percore)) => Ok(System::PERCORE),
            (Design::Radix, Some(Tables::Adaptive)) => Ok(System::ADAPTIVE),
            (_, Some(Tables::Percore | Tables::Adaptive)) => {
                bail!("--vm {} has one page table for all cores", word(&design))
            }
            _ => Ok(System::tree(design)),
        }
    }

    /// The same with another way to count references, if it is ours.
    pub fn counting(self, refs: Refs) -> System {
        match self {
            System::Radix(design, tables, _) => System::Radix(design, tables, refs),
            System::Linux => System::Linux,
        }
    }

    /// How it is called where there is room.
    pub fn label(self) -> String {
        format!("{}{}", self.known().label, self.counted())
    }

    /// What to say of the way to count, if it is not the usual one.
    fn counted(self) -> String {
        match self {
            System::Linux | System::Radix(_, _, Refs::Refcache) => String::new(),
            System::Radix(_, _, refs) => format!(", refs={}", word(&refs)),
        }
    }

    fn known(self) -> &'static Known {
        let usual = self.counting(Refs::Refcache);
        KNOWN.iter().find(|known| known.system == usual).expect("every system is in the table")
    }
}

impl ValueEnum for System {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.known().name).help(self.known().label))
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.known().title, self.counted())
    }
}

/// The spelling that options and kernel command lines use.
pub fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// A program with everything it is to find.
pub struct Job {
    /// The program.
    pub program: Program,
    /// argv, the program's name first.
    pub argv: Vec<OsString>,
    /// `K=V` each.
    pub envp: Vec<OsString>,
    /// Files for it.
    pub files: Vec<Handed>,
}

impl Job {
    /// A program run by its own name, without files.
    pub fn new(program: Program, arguments: impl IntoIterator<Item = OsString>) -> Self {
        let argv = [OsString::from(program.name())].into_iter().chain(arguments).collect();
        Job { program, argv, envp: environment([]), files: Vec::new() }
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
    let image = image(system, job)?;
    if image.len() as u64 > size.memory / 2 {
        bail!("program and files take {} MiB: give the guest more memory with -m", image.len() >> 20);
    }
    let linux = system == System::Linux;
    Ok(Plan {
        machine: machine(system, size),
        kernel: kernel(system)?,
        command_line: command_line(system),
        image,
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

/// With less than it needs, the stock kernel stops before it has a way to say so.
fn check_memory(system: System, memory: u64) -> Result<()> {
    ensure!(
        system != System::Linux || memory >= linux::LEAST_MEMORY,
        "stock Linux needs at least 128 MiB: give -m 128M or more"
    );
    Ok(())
}

fn machine(system: System, Size { cpus, memory, accel }: Size) -> Machine {
    // In Linux's favour. With the bit that says "virtual machine" it takes simpler, slower spin locks. With fast string
    // instructions it clears a page byte by byte, and the translator executes, and counts, every one of them.
    let cpu_model = if system == System::Linux { "max,-hypervisor,-erms,-fsrm" } else { "max" };
    Machine { cpus, memory, accel, cpu_model }
}

fn kernel(system: System) -> Result<PathBuf> {
    match system {
        System::Radix(..) => artifacts::kernel(),
        System::Linux => linux::kernel(),
    }
}

fn command_line(system: System) -> String {
    match system {
        System::Radix(design, tables, refs) => {
            format!("vm={} tables={} refs={} stats", word(&design), word(&tables), word(&refs))
        }
        System::Linux => linux::COMMAND_LINE.to_owned(),
    }
}

/// What a kernel's command line says of huge pages, after a space.
pub fn huge(system: System, huge: Huge) -> String {
    let key = if system == System::Linux { "transparent_hugepage" } else { "huge" };
    format!(" {key}={}", word(&huge))
}

/// What a kernel's command line says of compressed memory, after a space.
///
/// # Errors
/// The system has none.
pub fn compress(system: System) -> Result<&'static str> {
    match system {
        System::Radix(Design::Radix, ..) => Ok(" compress"),
        System::Radix(design, ..) => bail!("--compress: --vm {} cannot compress pages", word(&design)),
        System::Linux => bail!("--compress is for --system radix"),
    }
}

fn image(system: System, job: &Job) -> Result<Vec<u8>> {
    let mut tree = Tree::default();
    let place = format!("bin/{}", job.program.name());
    tree.file(&place, 0o755, job.program.bytes.clone())?;
    tree.command(&format!("/{place}"), &job.argv, &job.envp)?;
    for handed in &job.files {
        // Even where remarks are not wanted: the program has not begun to say anything yet.
        if let Some(left_out) = tree.hand_over(handed)?.sentence() {
            eprintln!("radixvm: --file {}: {left_out}", handed.host.display());
        }
    }
    if system == System::Linux {
        tree.file("init", 0o755, fs::read(artifacts::program("guest-init")?)?)?;
    }
    tree.pack()
}

#[cfg(test)]
mod tests {
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
    fn every_design_is_in_the_table_and_has_tables() {
        for &design in Design::value_variants() {
            for tables in [None, Some(Tables::Shared)] {
                let system = System::ours(design, tables).unwrap();
                assert!(System::ALL.contains(&system), "{design:?}");
            }
        }
        for tables in [Tables::Percore, Tables::Adaptive] {
            assert!(System::ours(Design::Rwlock, Some(tables)).is_err());
            assert!(System::ALL.contains(&System::ours(Design::Radix, Some(tables)).unwrap()));
        }
        assert!(command_line(System::Linux).contains("console=ttyS3"));
        assert_eq!(huge(System::PERCORE, Huge::Madvise), " huge=madvise");
        assert_eq!(compress(System::SHARED).unwrap(), " compress");
        assert!(compress(System::Linux).is_err() && compress(System::tree(Design::Bonsai)).is_err());
        assert_eq!(huge(System::Linux, Huge::Never), " transparent_hugepage=never");
    }
}
