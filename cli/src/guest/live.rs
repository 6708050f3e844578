//! A live QEMU: the process, the threads on its ports, the queue of events that they feed.
//!
//! | thread | carries |
//! |---|---|
//! | two pumps | the program's stdout and stderr, to their sinks |
//! | lines | the control port, to the queue |
//! | stdin | a frame of our standard input for every request, or a terminal's as it comes, to the control port |
//! | watcher | for a file that ends the run, to the queue |
//! | two collectors | messages of QEMU, and of a kernel with a log port |
//!
//! Dropping the [`Live`] value kills QEMU. If this process dies before it drops the value, the guard's death
//! signal does.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use command_fds::{CommandFdExt, FdMapping};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, kill_process, pidfd_open, setrlimit,
};

use super::channels::{self, Channel, FIRST_PORT, Sink};
use super::qemu::{self, Boot, Port, Qemu};
use super::session::{Farewell, Plan};
use super::{guard, signals};

/// An event of a run.
pub enum Event {
    /// The guest wrote a line.
    Line(String),
    /// The control port is closed: QEMU is gone.
    Closed,
    /// The file that ends the run is in its place.
    Enough,
    /// This process got a signal, or an event that has the same effect.
    Signal(i32),
    /// The program's output cannot be passed on, for this reason.
    Unwritable(String),
}

/// The last words of a guest after its end.
pub struct Last {
    /// The messages of QEMU, the last lines of the kernel's log, and QEMU's exit status.
    pub words: String,
    /// The reason why the end of the program's output could not be passed on, if it could not.
    pub unwritable: Option<String>,
}

/// A running guest.
pub struct Live {
    qemu: Child,
    events: Receiver<Event>,
    stdin: Sender<()>,
    output: Vec<JoinHandle<()>>,
    /// Readers of the messages of QEMU and of the kernel's log port.
    words: Vec<JoinHandle<String>>,
    _watch: signals::Watch,
}

impl Live {
    /// Starts QEMU and everything around it.
    pub fn start(plan: &Plan) -> Result<Self> {
        let ports = channels::open(if plan.kernel_log { 4 } else { 3 })?;
        let (hosts, guests): (Vec<_>, Vec<_>) =
            ports.into_iter().map(|Channel { host, guest }| (host, guest)).unzip();
        let mut qemu = spawn(plan, guests)?;
        let complaints = collect(qemu.stderr.take().expect("piped"));
        let (sender, events) = channel();
        let mut hosts = hosts.into_iter();
        let mut port = || hosts.next().expect("three ports or more");
        let stdout = pump(port(), &plan.stdout, &sender);
        let control = port();
        let output = vec![stdout, pump(port(), &plan.stderr, &sender)];
        let words = [complaints].into_iter().chain(hosts.map(collect)).collect();
        let asked = control.try_clone().context("cannot duplicate a socket")?;
        let stdin = if plan.terminal {
            channels::feed_terminal(asked)?
        } else {
            channels::feed_stdin(asked, plan.stdin)
        };
        let watch = forward_signals(sender.clone());
        plan.wanted.as_deref().map_or(Ok(()), |file| watch_for(file, sender.clone()))?;
        read_lines(control, sender);
        Ok(Live { qemu, events, stdin, output, words, _watch: watch })
    }

    /// Waits for the next event, at most until `until`.
    pub fn next_event(&self, until: Option<Instant>) -> Result<Event, RecvTimeoutError> {
        match until {
            None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => self.events.recv_timeout(until.saturating_duration_since(Instant::now())),
        }
    }

    /// Sends the guest a frame of standard input.
    pub fn feed(&self) {
        // Fails only if the feeder has ended because QEMU is gone.
        let _ = self.stdin.send(());
    }

    /// Ends QEMU and reads every output to its end.
    pub fn end(mut self, farewell: Farewell) -> Last {
        match farewell {
            Farewell::ByItself => self.await_end(Duration::from_secs(5)),
            Farewell::Asked => self.ask_to_go(),
            Farewell::Killed => {}
        }
        let ending = self.kill();
        self.output.drain(..).for_each(|thread| thread.join().expect("a pump does not panic"));
        let words = self.words.drain(..).map(|thread| thread.join().unwrap_or_default());
        let words: Vec<String> = words.map(|text| tail(text.trim(), 12).to_owned()).collect();
        let words = [words.join("\n").trim(), &ending].join("\n").trim().to_owned();
        let unwritable = self.events.try_iter().find_map(|event| match event {
            Event::Unwritable(why) => Some(why),
            _ => None,
        });
        Last { words, unwritable }
    }

    /// Sends SIGTERM and waits. After QEMU has closed its ports, its plugins may still have much to write.
    fn ask_to_go(&self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, Signal::TERM);
        }
        self.await_end(Duration::from_secs(60));
    }

    fn await_end(&self, limit: Duration) {
        let Some(Ok(ended)) = self.pid().map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return };
        let limit = Timespec::try_from(limit).ok();
        let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], limit.as_ref());
    }

    /// Returns the number of QEMU's process.
    pub fn process(&self) -> u32 {
        self.qemu.id()
    }

    /// Returns the process id. This process has not waited for QEMU, so the id is still QEMU's, ended or not.
    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.qemu.id() as i32)
    }

    /// Kills QEMU and describes its end.
    fn kill(&mut self) -> String {
        // Both fail only if QEMU is already gone and reaped.
        let _ = self.qemu.kill();
        self.qemu.wait().map_or(String::new(), ending)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Raises the limit of open files, because QEMU opens each file that the guest does.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _lower = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn spawn(plan: &Plan, ports: Vec<OwnedFd>) -> Result<Child> {
    let image = memory_file(&plan.image)?;
    let image_number = FIRST_PORT + ports.len() as i32;
    let boot = Boot {
        kernel: plan.kernel.clone(),
        initrd: format!("/proc/self/fd/{image_number}").into(),
        command_line: plan.command_line.clone(),
    };
    let backends = (FIRST_PORT..image_number).map(Port::Inherited).collect();
    let disk = plan.disk.as_ref().map(File::try_clone).transpose()?.map(OwnedFd::from);
    let disk_path = disk.as_ref().map(|_| format!("/proc/self/fd/{}", image_number + 1).into());
    let inherited = ports.into_iter().chain([image]).chain(disk).zip(FIRST_PORT..);
    let mappings = inherited.map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd }).collect();
    let mut command = guard::command(&qemu::program());
    let plugin = plan.plugin.as_ref().map(|plugin| plugin.argument.clone());
    let Plan { machine, host_files, .. } = *plan;
    let (mounts, network) = (plan.mounts.clone(), plan.network.clone());
    let shared_memory = plan.plugin.as_ref().is_some_and(|plugin| plugin.reads_memory);
    let ports = backends;
    let qemu =
        Qemu { machine, shared_memory, boot, disk: disk_path, host_files, mounts, network, ports, plugin };
    command.args(qemu.arguments());
    command.envs(plan.plugin.iter().map(|plugin| (guard::PRELOAD, &plugin.preload)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.fd_mappings(mappings).map_err(|error| anyhow!(error))?;
    if host_files {
        raise_file_limit();
    }
    command.spawn().with_context(|| format!("cannot start {}", qemu::program()))
}

/// Describes QEMU's exit status, for a guest that reported nothing.
fn ending(status: ExitStatus) -> String {
    match status.code() {
        // With `-no-reboot`.
        Some(0) => "a core reset the machine (a triple fault)".to_owned(),
        _ => format!("QEMU ended with {status}"),
    }
}

/// Creates an anonymous file with this content.
fn memory_file(content: &[u8]) -> Result<OwnedFd> {
    let descriptor = rustix::fs::memfd_create("boot-image", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(descriptor);
    file.write_all(content).context("no memory for the boot image")?;
    Ok(file.into())
}

fn pump(port: UnixStream, sink: &Sink, events: &Sender<Event>) -> JoinHandle<()> {
    let events = events.clone();
    channels::pump(port, sink.clone(), move |error| drop(events.send(unwritable(&error))))
}

fn unwritable(error: &io::Error) -> Event {
    match error.kind() {
        // A program on this machine would get this signal for writing to a closed pipe.
        io::ErrorKind::BrokenPipe => Event::Signal(signal_hook::consts::SIGPIPE),
        _ => Event::Unwritable(format!("the program's output cannot be written: {error}")),
    }
}

fn forward_signals(events: Sender<Event>) -> signals::Watch {
    signals::Watch::new(move |signal| drop(events.send(Event::Signal(signal))))
}

/// Sends an event when a file is moved to its place. The thread ends then, or when the file's folder is
/// removed.
fn watch_for(file: &Path, events: Sender<Event>) -> Result<()> {
    let folder = file.parent().context("a file lies in a folder")?;
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watch, folder, inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::DELETE_SELF)?;
    thread::spawn(move || {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
        let event = inotify::Reader::new(watch, &mut buffer).next().map(|event| event.events());
        if event.is_ok_and(|events| events.contains(inotify::ReadFlags::MOVED_TO)) {
            let _ = events.send(Event::Enough);
        }
    });
    Ok(())
}

fn read_lines(port: UnixStream, events: Sender<Event>) {
    thread::spawn(move || {
        for line in BufReader::new(port).split(b'\n').map_while(Result::ok) {
            let _ = events.send(Event::Line(String::from_utf8_lossy(&line).into_owned()));
        }
        let _ = events.send(Event::Closed);
    });
}

/// Reads a stream to its end, in a thread.
fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Returns the last `count` lines.
fn tail(text: &str, count: usize) -> &str {
    let start = text.rmatch_indices('\n').nth(count - 1).map_or(0, |(at, _)| at + 1);
    &text[start..]
}
