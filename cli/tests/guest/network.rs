//! `-p` and `--net`: programs in a guest and programs of this machine talk to each other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Compiler, compiled, radixvm, run, run_losing};

fn program() -> String {
    compiled("network", Compiler::Musl)
}

/// Returns a port that no program of this machine has.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server in a guest, and its output after the line by which it says that it listens.
struct Server {
    command: Child,
    output: BufReader<ChildStdout>,
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let mut command = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(command.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        if !line.starts_with("listening") {
            panic!("{line:?} {:?}", command.wait_with_output());
        }
        Self { command, output }
    }

    /// Starts this test's program with a port that leads to port 80.
    fn of_test(port: u16, options: &[&str], words: &[&str]) -> Self {
        let mut command = radixvm();
        command.args(["run", "--stats=json", "-p", &format!("{port}:80")]).args(options);
        Self::start(command.arg("--").arg(program()).args(words))
    }

    /// Returns the rest of its output, after its end without a leak.
    fn rest(mut self) -> String {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        let output = self.command.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text} {output:?}");
        assert!(stderr.contains(r#""leaked_frames":0,"leaked_nodes":0"#), "{stderr}");
        text
    }
}

/// Makes connections to a server, one after the other: QEMU lets one wait at its port, and others that come
/// at the same moment try again a second later or more.
fn connections(port: u16, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect()
}

/// Sends bytes to an echo while they come back, and ends that direction. Checks that the rest comes then.
fn echoes(mut stream: TcpStream, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|at| (at * 7 + at / 253 + bytes) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let mut got = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        stream.read_to_end(&mut got).unwrap();
    });
    assert_eq!(got.len(), bytes + 4);
    assert!(got.starts_with(&sent) && got.ends_with(b"end\n"), "other bytes came back");
}

/// The guest ends when the last connection is served: what it sent last must arrive.
#[test]
fn programs_of_this_machine_reach_a_server() {
    for (cpus, bytes) in [("1", 100_000), ("2", 1_000_000)] {
        let port = free_port();
        let server = Server::of_test(port, &["-c", cpus], &["echo", "80", "6"]);
        thread::scope(|scope| {
            for (number, stream) in connections(port, 6).into_iter().enumerate() {
                scope.spawn(move || echoes(stream, bytes * number / 5 + 1));
            }
        });
        assert_eq!(server.rest(), "10.0.2.15:80 from 10.0.2.2\nserved 6\n");
    }
}

/// More clients come than the listener lets wait.
#[test]
fn clients_wait_for_their_turn() {
    let port = free_port();
    let server = Server::of_test(port, &["-c", "2", "-m", "128M"], &["echo", "80", "20"]);
    thread::scope(|scope| {
        connections(port, 20).into_iter().for_each(|stream| drop(scope.spawn(|| echoes(stream, 5000))));
    });
    assert!(server.rest().ends_with("served 20\n"));
}

/// The guest ends each connection first, and keeps some of it for a while, of more than it has room for.
#[test]
fn ended_connections_make_room_for_others() {
    let port = free_port();
    let server = Server::of_test(port, &["-c", "2"], &["brief", "80", "150"]);
    for _ in 0..150 {
        let mut text = String::new();
        TcpStream::connect(("127.0.0.1", port)).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "end\n");
    }
    assert_eq!(server.rest(), "served 150\n");
}

/// More has arrived than the pipe of the socket has room for when both sides have ended. And a client ends
/// without reading: the server, which has said all, must not take that for the end of what comes.
#[test]
fn bytes_that_have_arrived_outlive_the_connection() {
    let port = free_port();
    let server = Server::of_test(port, &["-c", "2"], &["ends", "80", "90000"]);
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut told = connect();
    let mut turns = || {
        (0..20).for_each(|_| {
            told.write_all(b"t").unwrap();
            told.read_exact(&mut [0]).unwrap();
        });
    };
    let mut whole = connect();
    whole.write_all(&[b'w'; 90_000]).unwrap();
    whole.shutdown(Shutdown::Write).unwrap();
    // The router takes turns between its connections, so the end of that one has passed it after some.
    turns();
    assert_eq!(whole.read_to_end(&mut Vec::new()).unwrap(), 0);
    turns();
    let reset = connect();
    assert_eq!(reset.peek(&mut [0]).unwrap(), 1);
    turns();
    drop(reset);
    assert_eq!(server.rest(), "all bytes, then the end\nafter a reset: Connection reset by peer\n");
}

/// A server at any address has connections of the guest and of the network.
#[test]
fn a_server_has_connections_from_inside_and_outside() {
    let port = free_port();
    let server = Server::of_test(port, &["-c", "2"], &["both", "80"]);
    let mut word = String::new();
    TcpStream::connect(("127.0.0.1", port)).unwrap().read_to_string(&mut word).unwrap();
    assert_eq!(word, "to 10.0.2.15 from 10.0.2.2\n");
    let expected = "to 127.0.0.1 from 127.0.0.1\nto 10.0.2.15 from 10.0.2.15\nto 127.0.0.1 from 127.0.0.1\n";
    assert_eq!(server.rest(), expected);
}

#[test]
fn messages_reach_a_server() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = radixvm();
    command.args(["run", "--stats=json", "-p", &format!("{port}:53/udp"), "--net", "--", &program()]);
    let server = Server::start(command.args(["messages", "53", "3"]));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
    for len in [0, 9, 1400] {
        let (sent, mut got) = (vec![b'm'; len], [0; 2000]);
        socket.send(&sent).unwrap();
        let got_len = socket.recv(&mut got).unwrap();
        assert_eq!(got[..got_len], sent);
    }
    assert_eq!(server.rest(), "answered 3\n");
}

/// Starts an echo on this machine, as the one of this test's program.
fn echo_here() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let (mut from, mut to) = (&stream, &stream);
                std::io::copy(&mut from, &mut to).and_then(|_| to.write_all(b"end"))
            });
        }
    });
    port
}

#[test]
fn a_program_reaches_servers_of_this_machine() {
    let port = echo_here().to_string();
    for cpus in ["1", "2"] {
        let words = [program(), "send".into(), "10.0.2.2".into(), port.clone(), "2000000".into()];
        let run = run(&["--net", "-c", cpus], &words.each_ref().map(String::as_str));
        assert_eq!(run.text(), "2000000 bytes came back and 3 more\n", "{run:?}");
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    thread::spawn(move || {
        let mut bytes = [0; 100];
        let (len, from) = socket.recv_from(&mut bytes).unwrap();
        socket.send_to(&[b"answer to ", &bytes[..len]].concat(), from).unwrap();
    });
    let run = run(&["--net"], &[&program(), "ask", "10.0.2.2", &port]);
    assert_eq!(run.text(), "10.0.2.15 asked: answer to question, Message too large\n", "{run:?}");
}

/// A connection that is made without waiting is ready when it is made or refused, as on Linux.
#[test]
fn connections_are_made_and_refused_without_waiting() {
    let expected = "\
connect: Operation in progress
events: 1, out 1, err 0, hup 0
error: none, then none
again: Socket is connected
peer: Success
poll: 1
read: end
write after shutdown: Broken pipe
connect: Operation in progress
events: 1, out 1, err 1, hup 1
error: Connection refused, then none
";
    let (open, closed) = (echo_here().to_string(), free_port().to_string());
    let run = run(&["--net", "-c", "2"], &[&program(), "states", "10.0.2.2", &open, &closed]);
    assert_eq!(run.text(), expected, "{run:?}");
}

#[test]
fn nothing_goes_out_unless_it_is_asked_for() {
    let (here, port) = (echo_here().to_string(), free_port());
    for option in [&[][..], &["-p", &format!("{port}:80")]] {
        let run = run(option, &[&program(), "send", "10.0.2.2", &here, "10"]);
        assert_eq!((run.status, run.text().as_str()), (1, "connect: Network unreachable\n"), "{run:?}");
    }
}

#[test]
fn a_port_that_is_taken_is_named_before_the_guest_boots() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let run = run_losing(&["-p", &format!("{port}:80")], &[&program(), "echo", "80", "1"]);
    let told = format!("port {port} of this machine is taken: give another one, as in -p");
    assert!(run.status == 125 && run.stderr.contains(&told), "{run:?}");
}

/// The port is free again at once, also if the command is killed.
#[test]
fn a_killed_command_gives_its_port_back() {
    for signal in [Signal::TERM, Signal::INT] {
        let port = free_port();
        let mut server = Server::of_test(port, &[], &["echo", "80", "1"]);
        let _stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        kill_process(Pid::from_child(&server.command), signal).unwrap();
        server.command.wait().unwrap();
        TcpListener::bind(("127.0.0.1", port)).unwrap();
    }
}

/// Programs of this machine, as they are: a server, and a client that asks it by its name.
#[test]
fn installed_programs_serve_and_ask() {
    let port = free_port();
    let mut command = radixvm();
    command.args(["run", "-p", &format!("{port}:8000"), "--", "python3", "-u", "-c"]);
    let text = "\
import http.server as h
class Handler(h.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode() * 5000)
server = h.HTTPServer(('', 8000), Handler)
print('listening')
for _ in range(3): server.handle_request()
";
    let mut server = Server::start(command.arg(text));
    for path in ["/a", "/bcd", "/e"] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with(&path.repeat(5000)), "{answer}");
    }
    assert!(server.command.wait().unwrap().success());

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://10.0.2.2:{}/", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nfrom this machine\n").unwrap();
    });
    let text = format!("import urllib.request as r; print(r.urlopen('{url}').read().decode(), end='')");
    let run = run(&["--net"], &["python3", "-c", &text]);
    assert_eq!(run.text(), "from this machine\n", "{run:?}");
}
