//! `/dev`, `/proc` and `/sys`: what programs and C libraries look for there.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use abi::Errno;
use abi::file::{S_IFIFO, S_IFLNK};
use percore::CoreId;

use super::device::Device;
use super::fallible::Text;
use super::image::{self, BadImage};
use super::node::{Body, Listed, Node, Volume};
use super::open_file::Snapshot;
use super::{path, tree};
use crate::{arch, counters, mm, process, sched};

/// Puts everything below `root`. `archive` is the boot image, which knows the program's name and arguments.
pub fn populate(root: &Arc<Node>, archive: &'static [u8]) -> Result<(), BadImage> {
    devices(&directory(root, b"dev")?)?;
    let proc = directory(root, b"proc")?;
    for (name, write) in MACHINE {
        generated(&proc, name, *write)?;
    }
    let program = image::private(archive, b".radixvm/program").unwrap_or_default();
    let program = program.strip_suffix(b"\0").unwrap_or(program);
    this_process(&directory(&proc, b"self")?, program)?;
    generated(&directory(&proc, b"radixvm")?, b"counters", counter_lines)?;
    generated(&below(&proc, &[b"sys", b"vm"])?, b"overcommit_memory", |text| text.write_str("0\n"))?;
    let cpus = below(root, &[b"sys", b"devices", b"system", b"cpu"])?;
    for name in [&b"online"[..], b"possible", b"present"] {
        generated(&cpus, name, cpu_range)?;
    }
    Ok(())
}

type Writer = fn(&mut Text) -> fmt::Result;

const MACHINE: &[(&[u8], Writer)] = &[
    (b"cpuinfo", cpuinfo),
    (b"meminfo", meminfo),
    (b"uptime", |text| writeln!(text, "{} 0", arch::now_ns() / 1_000_000_000)),
];

fn devices(dev: &Arc<Node>) -> Result<(), Errno> {
    let files: [(&[u8], Device); 5] = [
        (b"null", Device::Null),
        (b"zero", Device::Zero),
        (b"full", Device::Full),
        (b"random", Device::Random),
        (b"urandom", Device::Random),
    ];
    for (name, device) in files {
        tree::attach(dev, name, &Node::file(Volume::System, 0o666, device)?)?;
    }
    let links: [(&[u8], &[u8]); 4] = [
        (b"fd", b"/proc/self/fd"),
        (b"stdin", b"/proc/self/fd/0"),
        (b"stdout", b"/proc/self/fd/1"),
        (b"stderr", b"/proc/self/fd/2"),
    ];
    links
        .into_iter()
        .try_for_each(|(name, target)| tree::attach(dev, name, &Node::link(Volume::System, target)?))
}

fn this_process(directory: &Arc<Node>, program: &[u8]) -> Result<(), Errno> {
    let slash: &[u8] = if program.starts_with(b"/") { b"" } else { b"/" };
    let mut path = super::fallible::empty(program.len() + 1)?;
    path.extend_from_slice(slash);
    path.extend_from_slice(program);
    tree::attach(directory, b"exe", &Node::link(Volume::System, &path)?)?;
    tree::attach(directory, b"fd", &Node::new(Volume::System, 0o500, Body::Descriptors)?)?;
    generated(directory, b"maps", main_stack)?;
    generated(directory, b"cmdline", |text| raw(text, super::boot_file(".radixvm/argv")))?;
    generated(directory, b"environ", |text| raw(text, super::boot_file(".radixvm/envp")))
}

fn directory(parent: &Arc<Node>, name: &[u8]) -> Result<Arc<Node>, Errno> {
    let made = Node::directory(Volume::System, 0o755)?;
    tree::attach(parent, name, &made)?;
    Ok(made)
}

fn below(parent: &Arc<Node>, names: &[&[u8]]) -> Result<Arc<Node>, Errno> {
    names.iter().try_fold(parent.clone(), |at, name| directory(&at, name))
}

fn generated(parent: &Arc<Node>, name: &[u8], write: Writer) -> Result<(), Errno> {
    tree::attach(parent, name, &Node::new(Volume::System, 0o444, Body::Generated(write))?)
}

/// `node` as it is now.
pub fn snapshot(node: &Node, write: Writer) -> Result<Arc<Node>, Errno> {
    let mut text = Text::default();
    write(&mut text).map_err(|_| Errno::ENOMEM)?;
    Snapshot::node(text, node.permissions())
}

/// The link called `name` (a number) in `/proc/self/fd`.
pub fn descriptor(name: &[u8]) -> Result<Arc<Node>, Errno> {
    let fd = core::str::from_utf8(name).ok().and_then(|name| name.parse().ok()).ok_or(Errno::ENOENT)?;
    let file = sched::with_current(|task| task.shared().files.get(fd)).map_err(|_| Errno::ENOENT)?;
    Node::new(Volume::System, 0o700, Body::Descriptor(file.node().clone()))
}

/// What such a link says of the open file `node`.
pub fn describe(node: &Arc<Node>) -> Result<Vec<u8>, Errno> {
    if node.is_directory() {
        return path::of(node);
    }
    let kind = if node.kind() == S_IFIFO { "pipe" } else { "file" };
    let mut text = Text::default();
    write!(text, "{kind}:[{}]", node.stat().ino).map_err(|_| Errno::ENOMEM)?;
    Ok(text.0)
}

/// Shows the descriptors after `position`; descriptor `n` stands at `n + 3`, behind the two dots.
pub fn list_descriptors(position: u64, show: &mut dyn FnMut(Listed<'_>) -> bool) {
    let mut from = position.saturating_sub(2) as usize;
    while let Some(fd) = sched::with_current(|task| task.shared().files.next_open(from)) {
        let mut name = Decimal::default();
        // A descriptor has few digits.
        let _ = write!(name, "{fd}");
        let ino = fd as u64 + 1;
        if !show(Listed { name: name.bytes(), ino, kind: S_IFLNK, position: fd as u64 + 3 }) {
            break;
        }
        from = fd + 1;
    }
}

/// A small number's digits.
#[derive(Default)]
struct Decimal {
    digits: [u8; 20],
    len: usize,
}

impl Decimal {
    fn bytes(&self) -> &[u8] {
        &self.digits[..self.len]
    }
}

impl Write for Decimal {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.digits.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

fn raw(text: &mut Text, bytes: Result<&[u8], Errno>) -> fmt::Result {
    text.0 = super::fallible::copied(bytes.unwrap_or_default()).map_err(|_| fmt::Error)?;
    Ok(())
}

/// The one mapping that C libraries look up: the main thread's stack. The others are not listed.
fn main_stack(text: &mut Text) -> fmt::Result {
    let end = mm::user::USER_END;
    writeln!(text, "{:x}-{end:x} rw-p 00000000 00:00 0 [stack]", end - process::STACK_BYTES)
}

fn cpuinfo(text: &mut Text) -> fmt::Result {
    (0..arch::cores())
        .try_for_each(|core| write!(text, "processor\t: {core}\ncpu cores\t: {}\n\n", arch::cores()))
}

fn cpu_range(text: &mut Text) -> fmt::Result {
    match arch::cores() {
        1 => writeln!(text, "0"),
        cores => writeln!(text, "0-{}", cores - 1),
    }
}

fn meminfo(text: &mut Text) -> fmt::Result {
    let stats = mm::frames::stats();
    let kib = |frames: u64| frames * 4;
    writeln!(text, "MemTotal:       {:8} kB", kib(stats.total))?;
    writeln!(text, "MemFree:        {:8} kB", kib(stats.free))?;
    writeln!(text, "MemAvailable:   {:8} kB", kib(stats.free))
}

fn counter_lines(text: &mut Text) -> fmt::Result {
    let mut outcome = Ok(());
    let space = sched::with_current(|task| task.space().clone());
    counters::for_each(&space, &mut |name, count| {
        outcome = outcome.and_then(|()| counter_line(text, name, count));
    });
    outcome
}

fn counter_line(text: &mut Text, name: &str, count: &dyn Fn(CoreId) -> u64) -> fmt::Result {
    // A core that gives back more than it took counts below zero.
    let cores = || (0..arch::cores()).map(|core| count(CoreId::new(core)) as i64);
    write!(text, "{name} {}", cores().sum::<i64>())?;
    cores().try_for_each(|count| write!(text, " {count}"))?;
    text.write_str("\n")
}
