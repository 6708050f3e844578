//! The control port: one JSON object per line out; standard input comes in on it (`fs::console` reads it).
//!
//! A line is written straight to the port, piece by piece, so nothing here allocates and all of it may be called
//! at any time outside interrupt handlers, from a panic too. Lines of several cores do not mix: a [`Line`] holds
//! [`PORT`]. Only a panic does not wait for it for ever, because the holder may be the code that panicked; it then
//! begins on a line of its own.

use core::fmt::{self, Display, Write};

use abi::Errno;
use percore::CoreId;
use sync::{SpinGuard, SpinLock};

use crate::arch::{self, TrapFrame, uart::Port};
use crate::mm::space::SpaceHandle;
use crate::{counters, mm};

/// Held while a line is written.
static PORT: SpinLock<()> = SpinLock::new(());

/// How often a panic tries for the port before it takes it.
const PATIENCE: u32 = 1 << 22;

/// The most bytes of the stack that a crash shows.
const STACK_SHOWN: u64 = 32 << 10;

/// How a program ended.
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
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The address it touched.
    pub address: u64,
    /// "read", "write" or "exec".
    pub access: &'a str,
    /// Its registers.
    pub frame: &'a TrapFrame,
    /// What was added to the addresses in the program's file.
    pub load_bias: u64,
}

/// A byte arrived on the port. Interrupts are off.
pub fn on_receive() {
    crate::fs::on_input();
}

/// The kernel runs on `cpus` cores.
pub fn booted(cpus: usize, memory_bytes: u64) {
    Line::new("booted").number("cpus", cpus as u64).number("memory_bytes", memory_bytes);
}

/// The program wants more of its standard input.
pub fn ask_for_input() {
    Line::new("stdin");
}

/// Something to know.
pub fn warn(text: impl Display) {
    Line::new("log").text("level", "warn").text("text", text);
}

/// The program made a call that does not exist here.
pub fn unknown_syscall(number: u64, args: [u64; 6]) {
    Line::new("unknown_syscall").number("number", number).list("args", args.into_iter(), Line::hex_value);
}

/// Memory ran out and the program dies of it.
pub fn oom(text: impl Display) {
    Line::new("oom").text("text", text);
}

/// The kernel fails.
pub fn panic(text: impl Display) {
    Line::urgent("panic").text("text", text);
}

/// The program cannot be run. Nothing follows.
pub fn refused(why: impl Display) {
    Line::new("refused").text("text", why);
}

/// The program is gone.
pub fn exit(how: Ended) {
    let mut line = Line::new("exit");
    match how {
        Ended::Status(status) => line.number("status", status.into()),
        Ended::Signal(signal) => line.number("signal", signal.into()),
    };
}

/// Every counter, and what the program left behind.
pub fn stats(space: &SpaceHandle, leaked_frames: u64, leaked_nodes: u64) {
    let mut line = Line::new("stats");
    line.begin("counters", '{');
    counters::for_each(space, &mut |name, count| {
        line.list(name, (0..arch::cores()).map(|core| count(CoreId::new(core))), Line::signed_value);
    });
    line.end('}').number("leaked_frames", leaked_frames).number("leaked_nodes", leaked_nodes);
}

/// Who owns what physical memory: `each` is given whom to tell a range and its kind.
pub fn owners(each: impl FnOnce(&mut dyn FnMut((u64, u64), &dyn Display))) {
    let mut line = Line::new("owners");
    line.begin("ranges", '[');
    each(&mut |(start, end), kind| {
        line.separate();
        print(format_args!("[\"{start:#x}\",\"{end:#x}\",\"{kind}\"]"));
    });
    line.end(']');
}

/// The program dies of its own fault; its address space is the current one, so that its stack can be read.
pub fn crash(crash: &Crash<'_>) {
    let (frame, stack) = (crash.frame, crash.frame.rsp);
    let mut line = Line::new("crash");
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
    line.end('}').begin("stack", '"').memory(stack, STACK_SHOWN).end('"');
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

/// A line being written; ended when dropped.
struct Line {
    _port: Option<SpinGuard<'static, ()>>,
    /// Whether the next item follows another one.
    comma: bool,
}

impl Line {
    fn new(kind: &str) -> Self {
        let port = loop {
            match PORT.try_lock() {
                Some(port) => break port,
                None => percore::relax(),
            }
        };
        Self::start(Some(port), kind)
    }

    fn urgent(kind: &str) -> Self {
        let port = (0..PATIENCE).find_map(|_| {
            core::hint::spin_loop();
            PORT.try_lock()
        });
        if port.is_none() {
            put("\n");
        }
        Self::start(port, kind)
    }

    fn start(port: Option<SpinGuard<'static, ()>>, kind: &str) -> Self {
        put("{");
        let mut line = Self { _port: port, comma: false };
        line.text("type", kind);
        line
    }

    fn separate(&mut self) {
        if self.comma {
            put(",");
        }
        self.comma = true;
    }

    fn key(&mut self, key: &str) {
        self.separate();
        print(format_args!("\"{key}\":"));
    }

    fn text(&mut self, key: &str, text: impl Display) -> &mut Self {
        self.key(key);
        put("\"");
        // The writer never fails; a Display that does leaves the string short.
        let _ = write!(Escaped, "{text}");
        put("\"");
        self
    }

    fn number(&mut self, key: &str, value: u64) -> &mut Self {
        self.key(key);
        print(format_args!("{value}"));
        self
    }

    fn address(&mut self, key: &str, value: u64) -> &mut Self {
        self.key(key);
        print(format_args!("\"{value:#x}\""));
        self
    }

    /// A core that gives back more than it took counts below zero.
    fn signed_value(value: u64) {
        print(format_args!("{}", value as i64));
    }

    fn hex_value(value: u64) {
        print(format_args!("\"{value:#x}\""));
    }

    fn list(&mut self, key: &str, values: impl Iterator<Item = u64>, put_value: fn(u64)) {
        self.begin(key, '[');
        for value in values {
            self.separate();
            put_value(value);
        }
        self.end(']');
    }

    fn begin(&mut self, key: &str, bracket: char) -> &mut Self {
        self.key(key);
        print(format_args!("{bracket}"));
        self.comma = false;
        self
    }

    fn end(&mut self, bracket: char) -> &mut Self {
        print(format_args!("{bracket}"));
        self.comma = true;
        self
    }

    /// The program's memory from `at` on in hexadecimal, as far as it can be read.
    fn memory(&mut self, at: u64, most: u64) -> &mut Self {
        const STEP: u64 = 16;
        for at in (at..at.saturating_add(most)).step_by(STEP as usize) {
            let mut bytes = [0; STEP as usize];
            // The port is locked.
            if mm::epoch::without_reclaim(|| mm::user::copy_in(&mut bytes, at)) == Err(Errno::EFAULT) {
                break;
            }
            print(format_args!("{:032x}", u128::from_be_bytes(bytes)));
        }
        self
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        put("}\n");
    }
}

fn put(text: &str) {
    Port::Control.write(text.as_bytes());
}

fn print(text: fmt::Arguments<'_>) {
    // The writer never fails.
    let _ = Plain.write_fmt(text);
}

struct Plain;

impl Write for Plain {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        put(text);
        Ok(())
    }
}

/// The inside of a JSON string.
struct Escaped;

impl Write for Escaped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.split_inclusive(|char: char| char < ' ' || char == '"' || char == '\\').for_each(escape_last);
        Ok(())
    }
}

/// Writes `text`, in which at most the last character needs an escape.
fn escape_last(text: &str) {
    match text.as_bytes().split_last() {
        Some((&last @ (b'"' | b'\\'), _)) => {
            print(format_args!("{}\\{}", &text[..text.len() - 1], last as char))
        }
        Some((&last @ 0..b' ', _)) => print(format_args!("{}\\u{last:04x}", &text[..text.len() - 1])),
        _ => put(text),
    }
}
