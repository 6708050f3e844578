//! The texts of `/proc/PID`.

use core::fmt::{self, Write};

use abi::process::{RLIM_INFINITY, RLIMIT_NLIMITS};
use sync::atomic::Ordering;
use vm::{Detail, PAGE_SIZE};

use crate::bytes::after_mut;
use crate::mm::fallible::{Text, copied};
use crate::process::{AUXV_BYTES, Memory, Pages, Process, TICKS_PER_SECOND, ptrace, remote};
use crate::sched::{self, Task};
use crate::users::Credentials;

const NS_PER_TICK: u64 = 1_000_000_000 / TICKS_PER_SECOND;

fn state(process: &Process) -> (char, &'static str) {
    match () {
        () if process.has_ended() => ('Z', "zombie"),
        () if process.any_thread().is_some_and(|task| ptrace::is_stopped(&task)) => ('t', "tracing stop"),
        () if process.is_stopped() => ('T', "stopped"),
        () if process.is_running() => ('R', "running"),
        () => ('S', "sleeping"),
    }
}

/// Writes its arguments.
pub fn cmdline(process: &Process, text: &mut Text) -> fmt::Result {
    if let Some(memory) = process.memory() {
        text.0 = copied(&memory.program.argv).map_err(|_| fmt::Error)?;
    }
    Ok(())
}

/// Writes the auxiliary vector of a program, as it is in memory.
pub fn auxv(memory: &Memory, text: &mut Text) -> fmt::Result {
    let (mut bytes, mut done) = ([0; AUXV_BYTES], 0);
    while done < AUXV_BYTES {
        let rest = after_mut(&mut bytes, done);
        match remote::read(memory, memory.program.auxv + done as u64, rest) {
            Ok(part) => done += part,
            Err(_) => return Ok(()),
        }
    }
    text.0 = copied(&bytes).map_err(|_| fmt::Error)?;
    Ok(())
}

/// Writes the environment of a program.
pub fn environ(memory: &Memory, text: &mut Text) -> fmt::Result {
    text.0 = copied(&memory.program.envp).map_err(|_| fmt::Error)?;
    Ok(())
}

/// Writes the name of a thread.
pub fn name(task: &Task, text: &mut Text) -> fmt::Result {
    write_name(&task.thread.name.lock()[..], text)?;
    text.write_char('\n')
}

fn write_name(name: &[u8], text: &mut Text) -> fmt::Result {
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    text.0.try_reserve(name.len()).map_err(|_| fmt::Error)?;
    text.0.extend_from_slice(name);
    Ok(())
}

/// Writes the name of its main thread, or the last name of that if it has ended.
pub fn comm(process: &Process, text: &mut Text) -> fmt::Result {
    write_name(&process.name(), text)?;
    text.write_char('\n')
}

/// Writes the personality of its main thread, or of another one if that has ended.
pub fn personality(process: &Process, text: &mut Text) -> fmt::Result {
    let personality = process.any_thread().map_or(0, |task| task.thread.personality.load(Ordering::Relaxed));
    writeln!(text, "{personality:08x}")
}

/// The names and the units of the limits, as on Linux.
const LIMITS: [(&str, &str); RLIMIT_NLIMITS as usize] = [
    ("cpu time", "seconds"),
    ("file size", "bytes"),
    ("data size", "bytes"),
    ("stack size", "bytes"),
    ("core file size", "bytes"),
    ("resident set", "bytes"),
    ("processes", "processes"),
    ("open files", "files"),
    ("locked memory", "bytes"),
    ("address space", "bytes"),
    ("file locks", "locks"),
    ("pending signals", "signals"),
    ("msgqueue size", "bytes"),
    ("nice priority", ""),
    ("realtime priority", ""),
    ("realtime timeout", "us"),
];

/// Writes the limits of its resources.
pub fn limits(process: &Process, text: &mut Text) -> fmt::Result {
    writeln!(text, "{:<25} {:<20} {:<20} {:<10}", "Limit", "Soft Limit", "Hard Limit", "Units")?;
    let limits =
        LIMITS.iter().zip(0..).filter_map(|(names, number)| Some((names, process.limits.get(number)?)));
    for ((name, unit), limit) in limits {
        write!(text, "Max {name:<21} ")?;
        for bound in [limit.current, limit.maximum] {
            match bound {
                RLIM_INFINITY => write!(text, "{:<20} ", "unlimited")?,
                _ => write!(text, "{bound:<20} ")?,
            }
        }
        if !unit.is_empty() {
            write!(text, "{unit:<10}")?;
        }
        text.write_char('\n')?;
    }
    Ok(())
}

fn parent_of(process: &Process) -> u32 {
    process.parent().map_or(0, |parent| parent.pid())
}

/// Writes `PID (NAME) STATE ...`: 52 fields, of which the unknown ones are 0.
pub fn stat(process: &Process, text: &mut Text) -> fmt::Result {
    let (pages, usage, children) = (process.page_counts(), process.usage(), process.children_usage.get());
    write!(text, "{} (", process.pid())?;
    write_name(&process.name(), text)?;
    let (parent, group, session) = (parent_of(process), process.group(), process.session());
    write!(text, ") {} {parent} {group} {session} 0 -1 0", state(process).0)?;
    write!(text, " {} {} 0 0", usage.faults, children.faults)?;
    write!(text, " {} 0 {} 0 20 0", usage.cpu_ns / NS_PER_TICK, children.cpu_ns / NS_PER_TICK)?;
    write!(text, " {} 0 0", process.count_threads())?;
    write!(text, " {} {}", pages.mapped * PAGE_SIZE, pages.resident())?;
    text.write_str(" 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
}

/// Writes numbers of pages: all, resident, shared, of code, of libraries (always 0), of data.
pub fn statm(process: &Process, text: &mut Text) -> fmt::Result {
    let (counts, pages) = (process.page_counts(), process.pages(Detail::Mappings));
    let (resident, data) = (counts.resident(), pages.data + pages.stack);
    writeln!(text, "{} {resident} {} {} 0 {data} 0", counts.mapped, counts.shown, pages.code)
}

/// Writes the same and more in readable form.
pub fn status(process: &Process, text: &mut Text) -> fmt::Result {
    text.write_str("Name:\t")?;
    write_name(&process.name(), text)?;
    let (state, word) = state(process);
    let (pid, pages) = (process.pid(), process.pages(Detail::Resident));
    write!(text, "\nState:\t{state} ({word})\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t{}\n", parent_of(process))?;
    let tracer = process.any_thread().map_or(0, |task| ptrace::tracer_of(&task));
    writeln!(text, "TracerPid:\t{tracer}")?;
    write_users(process, text)?;
    write_pages(&pages, process.table_pages(), text)?;
    writeln!(text, "Threads:\t{}", process.count_threads())?;
    write_capabilities(&credentials_of(process), text)
}

/// Returns the credentials of its main thread, or root's if it has ended.
fn credentials_of(process: &Process) -> Credentials {
    process.any_thread().map_or_else(|| Credentials::root().clone(), |task| task.thread.credentials.get())
}

fn write_users(process: &Process, text: &mut Text) -> fmt::Result {
    let of = credentials_of(process);
    for (name, ids) in [("Uid", of.users), ("Gid", of.groups)] {
        writeln!(text, "{name}:\t{}\t{}\t{}\t{}", ids.real, ids.effective, ids.saved, ids.fs)?;
    }
    text.write_str("Groups:\t")?;
    of.supplementary().iter().try_for_each(|group| write!(text, "{group} "))?;
    text.write_char('\n')
}

fn write_capabilities(of: &Credentials, text: &mut Text) -> fmt::Result {
    let sets = &of.capabilities;
    let lines = [
        ("CapInh", sets.inheritable),
        ("CapPrm", sets.permitted),
        ("CapEff", sets.effective),
        ("CapBnd", sets.bounding),
        ("CapAmb", sets.ambient),
    ];
    lines.into_iter().try_for_each(|(name, set)| writeln!(text, "{name}:\t{set:016x}"))?;
    writeln!(text, "NoNewPrivs:\t{}", u8::from(of.no_new_privs))
}

fn write_pages(pages: &Pages, tables: u64, text: &mut Text) -> fmt::Result {
    let lines = [
        ("VmSize", pages.mapped),
        ("VmLck", pages.locked),
        ("VmRSS", pages.resident()),
        ("RssAnon", pages.anonymous),
        ("RssFile", pages.file),
        ("RssShmem", pages.shared),
        ("VmData", pages.data),
        ("VmStk", pages.stack),
        ("VmExe", pages.code),
        ("VmLib", pages.library),
        ("VmPTE", tables),
        ("VmSwap", pages.compressed),
    ];
    let kib = |pages: u64| pages * (PAGE_SIZE / 1024);
    lines.into_iter().try_for_each(|(name, pages)| writeln!(text, "{name}:\t{:8} kB", kib(pages)))
}

/// Writes the number of the process that reads.
pub fn own_process(text: &mut Text) -> fmt::Result {
    sched::with_current(|task| write!(text, "{}", task.process().pid()))
}

/// Writes the path of the thread that reads, below `/proc`.
pub fn own_thread(text: &mut Text) -> fmt::Result {
    sched::with_current(|task| write!(text, "{}/task/{}", task.process().pid(), task.tid()))
}
