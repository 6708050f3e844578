//! The control port. One JSON object per line is written to it. Standard input arrives on it and is read by
//! `fs::console`.
//!
//! A line is written straight to the port, piece by piece. So nothing here allocates, and all of it may be
//! called at any time outside interrupt handlers, also from a panic. [`line`] explains why the lines of
//! several cores do not mix.

mod line;

use alloc::vec::Vec;
use core::fmt::Display;

use abi::Errno;
use percore::CoreId;

use self::line::Line;
use crate::arch::{self, TrapFrame};

/// The bytes of the stack that a crash report contains at most.
const STACK_SHOWN: u64 = 32 << 10;

/// The way a program ended.
#[derive(Clone, Copy, Debug)]
pub enum Ended {
    /// By `exit` with this status.
    Status(u8),
    /// By this signal.
    Signal(u32),
}

/// A thread that died of its own fault.
#[derive(Clone, Copy, Debug)]
pub struct Crash<'a> {
    /// The signal that killed it.
    pub signal: u32,
    /// The path of its program, or empty if there is no memory for it.
    pub program: &'a [u8],
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The address that it accessed.
    pub address: u64,
    /// "read", "write" or "exec".
    pub access: &'a str,
    /// Its registers.
    pub frame: &'a TrapFrame,
    /// The difference between addresses in memory and those in the program's file.
    pub load_bias: u64,
}

/// Reports that the kernel runs on `cpus` cores.
pub fn booted(cpus: usize, memory_bytes: u64) {
    Line::new("booted").number("cpus", cpus as u64).number("memory_bytes", memory_bytes);
}

/// Requests more of the program's standard input.
pub fn request_input() {
    Line::new("stdin");
}

/// Reports a warning.
pub fn warn(text: impl Display) {
    Line::new("log").text("level", "warn").text("text", text);
}

/// Reports a system call that is not implemented.
pub fn unknown_syscall(number: u64, args: [u64; 6]) {
    Line::new("unknown_syscall").number("number", number).list("args", args.into_iter(), Line::hex_value);
}

/// Reports that a file's changes could not be written back to the host.
pub fn unwritten(name: &[u8], error: Errno) {
    Line::new("unwritten").text("name", name.escape_ascii()).text("text", error);
}

/// Reports a system call of thread `tid`, whose command is `name`: its arguments, those of them that are
/// strings, and its result, or `None` before the call.
pub fn call(
    tid: u32,
    name: &[u8],
    number: u64,
    args: &[u64; 6],
    strings: &[Option<Vec<u8>>; 6],
    result: Option<i64>,
) {
    let mut line = Line::new("call");
    line.number("tid", tid.into()).text("name", prefix_to_nul(name).escape_ascii()).number("number", number);
    line.list("args", args.iter().copied(), Line::hex_value);
    for (at, string) in strings.iter().enumerate() {
        if let Some(string) = string {
            line.text(STRING_KEYS.get(at).copied().unwrap_or_default(), string.escape_ascii());
        }
    }
    if let Some(result) = result {
        line.list("result", [result as u64].into_iter(), Line::signed_value);
    }
}

/// The keys of the arguments that are strings.
const STRING_KEYS: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];

fn prefix_to_nul(name: &[u8]) -> &[u8] {
    name.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Reports that memory ran out and that a process is killed for it.
pub fn oom(text: impl Display) {
    Line::new("oom").text("text", text);
}

/// Reports that the kernel failed.
pub fn panic(text: impl Display) {
    Line::urgent("panic").text("text", text);
}

/// Reports that the program cannot be run. No other line follows.
pub fn refused(why: impl Display) {
    Line::new("refused").text("text", why);
}

/// Reports how the program ended.
pub fn exit(how: Ended) {
    let mut line = Line::new("exit");
    match how {
        Ended::Status(status) => line.number("status", status.into()),
        Ended::Signal(signal) => line.number("signal", signal.into()),
    };
}

/// Reports every counter, the leaks of the program, and how deep kernel stacks were used. `each` is called
/// with a function that takes a counter's name and its count by core.
pub fn stats(
    each: impl FnOnce(&mut dyn FnMut(&'static str, &dyn Fn(CoreId) -> u64)),
    leaked_frames: u64,
    leaked_nodes: u64,
) {
    let mut line = Line::new("stats");
    line.begin("counters", '{');
    each(&mut |name, count| {
        line.list(name, (0..arch::cores()).map(|core| count(CoreId::new(core))), Line::signed_value);
    });
    line.end('}').number("leaked_frames", leaked_frames).number("leaked_nodes", leaked_nodes);
    line.number("deepest_stack", arch::KernelStack::deepest());
}

/// Reports the owners of physical memory. `each` is called with a function that takes a range and its kind.
pub fn owners(each: impl FnOnce(&mut dyn FnMut((u64, u64), &dyn Display))) {
    let mut line = Line::new("owners");
    line.begin("ranges", '[');
    each(&mut |range, kind| line.range(range, kind));
    line.end(']');
}

/// Reports that a thread crashed. `read` copies a part of its stack, and returns whether it could. It must
/// not wait for another core: the port is locked.
pub fn crash(crash: &Crash<'_>, read: impl Fn(&mut [u8], u64) -> bool) {
    let (frame, stack) = (crash.frame, crash.frame.rsp);
    let mut line = Line::new("crash");
    match str::from_utf8(crash.program) {
        Ok(path) => line.text("program", path),
        Err(_) => line.text("program", crash.program.escape_ascii()),
    };
    line.number("signal", crash.signal.into())
        .number("pid", crash.pid.into())
        .number("tid", crash.tid.into())
        .address("address", crash.address)
        .text("access", crash.access)
        .address("load_bias", crash.load_bias)
        .address("stack_base", stack);
    line.begin("registers", '{');
    registers(frame).into_iter().for_each(|(name, value)| {
        line.address(name, value);
    });
    line.end('}').begin("stack", '"').memory(stack, STACK_SHOWN, read).end('"');
}

fn registers(frame: &TrapFrame) -> [(&'static str, u64); 18] {
    [
        ("rip", frame.rip),
        ("rsp", frame.rsp),
        ("rbp", frame.rbp),
        ("rax", frame.rax),
        ("rbx", frame.rbx),
        ("rcx", frame.rcx),
        ("rdx", frame.rdx),
        ("rsi", frame.rsi),
        ("rdi", frame.rdi),
        ("r8", frame.r8),
        ("r9", frame.r9),
        ("r10", frame.r10),
        ("r11", frame.r11),
        ("r12", frame.r12),
        ("r13", frame.r13),
        ("r14", frame.r14),
        ("r15", frame.r15),
        ("rflags", frame.rflags),
    ]
}
