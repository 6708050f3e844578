//! What `/proc` says of a process.

use core::fmt::{self, Write};
use core::ops::ControlFlow;

use vm::{Flags, PAGE_SIZE, Prot, Region};

use crate::fs::fallible::{Text, copied};
use crate::mm::user::USER_END;
use crate::process::{Memory, Process, STACK_BYTES, TICKS_PER_SECOND};
use crate::sched::{self, Task};

const NS_PER_TICK: u64 = 1_000_000_000 / TICKS_PER_SECOND;

fn state(process: &Process) -> (char, &'static str) {
    match () {
        () if process.has_ended() => ('Z', "zombie"),
        () if process.is_stopped() => ('T', "stopped"),
        () if process.is_running() => ('R', "running"),
        () => ('S', "sleeping"),
    }
}

fn program(process: &Process, text: &mut Text, part: fn(&Memory) -> &[u8]) -> fmt::Result {
    if let Some(memory) = process.memory() {
        text.0 = copied(part(&memory)).map_err(|_| fmt::Error)?;
    }
    Ok(())
}

/// Its arguments.
pub fn cmdline(process: &Process, text: &mut Text) -> fmt::Result {
    program(process, text, |memory| &memory.program.argv)
}

/// Its environment.
pub fn environ(process: &Process, text: &mut Text) -> fmt::Result {
    program(process, text, |memory| &memory.program.envp)
}

/// The name of a thread.
pub fn name(task: &Task, text: &mut Text) -> fmt::Result {
    write_name(&task.thread.name.lock()[..], text)?;
    text.write_char('\n')
}

fn write_name(name: &[u8], text: &mut Text) -> fmt::Result {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    text.0.try_reserve(end).map_err(|_| fmt::Error)?;
    text.0.extend_from_slice(&name[..end]);
    Ok(())
}

/// The name of its main thread, as it was at the end if it has ended.
pub fn comm(process: &Process, text: &mut Text) -> fmt::Result {
    write_name(&process.name(), text)?;
    text.write_char('\n')
}

fn parent_of(process: &Process) -> u32 {
    process.parent().map_or(0, |parent| parent.pid())
}

/// `PID (NAME) STATE ...`: 52 fields, of which those that we do not know are 0.
pub fn stat(process: &Process, text: &mut Text) -> fmt::Result {
    let (pages, usage, children) = (process.pages(), process.usage(), process.children_usage.get());
    write!(text, "{} (", process.pid())?;
    write_name(&process.name(), text)?;
    let (parent, group, session) = (parent_of(process), process.group(), process.session());
    write!(text, ") {} {parent} {group} {session} 0 -1 0", state(process).0)?;
    write!(text, " {} {} 0 0", usage.faults, children.faults)?;
    write!(text, " {} 0 {} 0 20 0", usage.cpu_ns / NS_PER_TICK, children.cpu_ns / NS_PER_TICK)?;
    write!(text, " {} 0 0", process.count_threads())?;
    write!(text, " {} {}", pages.mapped * PAGE_SIZE, pages.resident)?;
    text.write_str(" 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
}

/// Pages: all, in memory, and what we do not know.
pub fn statm(process: &Process, text: &mut Text) -> fmt::Result {
    let pages = process.pages();
    writeln!(text, "{} {} 0 0 0 0 0", pages.mapped, pages.resident)
}

/// The same for people.
pub fn status(process: &Process, text: &mut Text) -> fmt::Result {
    text.write_str("Name:\t")?;
    write_name(&process.name(), text)?;
    let (state, word) = state(process);
    let (pid, pages) = (process.pid(), process.pages());
    write!(text, "\nState:\t{state} ({word})\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t{}\n", parent_of(process))?;
    text.write_str("TracerPid:\t0\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n")?;
    let kib = |pages: u64| pages * (PAGE_SIZE / 1024);
    write!(text, "VmSize:\t{:8} kB\nVmRSS:\t{:8} kB\n", kib(pages.mapped), kib(pages.resident))?;
    writeln!(text, "Threads:\t{}", process.count_threads())
}

/// What is mapped, without the names of files.
pub fn maps(process: &Process, text: &mut Text) -> fmt::Result {
    let Some(memory) = process.memory() else { return Ok(()) };
    let heap = memory.heap.bounds();
    let mut outcome = Ok(());
    memory.each_region(|region| {
        outcome = map_line(region, heap, text);
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    outcome
}

fn map_line(region: &Region, heap: (u64, u64), text: &mut Text) -> fmt::Result {
    let [start, end] = [region.pages.start(), region.pages.end()].map(|page| page.get() * PAGE_SIZE);
    let right = |right: Prot, letter| if region.mapping.prot().contains(right) { letter } else { '-' };
    let (read, write, execute) = (right(Prot::READ, 'r'), right(Prot::WRITE, 'w'), right(Prot::EXEC, 'x'));
    let kind = if region.mapping.flags().contains(Flags::SHARED) { 's' } else { 'p' };
    write!(text, "{start:x}-{end:x} {read}{write}{execute}{kind} 00000000 00:00 0")?;
    match () {
        () if start >= USER_END - STACK_BYTES => text.write_str(" [stack]\n"),
        () if heap.0 <= start && end <= heap.1 => text.write_str(" [heap]\n"),
        () => text.write_char('\n'),
    }
}

/// The number of the process that reads.
pub fn own_process(text: &mut Text) -> fmt::Result {
    sched::with_current(|task| write!(text, "{}", task.process().pid()))
}

/// The place of the thread that reads.
pub fn own_thread(text: &mut Text) -> fmt::Result {
    sched::with_current(|task| write!(text, "{}/task/{}", task.process().pid(), task.tid()))
}
