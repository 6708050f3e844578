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

/// The calls, numbered; a recursion is shown by its first call and how often it came.
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
