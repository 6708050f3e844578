//! What a person gets to see when a program dies of a wild access: where, doing what, and how it got there.
//!
//! The kernel sends registers and a piece of the stack; everything else is worked out here from the ELF file.

mod instruction;
mod unwind;

use crate::guest::protocol::Crash;
use crate::program::Program;
use crate::symbols::Symbols;
use unwind::Frame;

/// The report, ready for stderr.
pub fn report(crash: &Crash, program: &Program) -> String {
    let rip = crash.registers.get("rip").copied().unwrap_or(0);
    let instruction = instruction::describe(&program.bytes, rip, rip.wrapping_sub(crash.load_bias));
    let mut text = format!("radixvm: {} died of {}\n", program.name(), headline(crash));
    text += &format!("  address      {:#x}{}\n", crash.address, access(&crash.access));
    text += &format!("  instruction  {instruction}\n  thread       {}\n  backtrace\n", crash.tid);
    text + &backtrace(crash, program)
}

fn backtrace(crash: &Crash, program: &Program) -> String {
    let symbols = Symbols::load(&program.path);
    let frames = unwind::frames(&program.bytes, crash);
    let line = |(number, frame): (usize, &Frame)| {
        let at = frame.lookup.wrapping_sub(crash.load_bias);
        format!("  {number:>4}: {:#014x} {}\n", frame.address, symbols.describe(at))
    };
    frames.iter().enumerate().map(line).collect()
}

fn headline(crash: &Crash) -> String {
    let (name, meaning) = match crash.signal {
        4 => ("SIGILL", "an invalid instruction"),
        5 => ("SIGTRAP", "a breakpoint"),
        6 => ("SIGABRT", "its own abort"),
        7 => ("SIGBUS", "an access that memory cannot serve"),
        8 => ("SIGFPE", "an arithmetic fault"),
        11 => ("SIGSEGV", "an access to memory it does not have"),
        number => return format!("signal {number}"),
    };
    format!("{name}: {meaning}")
}

fn access(kind: &str) -> String {
    match kind {
        "" => String::new(),
        "exec" => " (executed)".to_owned(),
        "write" => " (written)".to_owned(),
        kind => format!(" ({kind})"),
    }
}
