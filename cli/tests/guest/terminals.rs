//! A program that gets a terminal (`run -t`) finds there what it finds on a terminal of Linux.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use crate::harness::{Compiler, compiled, radixvm, run_losing};

/// Runs a command on a new terminal of 30 rows and 100 columns, and types what it asks for. Its errors go
/// there, too, if they are the program's own. Returns what it shows, a character for each byte, and its
/// status.
fn on_terminal(mut command: Command, has_errors: bool) -> (String, ExitStatus) {
    let own = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&own).and_then(|()| unlockpt(&own)).expect("the other end");
    let name = ptsname(&own, Vec::new()).expect("a name").into_string().expect("text");
    let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&own, size).expect("a size");
    let before = tcgetattr(&own).expect("attributes");
    let mut open = File::options();
    let open = open.read(true).write(true).custom_flags(rustix::fs::OFlags::NOCTTY.bits() as i32);
    let other = || Stdio::from(open.open(&name).expect("the other end"));
    let kept = open.open(&name).expect("the other end");
    command.stderr(if has_errors { other() } else { Stdio::null() });
    let mut child = command.stdin(other()).stdout(other()).spawn().expect("it starts");
    drop(command);
    let mut own = File::from(own);
    let (mut shown, mut seen, mut chunk) = (String::new(), 0, [0; 4096]);
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    loop {
        if poll(&mut [PollFd::new(&own, PollFlags::IN)], Some(&second)).expect("a wait") == 0 {
            match child.try_wait().expect("its status") {
                Some(_) => break,
                None => continue,
            }
        }
        let length = own.read(&mut chunk).expect("the program's output");
        shown.extend(chunk[..length].iter().map(|byte| char::from(*byte)));
        while let Some((start, line)) = request(&shown[seen..]) {
            own.write_all(&keys(line)).expect("the terminal takes keys");
            seen += start + line.len();
        }
    }
    let status = child.wait().expect("it ends");
    assert_eq!(format!("{:?}", tcgetattr(&own).expect("attributes")), format!("{before:?}"));
    drop(kept);
    (shown, status)
}

/// Returns the keys that a program asks for next, and where they stand.
fn request(shown: &str) -> Option<(usize, &str)> {
    let start = shown.find("type ")? + "type ".len();
    Some((start, shown[start..].split_once('\n')?.0.trim_end_matches('\r')))
}

/// Returns the bytes of keys: `\n`, `\r`, `\x1a`, `{6000}` for the last one so often, and all others as they
/// are.
fn keys(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        if let Some((number, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            let last = *bytes.last().expect("a key");
            bytes.resize(bytes.len() - 1 + number.parse::<usize>().expect("a number"), last);
            rest = after;
            continue;
        }
        let (byte, length) = match rest.as_bytes() {
            [b'\\', b'n', ..] => (b'\n', 2),
            [b'\\', b'r', ..] => (b'\r', 2),
            [b'\\', b'x', ..] => (u8::from_str_radix(&rest[2..4], 16).expect("two digits"), 4),
            _ => (first as u8, first.len_utf8()),
        };
        bytes.push(byte);
        rest = &rest[length..];
    }
    bytes
}

#[test]
fn a_terminal_is_that_of_linux() {
    let program = compiled("terminal", Compiler::Static);
    let here = || {
        let mut here = Command::new("setsid");
        here.args(["--ctty", "--wait", &program]);
        let (shown, status) = on_terminal(here, true);
        assert_eq!(status.code(), Some(5), "{shown}");
        shown
    };
    // Linux echoes ^C after it has sent the signal, so a busy one may show it after what the program says.
    let mut shown = [here(), here()];
    for _ in 0..10 {
        if shown[0] != shown[1] {
            shown.rotate_left(1);
            shown[1] = here();
        }
    }
    let [_, linux] = shown;
    for cpus in ["1", "2"] {
        let mut guest = radixvm();
        guest.args(["run", "-t", "-c", cpus, &program]);
        let (shown, status) = on_terminal(guest, false);
        assert_eq!(shown, linux);
        assert_eq!(status.code(), Some(5));
    }
}

#[test]
fn a_run_without_a_terminal_has_none_to_give() {
    let run = run_losing(&["-t"], &[&compiled("hello", Compiler::Static)]);
    assert_eq!(run.status, 125);
    assert!(run.stderr.contains("-t needs a terminal"), "{run:?}");
}
