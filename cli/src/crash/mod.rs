//! The report about a program that dies of a fault: the address, the access, the instruction and the
//! backtrace.
//!
//! The kernel sends the registers and a piece of the stack. Everything else is derived here from the ELF
//! file.

mod instruction;
pub(crate) mod unwind;

use std::fs;
use std::path::Path;

use crate::guest::protocol::Crash;
use crate::guest::system::Job;
use crate::program::Program;
use crate::symbols::Symbols;
use crate::terminal;
use unwind::Frame;

/// SIGSYS, which no fault raises: with `--strict` a program dies of it by a call that is not supported.
const UNSUPPORTED: i32 = 31;

/// Returns the report for stderr about one of the programs of `job`.
pub fn report(crash: &Crash, job: &Job) -> String {
    let program = program(crash, job);
    let name = Path::new(&crash.program)
        .file_name()
        .map_or_else(|| job.program.name(), |name| name.to_string_lossy().into_owned());
    let mut text = format!("radixvm: {} died of {}\n", terminal::name(&name), headline(crash));
    text += &match crash.signal {
        UNSUPPORTED => format!("  call         {}\n", call(crash)),
        _ => format!("  address      {:#x}{}\n", crash.address, access(&crash.access)),
    };
    text += &match &program {
        Some(program) => located(crash, program),
        None => unlocated(crash),
    };
    text
}

/// Returns the program that died, if its file is known here.
fn program(crash: &Crash, job: &Job) -> Option<Program> {
    if crash.program.is_empty() || crash.program == job.place() {
        return Some(job.program.clone());
    }
    let path = crash.program.trim_start_matches('/');
    let found = job.files.iter().filter_map(|file_arg| file_arg.host_of(path)).find(|file| file.is_file())?;
    Some(Program { bytes: fs::read(&found).ok()?, path: found })
}

fn rip(crash: &Crash) -> u64 {
    crash.registers.get("rip").copied().unwrap_or(0)
}

fn located(crash: &Crash, program: &Program) -> String {
    let rip = rip(crash);
    let instruction = instruction::describe(&program.bytes, rip, rip.wrapping_sub(crash.load_bias));
    let calls = backtrace(crash, program);
    format!("  instruction  {instruction}\n  thread       {}\n  backtrace\n{calls}", crash.tid)
}

/// Reports a crash without the program's file. There are no names, and no unwind information.
fn unlocated(crash: &Crash) -> String {
    let (rip, path) = (rip(crash), terminal::name(&crash.program));
    format!(
        "  instruction  {rip:#x}\n  thread       {}\n  no backtrace: {path} was not handed over as a program\n",
        crash.tid
    )
}

fn backtrace(crash: &Crash, program: &Program) -> String {
    let symbols = Symbols::load(&program.path);
    let frames = unwind::frames(&program.bytes, crash);
    let describe = |frame: &Frame| symbols.describe(frame.lookup.wrapping_sub(crash.load_bias));
    let calls: Vec<Call> =
        frames.iter().map(|frame| Call { address: frame.address, text: describe(frame) }).collect();
    folded(&calls)
}

/// One line of a backtrace.
#[derive(PartialEq)]
struct Call {
    address: u64,
    text: String,
}

/// Formats the calls with numbers. A recursion is shown by its first call and the number of the others.
fn folded(calls: &[Call]) -> String {
    let mut number = 0;
    let mut text = String::new();
    for same in calls.chunk_by(Call::eq) {
        let shown = if same.len() > 2 { 1 } else { same.len() };
        for Call { address, text: described } in &same[..shown] {
            text += &format!("  {number:>4}: {address:#014x} {described}\n");
            number += 1;
        }
        if shown < same.len() {
            number += same.len() - shown;
            text += &format!("        … {} more of the same\n", same.len() - shown);
        }
    }
    text
}

fn headline(crash: &Crash) -> String {
    let (name, meaning) = match crash.signal {
        4 => ("SIGILL", "an invalid instruction"),
        5 => ("SIGTRAP", "a breakpoint"),
        6 => ("SIGABRT", "its own abort"),
        7 => ("SIGBUS", "an access that memory cannot serve"),
        8 => ("SIGFPE", "an arithmetic fault"),
        UNSUPPORTED => ("SIGSYS", "a system call that RadixVM does not support"),
        11 => ("SIGSEGV", "an access to memory it does not have"),
        number => return format!("signal {number}"),
    };
    format!("{name}: {meaning}")
}

/// Describes the call of a program that made one which is not supported.
fn call(crash: &Crash) -> String {
    let register = |name| crash.registers.get(name).copied().unwrap_or(0);
    let number = register("rax");
    let name = abi::syscalls::find(number).map_or("?", |entry| entry.name);
    let arguments = ["rdi", "rsi", "rdx", "r10", "r8", "r9"].map(|name| format!("{:#x}", register(name)));
    format!("{name} (number {number}): {}", arguments.join(", "))
}

fn access(kind: &str) -> String {
    match kind {
        "" => String::new(),
        "exec" => " (executed)".to_owned(),
        "write" => " (written)".to_owned(),
        kind => format!(" ({kind})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recursion_is_folded_and_the_numbers_go_on() {
        let call = |name: &str| Call { address: 0x1000, text: name.to_owned() };
        let names = ["leaf", "twice", "twice", "deep", "deep", "deep", "deep", "main"];
        let text = folded(&names.map(call));
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        let expected = [
            "0: 0x000000001000 leaf",
            "1: 0x000000001000 twice",
            "2: 0x000000001000 twice",
            "3: 0x000000001000 deep",
            "… 3 more of the same",
            "7: 0x000000001000 main",
        ];
        assert_eq!(lines, expected);
    }
}
