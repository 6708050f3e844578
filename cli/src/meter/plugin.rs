//! The plugin's command line, and the folder with its files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::names::Kernel;
use crate::guest::session::Plugin;
use crate::leftovers;

/// The entry points of a kernel for an event: their names in our kernel, and in the stock one.
struct Event {
    name: &'static str,
    ours: &'static [&'static str],
    linux: &'static [&'static str],
}

const EVENTS: [Event; 5] = [
    Event { name: "fault", ours: &["stub_page_fault"], linux: &["asm_exc_page_fault"] },
    Event { name: "syscall", ours: &["syscall_entry"], linux: &["entry_SYSCALL_64"] },
    Event {
        name: "ipi",
        ours: &["stub_shootdown", "stub_reschedule"],
        linux: &[
            "asm_sysvec_call_function",
            "asm_sysvec_call_function_single",
            "asm_sysvec_reschedule_ipi",
            "asm_sysvec_reboot",
        ],
    },
    Event { name: "tick", ours: &["stub_timer"], linux: &["asm_sysvec_apic_timer_interrupt"] },
    Event { name: "schedule", ours: &["switch_context"], linux: &["__switch_to_asm"] },
];

/// The settings of a metered run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The number of virtual CPUs.
    pub cpus: u16,
    /// The bytes of the guest's memory.
    pub memory: u64,
    /// The instructions that a CPU may run ahead.
    pub slack: u64,
    /// The rounds after which the window ends. If 0, it ends when the first thread is done.
    pub rounds: u64,
    /// Set to count by the place in the program that made the kernel work.
    pub sites: bool,
}

/// The prefix of the names of these folders.
const PREFIX: &str = "radixvm-meter-";

/// A folder for one run, which is removed with this value.
pub struct Scratch(TempDir);

impl Scratch {
    /// Creates a folder.
    pub fn new() -> Result<Self> {
        // A killed run may have left its folder behind.
        leftovers::prune(&std::env::temp_dir(), PREFIX, usize::MAX);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir();
        folder.map(Scratch).context("no place for the plugin's files")
    }

    /// Returns the path of the plugin's counts.
    pub fn counts(&self) -> PathBuf {
        self.0.path().join("counts.json")
    }

    /// Writes the list of events, and returns the plugin for QEMU.
    pub fn plugin(&self, file: &Path, settings: Settings, kernel: &Kernel) -> Result<Plugin> {
        let events = self.0.path().join("events");
        std::fs::write(&events, event_lines(kernel)?).context("cannot write the list of events")?;
        let mut argument = argument(file, settings, &self.counts(), &events)?;
        if settings.sites {
            argument.push(format!(",sites={}", saved_frame_pointer(kernel)));
        }
        Ok(Plugin { argument, preload: file.to_owned(), reads_memory: settings.sites })
    }
}

fn argument(file: &Path, settings: Settings, out: &Path, events: &Path) -> Result<OsString> {
    let Settings { cpus, memory, slack, rounds, .. } = settings;
    let [file, out, events] = [file, out, events].map(|path| path.display().to_string());
    ensure!(
        ![&file, &out, &events].iter().any(|path| path.contains(',')),
        "{file}: a plugin's path may not hold a comma"
    );
    Ok(format!("{file},out={out},slack={slack},cpus={cpus},rounds={rounds},events={events},memory={memory}")
        .into())
}

/// Returns the distance of the frame pointer from the instruction pointer where a kernel saves a program's
/// registers: `TrapFrame` of our kernel, and `struct pt_regs` of Linux, which is part of its interface.
fn saved_frame_pointer(kernel: &Kernel) -> u64 {
    match kernel {
        Kernel::Ours { .. } => 13 * 8,
        Kernel::Linux(_) => 12 * 8,
    }
}

/// Returns a line `NAME HEXADDR` for every place that the kernel has.
fn event_lines(kernel: &Kernel) -> Result<String> {
    EVENTS.iter().map(|event| lines_of(event, kernel)).collect()
}

fn lines_of(event: &Event, kernel: &Kernel) -> Result<String> {
    let names = if matches!(kernel, Kernel::Linux(_)) { event.linux } else { event.ours };
    let addresses = names.iter().filter_map(|name| kernel.address(name));
    let text: String = addresses.map(|address| format!("{} {address:#x}\n", event.name)).collect();
    ensure!(
        !text.is_empty(),
        "this kernel has no symbol for `{}`: looked for {}",
        event.name,
        names.join(", ")
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::kallsyms::Kallsyms;

    fn stock() -> Kernel {
        let mut text = "ffffffff81000000 T other\n".repeat(1001);
        for (number, name) in EVENTS.iter().flat_map(|event| event.linux).enumerate() {
            text += &format!("ffffffff8200{number:04x} T {name}\n");
        }
        Kernel::Linux(Kallsyms::parse(&text).unwrap())
    }

    #[test]
    fn every_event_has_a_line_per_place() {
        let lines = event_lines(&stock()).unwrap();
        assert_eq!(lines.lines().filter(|line| line.starts_with("ipi 0xffffffff8200")).count(), 4);
        assert!(lines.starts_with("fault 0xffffffff82000000\n"), "{lines}");
    }

    #[test]
    fn a_kernel_without_the_places_is_refused() {
        let ours = Kernel::ours(&std::env::current_exe().unwrap()).unwrap();
        assert!(event_lines(&ours).unwrap_err().to_string().contains("no symbol for `fault`"));
    }

    #[test]
    fn the_argument_names_everything_and_the_folder_goes_away() {
        let scratch = Scratch::new().unwrap();
        let folder = scratch.0.path().to_owned();
        let settings = Settings { cpus: 4, memory: 1 << 30, slack: 200, rounds: 9, sites: false };
        let plugin = scratch.plugin(Path::new("/x/meter.so"), settings, &stock()).unwrap();
        let argument = plugin.argument.to_string_lossy().into_owned();
        assert!(argument.starts_with("/x/meter.so,out=/"), "{argument}");
        assert!(
            argument.contains(",slack=200,cpus=4,rounds=9,events=/")
                && argument.ends_with(",memory=1073741824"),
            "{argument}"
        );
        let sites =
            scratch.plugin(Path::new("/x/meter.so"), Settings { sites: true, ..settings }, &stock()).unwrap();
        assert!(sites.argument.to_string_lossy().ends_with(",sites=96") && sites.reads_memory);
        assert!(scratch.plugin(Path::new("/a,b.so"), settings, &stock()).is_err());
        drop(scratch);
        assert!(!folder.exists());
    }
}
