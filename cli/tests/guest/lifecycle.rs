//! No QEMU process is left behind.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Compiler, compiled};

/// Starts a run whose program has answered once and waits for more input.
fn waiting() -> (Child, u32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixvm"));
    command.args(["run", "-c", "2", &compiled("stdin", Compiler::Static)]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"ping").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    let qemu = child_of(child.id());
    (child, qemu)
}

/// Returns the only child process of a process.
fn child_of(parent: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let child = children.split_whitespace().next().expect("QEMU runs");
    let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap();
    assert!(name.starts_with("qemu-system"), "{name}");
    child.parse().unwrap()
}

fn send(signal: Signal, process: u32) {
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

/// Returns whether a process is gone, or a zombie.
fn gone(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

#[test]
fn a_signal_ends_guest_and_qemu_with_its_status() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (mut child, qemu) = waiting();
        // The wait would close it, and the program ends with its input.
        let input = child.stdin.take();
        send(signal, child.id());
        assert_eq!(child.wait().unwrap().code(), Some(128 + signal.as_raw()));
        assert!(gone(qemu), "QEMU outlived {signal:?}");
        drop(input);
    }
}

#[test]
fn even_a_killed_command_takes_qemu_along() {
    let (mut child, qemu) = waiting();
    send(Signal::KILL, child.id());
    child.wait().unwrap();
    let start = Instant::now();
    while !gone(qemu) {
        assert!(start.elapsed() < Duration::from_secs(600), "QEMU outlived its parent");
        std::thread::yield_now();
    }
}

#[test]
fn a_dying_qemu_is_a_failed_guest() {
    let (child, qemu) = waiting();
    send(Signal::KILL, qemu);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("the guest stopped: QEMU ended with signal: 9"), "{words}");
}
