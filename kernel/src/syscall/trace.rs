//! System calls of traced tasks, and those that are reported to the host (`trace` on the kernel's command
//! line).

use alloc::vec::Vec;

use abi::signatures::{may_not_return, signature};

use crate::arch::TrapFrame;
use crate::control;
use crate::mm::user;
use crate::options;
use crate::process::ptrace;
use crate::sched::{self, attention};

/// The most bytes of a string that are shown.
const SHOWN: usize = 256;

/// Handles the call in `frame`. The entry that leads here is used only while a task is traced, or all calls
/// are reported.
pub fn dispatch(frame: &mut TrapFrame) {
    let call = if options::get().trace { dispatch_and_report } else { super::dispatch };
    match sched::with_current(|task| task.attention.has(attention::TRACED)) {
        true => ptrace::traced_call(frame, call),
        false => call(frame),
    }
}

/// Handles the call and reports it: before, if it may not return, and otherwise after.
fn dispatch_and_report(frame: &mut TrapFrame) {
    let (number, args) = (frame.number(), frame.args());
    // Before the call, which may change the memory.
    let strings = strings(number, &args);
    if may_not_return(number) {
        report(number, &args, &strings, None);
    }
    super::dispatch(frame);
    let result = frame.rax as i64;
    if !may_not_return(number) || result < 0 {
        report(number, &args, &strings, Some(result));
    }
}

/// Returns the arguments that are strings, as far as they can be read.
fn strings(number: u64, args: &[u64; 6]) -> [Option<Vec<u8>>; 6] {
    let mut letters = signature(number).bytes();
    args.map(|arg| {
        let is_string = letters.next() == Some(b's') && arg != 0;
        is_string.then(|| user::read_cstr(arg, SHOWN).ok()).flatten()
    })
}

fn report(number: u64, args: &[u64; 6], strings: &[Option<Vec<u8>>; 6], result: Option<i64>) {
    sched::with_current(|task| {
        let name = *task.thread.name.lock();
        control::call(task.tid(), &name, number, args, strings, result);
    });
}
