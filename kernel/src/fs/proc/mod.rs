//! `/dev`, `/proc` and `/sys`, as far as programs and C libraries need them.

mod descriptors;
mod digits;
mod folder;
mod listing;
mod maps;
mod process;
mod texts;

use alloc::boxed::Box;
use core::fmt::{self, Write};

use abi::Errno;
use percore::CoreId;

use super::content::Content;
use super::device::Device;
use super::fail_alloc::FailAlloc;
use super::image::BadImage;
use super::node::{Body, Node, Volume};
use super::tree;
use crate::counters::Counter;
use crate::mm::fallible::Text;
use crate::mm::static_or_arc::StaticOrArc;
use crate::mm::statistics;
use crate::process::pid;
use crate::{arch, mm, options, sched};

pub use folder::Folder;

use process::Processes;

/// Adds everything below `root`.
pub fn populate(root: &StaticOrArc<Node>) -> Result<(), BadImage> {
    devices(&directory(root, b"dev")?)?;
    let fixed = Node::directory(Volume::System, 0o555)?.into_static()?;
    fixed.set_parent(root.downgrade());
    for (name, write) in MACHINE {
        generated(&fixed, name, *write)?;
    }
    generated(&directory(&fixed, b"radixvm")?, b"counters", counter_lines)?;
    let settings = directory(&fixed, b"sys")?;
    generated(&directory(&settings, b"vm")?, b"overcommit_memory", |text| text.write_str("1\n"))?;
    generated(&directory(&settings, b"kernel")?, b"pid_max", |text| writeln!(text, "{}", pid::LIMIT))?;
    tree::freeze(&fixed)?;
    tree::attach(root, b"proc", &folder::node(Processes { fixed })?.into_static()?)?;
    let cpus = below(root, &[b"sys", b"devices", b"system", b"cpu"])?;
    for name in [&b"online"[..], b"possible", b"present"] {
        generated(&cpus, name, cpu_range)?;
    }
    Ok(())
}

/// Generates the contents of a file when it is opened.
pub type Maker = dyn Fn() -> Result<Box<dyn Content>, Errno> + Send + Sync;

/// Writes a text.
type Fixed = fn(&mut Text) -> fmt::Result;

const MACHINE: &[(&[u8], Fixed)] = &[
    (b"cpuinfo", cpuinfo),
    (b"loadavg", loadavg),
    (b"meminfo", meminfo),
    (b"uptime", |text| writeln!(text, "{} 0", arch::now_ns() / 1_000_000_000)),
];

fn devices(dev: &StaticOrArc<Node>) -> Result<(), Errno> {
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
    if options::get().fail_alloc {
        tree::attach(dev, b"fail-alloc", &Node::file(Volume::System, 0o600, FailAlloc)?)?;
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

fn directory(parent: &StaticOrArc<Node>, name: &[u8]) -> Result<StaticOrArc<Node>, Errno> {
    let made = Node::directory(Volume::System, 0o755)?.into_static()?;
    tree::attach(parent, name, &made)?;
    Ok(made)
}

fn below(parent: &StaticOrArc<Node>, names: &[&[u8]]) -> Result<StaticOrArc<Node>, Errno> {
    names.iter().try_fold(parent.clone(), |at, name| directory(&at, name))
}

fn generated(parent: &StaticOrArc<Node>, name: &[u8], write: Fixed) -> Result<(), Errno> {
    tree::attach(parent, name, &folder::text(write)?)
}

/// Opens `node`, whose contents `make` generates.
pub fn opened(node: &Node, make: &Maker) -> Result<StaticOrArc<Node>, Errno> {
    Node::new(Volume::System, node.permissions(), Body::File(make()?))
}

/// Writes loads of zero, because the load is not measured.
fn loadavg(text: &mut Text) -> fmt::Result {
    writeln!(text, "0.00 0.00 0.00 1/{} 1", statistics::sum(Counter::Tasks))
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
    mm::epoch::settle();
    let stats = mm::frames::stats();
    let kib = |frames: u64| frames * 4;
    // Frames that would be reclaimed before any page of a program.
    let available = stats.free + mm::shrinkers::count() + arch::KernelStack::unused_frames();
    let (limit, pages) = (mm::compressed::limit(), mm::compressed::pages());
    let lines = [
        ("MemTotal:", stats.total),
        ("MemFree:", stats.free),
        ("MemAvailable:", available),
        ("SwapTotal:", limit),
        ("SwapFree:", limit.saturating_sub(pages)),
        ("Zswap:", mm::compressed::frames_used()),
        ("Zswapped:", pages),
    ];
    lines.into_iter().try_for_each(|(name, frames)| writeln!(text, "{name:<15} {:8} kB", kib(frames)))
}

fn counter_lines(text: &mut Text) -> fmt::Result {
    let mut outcome = Ok(());
    let space = sched::with_current(|task| task.space().clone());
    statistics::visit(&space, &mut |name, count| {
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
