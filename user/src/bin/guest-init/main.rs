//! Process 1 of the stock Linux guest: runs one program so that the host sees the same as from the RadixVM
//! kernel.
//!
//! | port  | device | carries |
//! |-------|--------|---------|
//! | COM1  | ttyS0  | the program's stdout, raw |
//! | COM2  | ttyS1  | out: JSON lines; in: stdin frames |
//! | COM3  | ttyS2  | the program's stderr, raw |
//!
//! The program gets pipes, not terminals: `isatty` says no, and its bytes are not translated. When it has
//! ended, all processes it left are killed, the pipes are emptied into the ports, the ports are drained, the
//! `exit` line goes out last, and the machine powers off.
//!
//! The program's start and end are marked for the contention meter, and any program may read the kernel's
//! symbols.

mod machine;
mod program;
mod stdin;
mod tty;

use programs::marker;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::thread;

fn main() {
    machine::mount_all();
    machine::show_symbols();
    let mut control = tty::open_raw("/dev/ttyS1");
    say(&mut control, machine::booted());
    let end = run(&control).unwrap_or_else(|failure| {
        say(&mut control, json!({"type": "log", "level": "error", "text": failure.text}));
        json!({"type": "exit", "status": failure.status})
    });
    say(&mut control, end);
    tty::drain(&control);
    machine::power_off()
}

/// Runs the program to its end and returns the last line about it.
fn run(control: &File) -> Result<Value, program::Failure> {
    machine::show_disk()?;
    let (out, err) = (tty::open_raw("/dev/ttyS0"), tty::open_raw("/dev/ttyS2"));
    marker::run();
    let mut child = program::start()?;
    let pumps = pumps(&mut child, control, out, err);
    let status = child.wait().map_err(|error| program::Failure::guest("wait", error))?;
    marker::stop();
    machine::kill_all_others();
    pumps.into_iter().for_each(|pump| pump.join().expect("a pump panicked"));
    Ok(end_of(status))
}

/// Starts the threads that move the program's bytes. The returned ones end once its output has been drained.
fn pumps(child: &mut Child, control: &File, out: File, err: File) -> [thread::JoinHandle<()>; 2] {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let stdin = child.stdin.take().expect("stdin is a pipe");
    let clone = || control.try_clone().expect("a file can be cloned");
    let (frames, mut asking) = (clone(), clone());
    thread::spawn(move || stdin::feed(|| say(&mut asking, json!({"type": "stdin"})), frames, stdin));
    [
        thread::spawn(move || pump(stdout.expect("stdout is a pipe"), out)),
        thread::spawn(move || pump(stderr.expect("stderr is a pipe"), err)),
    ]
}

fn pump(mut from: impl Read, mut to: File) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        to.write_all(&buffer[..count]).expect("the serial port takes bytes");
    }
    tty::drain(&to);
}

fn end_of(status: ExitStatus) -> Value {
    match status.signal() {
        Some(signal) => json!({"type": "exit", "signal": signal}),
        None => json!({"type": "exit", "status": status.code()}),
    }
}

/// Sends one JSON line to the host, in one write.
fn say(control: &mut File, line: Value) {
    control.write_all(format!("{line}\n").as_bytes()).expect("the serial port takes bytes");
}
