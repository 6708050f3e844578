//! A guest that ends while its control port is not read has still written everything.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt, FdMapping};
use rustix::net::sockopt::set_socket_send_buffer_size;

use crate::harness::{Compiler, compiled, radixvm};

/// The number under which QEMU inherits the control port.
const PORT: i32 = 3;
/// The time that a guest with unread output may take to end. It must not end.
const TOO_EARLY: Duration = Duration::from_secs(1);

/// Returns the command of a dry run, with our control port and without counters, which differ from run to
/// run.
fn command_line() -> String {
    let hello = compiled("hello", Compiler::Static);
    let output = radixvm().args(["run", "--dry-run", "-c", "2", &hello, "5"]).output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let start = line.find("file,id=com2,path=").expect("the control port is a file");
    let end = start + line[start..].find(' ').unwrap();
    let line = format!("exec {}socket,id=com2,fd={PORT}{}", &line[..start], &line[end..]);
    line.replace(" stats", "")
}

fn start(line: &str, port: UnixStream) -> Child {
    let mut command = Command::new("timeout");
    command.args(["1800", "sh", "-c", line]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let port = FdMapping { parent_fd: OwnedFd::from(port), child_fd: PORT };
    command.fd_mappings(vec![port]).unwrap().spawn().unwrap()
}

/// Returns a pair of sockets. One end takes `room` bytes, one at a time, while the other is not read.
fn narrow_pair(room: usize) -> (UnixStream, UnixStream) {
    let pair_of = |bytes| {
        let (host, guest) = UnixStream::pair().unwrap();
        set_socket_send_buffer_size(&guest, bytes).unwrap();
        (host, guest)
    };
    let fits = |&bytes: &usize| fill(pair_of(bytes).1) == room;
    pair_of((1 << 10..1 << 18).step_by(256).find(fits).expect("some size takes so many bytes"))
}

fn fill(mut end: UnixStream) -> usize {
    end.set_nonblocking(true).unwrap();
    let full = |_: &usize| end.write(b"x").is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    (0..).find(full).unwrap()
}

fn read(mut port: UnixStream) -> String {
    let mut text = String::new();
    port.read_to_string(&mut text).unwrap();
    text
}

/// Returns everything, read after the guest has filled the port and has had time to end too early.
fn read_late(port: UnixStream, room: usize, qemu: &mut Child) -> String {
    while (rustix::io::ioctl_fionread(&port).unwrap() as usize) < room {
        assert!(qemu.try_wait().unwrap().is_none(), "QEMU ended before it had said {room} bytes");
        std::thread::yield_now();
    }
    let full = Instant::now();
    while full.elapsed() < TOO_EARLY && qemu.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    read(port)
}

#[test]
fn they_are_heard_however_late() {
    let line = command_line();
    let (host, guest) = UnixStream::pair().unwrap();
    let mut qemu = start(&line, guest);
    let all = read(host);
    qemu.wait().unwrap();
    assert!(all.ends_with("{\"type\":\"exit\",\"status\":5}\n"), "{all}");
    for missing in [1, 2, 9] {
        let (host, guest) = narrow_pair(all.len() - missing);
        let mut qemu = start(&line, guest);
        assert_eq!(read_late(host, all.len() - missing, &mut qemu), all, "{missing} bytes had no room");
        qemu.wait().unwrap();
    }
}
