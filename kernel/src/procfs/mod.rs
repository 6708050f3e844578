//! `/proc` and `/sys`, as far as programs and C libraries need them.
#![deny(unsafe_code, clippy::indexing_slicing, clippy::unwrap_used)]

mod descriptors;
mod digits;
mod listing;
mod maps;
mod memory_file;
mod page_counts;
mod process;
mod texts;

use core::fmt::{self, Write};

use abi::Errno;
use abi::ipc::{MQ_MSG_MAX, MQ_MSGSIZE_MAX, MQ_QUEUES_MAX};
use percore::CoreId;

use crate::counters::Counter;
use crate::fs::node::{Node, NodeRef, Volume};
use crate::fs::{BadImage, folder, tree};
use crate::mm::fallible::Text;
use crate::mm::statistics;
use crate::process::ipc::{messages, segment, semaphores};
use crate::process::pid;
use crate::{arch, mm, options, sched};

use page_counts::PageCounts;
use process::Processes;

/// Adds everything below `root`.
pub fn populate(root: &NodeRef) -> Result<(), BadImage> {
    let fixed = Node::directory(Volume::System, 0o555)?.into_static()?;
    fixed.set_parent(root, b"proc");
    for (name, write) in MACHINE {
        generated(&fixed, name, *write)?;
    }
    let counts = Node::file(Volume::System, 0o400, PageCounts)?;
    tree::attach(&fixed, b"kpagecount", &counts.into_static()?)?;
    generated(&folder::directory(&fixed, b"radixvm")?, b"counters", counter_lines)?;
    let ipc = folder::directory(&fixed, b"sysvipc")?;
    generated(&ipc, b"msg", messages::list)?;
    generated(&ipc, b"sem", semaphores::list)?;
    generated(&ipc, b"shm", segment::list)?;
    let settings = folder::directory(&fixed, b"sys")?;
    generated(&folder::directory(&settings, b"vm")?, b"overcommit_memory", |text| text.write_str("1\n"))?;
    generated(&folder::directory(&settings, b"kernel")?, b"pid_max", |text| {
        writeln!(text, "{}", pid::LIMIT)
    })?;
    let queues = below(&settings, &[b"fs", b"mqueue"])?;
    for name in [&b"msg_max"[..], b"msg_default"] {
        generated(&queues, name, |text| writeln!(text, "{MQ_MSG_MAX}"))?;
    }
    for name in [&b"msgsize_max"[..], b"msgsize_default"] {
        generated(&queues, name, |text| writeln!(text, "{MQ_MSGSIZE_MAX}"))?;
    }
    generated(&queues, b"queues_max", |text| writeln!(text, "{MQ_QUEUES_MAX}"))?;
    tree::freeze(&fixed)?;
    tree::attach(root, b"proc", &folder::node(Processes { fixed })?.into_static()?)?;
    let cpus = below(root, &[b"sys", b"devices", b"system", b"cpu"])?;
    for name in [&b"online"[..], b"possible", b"present"] {
        generated(&cpus, name, cpu_range)?;
    }
    Ok(())
}

/// Writes a text.
type Fixed = fn(&mut Text) -> fmt::Result;

const MACHINE: &[(&[u8], Fixed)] = &[
    (b"cpuinfo", cpuinfo),
    (b"loadavg", loadavg),
    (b"meminfo", meminfo),
    (b"mounts", mounts),
    (b"uptime", |text| writeln!(text, "{} 0", arch::now_ns() / 1_000_000_000)),
];

fn below(parent: &NodeRef, names: &[&[u8]]) -> Result<NodeRef, Errno> {
    names.iter().try_fold(parent.clone(), |at, name| folder::directory(&at, name))
}

fn generated(parent: &NodeRef, name: &[u8], write: Fixed) -> Result<(), Errno> {
    tree::attach(parent, name, &folder::text(write)?.into_static()?)
}

/// Writes the volumes of the tree of names, as far as a program can tell them apart.
fn mounts(text: &mut Text) -> fmt::Result {
    let root = if options::get().host_files { "host / overlay rw 0 0" } else { "rootfs / rootfs ro 0 0" };
    let tmp = if options::get().host_files { "" } else { "tmpfs /tmp tmpfs rw 0 0\n" };
    write!(text, "{root}\nproc /proc proc rw 0 0\nsysfs /sys sysfs rw 0 0\ndevtmpfs /dev devtmpfs rw 0 0\n")?;
    write!(text, "tmpfs /dev/shm tmpfs rw 0 0\n{tmp}")
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
