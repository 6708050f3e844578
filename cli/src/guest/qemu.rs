//! The QEMU command as types: a machine, its software, and the ends of its serial ports.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::gdb::Gdb;
use super::network_arg::Network;

/// Returns the emulator that this crate drives: `RADIXVM_QEMU`, or the one on the PATH.
pub fn program() -> String {
    std::env::var("RADIXVM_QEMU").unwrap_or_else(|_| "qemu-system-x86_64".to_owned())
}

/// The way in which guest instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// By the processor.
    Kvm,
    /// By translation, one host thread per CPU.
    Tcg,
    /// By translation on one CPU, one instruction per nanosecond of guest time: `rdtsc` counts instructions.
    Counting,
}

impl Accel {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Accel::Kvm => &["-accel", "kvm"],
            Accel::Tcg => &["-accel", "tcg,thread=multi"],
            Accel::Counting => &["-accel", "tcg,thread=single", "-icount", "shift=0"],
        }
    }
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Accel::Kvm => "KVM",
            Accel::Tcg | Accel::Counting => "QEMU's translator, not hardware speed",
        })
    }
}

/// A machine before it boots anything.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Virtual CPUs.
    pub cpus: u16,
    /// Bytes of memory.
    pub memory: u64,
    /// The accelerator.
    pub accel: Accel,
    /// The CPU model, as `-cpu` takes it.
    pub cpu_model: &'static str,
    /// The port where the machine waits for gdb before it boots.
    pub gdb: Option<Gdb>,
}

/// The software that a machine boots.
#[derive(Clone, Debug)]
pub struct Boot {
    /// The kernel: a PVH ELF or a bzImage.
    pub kernel: PathBuf,
    /// The boot image.
    pub initrd: PathBuf,
    /// The kernel's command line.
    pub command_line: String,
}

/// The far end of a serial port.
#[derive(Clone, Debug)]
pub enum Port {
    /// A connected socket inherited under this number.
    Inherited(i32),
    /// QEMU's own standard input and output.
    Stdio,
    /// A file that QEMU overwrites.
    File(PathBuf),
    /// A file that QEMU appends to.
    Appended(PathBuf),
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Port::Inherited(number) => write!(f, "socket,fd={number}"),
            Port::Stdio => write!(f, "stdio,signal=on"),
            Port::File(path) => write!(f, "file,path={}", escaped(path)),
            Port::Appended(path) => write!(f, "file,path={},append=on", escaped(path)),
        }
    }
}

/// Escapes a path for QEMU's options.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// A whole QEMU command.
#[derive(Clone, Debug)]
pub struct Qemu {
    /// The hardware.
    pub machine: Machine,
    /// Set if the guest's memory is to have a name in QEMU's own maps, for a plugin that reads it.
    pub shared_memory: bool,
    /// The software.
    pub boot: Boot,
    /// A read-only disk.
    pub disk: Option<PathBuf>,
    /// Set if the guest reads the host's files.
    pub host_files: bool,
    /// The directories that it may change, too.
    pub mounts: Vec<PathBuf>,
    /// The network, if it has one.
    pub network: Option<Network>,
    /// The far ends of COM1, COM2, ... in this order.
    pub ports: Vec<Port>,
    /// A plugin's file and options, as `-plugin` takes them.
    pub plugin: Option<OsString>,
}

impl Qemu {
    /// Returns the arguments of the program.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments = Vec::new();
        self.push_machine(&mut arguments);
        self.push_ports(&mut arguments);
        self.push_boot(&mut arguments);
        self.push_disk(&mut arguments);
        self.push_host_files(&mut arguments);
        self.push_network(&mut arguments);
        arguments.extend(self.plugin.iter().flat_map(|plugin| ["-plugin".into(), plugin.clone()]));
        arguments
    }

    fn push_machine(&self, arguments: &mut Vec<OsString>) {
        let Machine { cpus, memory, accel, cpu_model, gdb } = self.machine;
        extend(arguments, &["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        let board = if self.shared_memory { "q35,memory-backend=ram" } else { "q35" };
        extend(arguments, &["-machine", board, "-cpu", cpu_model]);
        if self.shared_memory {
            let memory = format!("memory-backend-memfd,id=ram,size={},share=on", megabytes(memory));
            extend(arguments, &["-object", &memory]);
        }
        extend(arguments, accel.arguments());
        extend(arguments, &["-smp", &cpus.to_string(), "-m", &megabytes(memory)]);
        extend(arguments, &["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]);
        arguments.extend(gdb.into_iter().flat_map(Gdb::options).map(OsString::from));
    }

    fn push_ports(&self, arguments: &mut Vec<OsString>) {
        for (number, port) in self.ports.iter().enumerate() {
            let backend = port.to_string();
            let (kind, rest) = backend.split_once(',').expect("every port has a parameter");
            extend(arguments, &["-chardev", &format!("{kind},id=com{},{rest}", number + 1)]);
            extend(arguments, &["-serial", &format!("chardev:com{}", number + 1)]);
        }
    }

    fn push_boot(&self, arguments: &mut Vec<OsString>) {
        arguments.extend(["-kernel".into(), self.boot.kernel.clone().into()]);
        arguments.extend(["-initrd".into(), self.boot.initrd.clone().into()]);
        extend(arguments, &["-append", &self.boot.command_line]);
    }

    /// Adds an NVMe disk, because the stock kernel has its driver without a module.
    fn push_disk(&self, arguments: &mut Vec<OsString>) {
        let Some(disk) = &self.disk else { return };
        let drive = format!("file={},if=none,id=files,format=raw,readonly=on", escaped(disk));
        extend(arguments, &["-drive", &drive, "-device", "nvme,drive=files,serial=files"]);
    }

    /// Adds the device by which the guest reads the host's files, and those for directories that it may
    /// change. QEMU opens no other files for writing.
    fn push_host_files(&self, arguments: &mut Vec<OsString>) {
        if self.host_files {
            push_share(arguments, "host", Path::new("/"), ",readonly=on");
        }
        for (number, mount) in self.mounts.iter().enumerate() {
            push_share(arguments, &format!("rw{number}"), mount, "");
        }
    }

    /// Adds the network card, and QEMU's router behind it. Without them QEMU opens no port.
    fn push_network(&self, arguments: &mut Vec<OsString>) {
        let Some(network) = &self.network else { return };
        // The firmware does not boot from it.
        let card = "virtio-net-pci,netdev=net,disable-legacy=on,romfile=";
        extend(arguments, &["-netdev", &network.option(), "-device", card]);
    }

    /// Returns the command as one line for a shell.
    pub fn shell_line(&self) -> String {
        let words = self.arguments().into_iter().map(|word| quote(&word.to_string_lossy()));
        std::iter::once(quote(&program())).chain(words).collect::<Vec<_>>().join(" ")
    }
}

/// Adds a device for the files below `path`.
fn push_share(arguments: &mut Vec<OsString>, id: &str, path: &Path, more: &str) {
    let files = format!("local,id={id},path={},security_model=none,multidevs=remap{more}", escaped(path));
    let device = format!("virtio-9p-pci,fsdev={id},mount_tag={id},disable-legacy=on");
    extend(arguments, &["-fsdev", &files, "-device", &device]);
}

fn extend(arguments: &mut Vec<OsString>, words: &[&str]) {
    arguments.extend(words.iter().map(OsString::from));
}

/// Formats a size for `-m`.
fn megabytes(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{}M", bytes >> 20) } else { format!("{}k", bytes >> 10) }
}

/// Quotes a word for a shell if that is needed.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qemu(accel: Accel) -> Qemu {
        let machine = Machine { cpus: 4, memory: 512 << 20, accel, cpu_model: "max", gdb: None };
        let boot = Boot { kernel: "k".into(), initrd: "i".into(), command_line: "vm=radix it's".into() };
        let ports = vec![Port::Inherited(3), Port::File("a,b".into()), Port::Appended("log".into())];
        Qemu {
            machine,
            shared_memory: false,
            boot,
            disk: None,
            host_files: false,
            mounts: Vec::new(),
            network: None,
            ports,
            plugin: None,
        }
    }

    #[test]
    fn the_line_names_machine_ports_and_boot() {
        let line = qemu(Accel::Tcg).shell_line();
        assert!(line.starts_with("qemu-system-x86_64 -nodefaults"), "{line}");
        assert!(line.contains("-accel tcg,thread=multi -smp 4 -m 512M"), "{line}");
        assert!(line.contains("-chardev socket,id=com1,fd=3 -serial chardev:com1"), "{line}");
        assert!(line.contains("-chardev file,id=com2,path=a,,b "), "{line}");
        assert!(line.contains("-chardev file,id=com3,path=log,append=on "), "{line}");
        assert!(line.ends_with(r"-kernel k -initrd i -append 'vm=radix it'\''s'"), "{line}");
    }

    #[test]
    fn a_plugin_comes_last() {
        let qemu = Qemu { plugin: Some("m.so,cpus=4".into()), ..qemu(Accel::Tcg) };
        assert!(qemu.shell_line().ends_with("-plugin m.so,cpus=4"), "{}", qemu.shell_line());
    }

    #[test]
    fn a_disk_is_only_read() {
        let line = Qemu { disk: Some("a,b".into()), ..qemu(Accel::Tcg) }.shell_line();
        assert!(
            line.contains("-drive file=a,,b,if=none,id=files,format=raw,readonly=on -device nvme,"),
            "{line}"
        );
    }

    #[test]
    fn a_network_is_there_if_it_is_asked_for() {
        assert!(!qemu(Accel::Tcg).shell_line().contains("net"));
        let network = Network::parse(&["8080:80".to_owned()], false).unwrap();
        let line = Qemu { network, ..qemu(Accel::Tcg) }.shell_line();
        assert!(
            line.contains("restrict=on,hostfwd=tcp:127.0.0.1:8080-10.0.2.15:80 -device virtio-net-pci,"),
            "{line}"
        );
    }

    #[test]
    fn memory_that_a_plugin_reads_has_a_name() {
        let line = Qemu { shared_memory: true, ..qemu(Accel::Tcg) }.shell_line();
        assert!(line.contains("-machine q35,memory-backend=ram"), "{line}");
        assert!(line.contains("-object memory-backend-memfd,id=ram,size="), "{line}");
    }

    #[test]
    fn counting_runs_on_the_instruction_clock() {
        assert!(qemu(Accel::Counting).shell_line().contains("-icount shift=0"));
    }
}
