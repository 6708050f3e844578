//! One run of one guest, from `spawn` to the last byte.
//!
//! | ends by | what follows |
//! |---|---|
//! | an `exit` line | QEMU gets a moment to leave by itself, output is read to its end, the program's status is ours |
//! | QEMU leaving without one | the guest failed: the last panic line, or QEMU's own words |
//! | a signal to us, a broken output, the time limit | QEMU is killed and reaped; the status says which |
//!
//! Four threads feed one queue of events; the main thread alone decides. QEMU is killed when the [`Running`] value
//! goes away, whichever way that is, and by the guard's death signal if this process does not get that far.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use command_fds::{CommandFdExt, FdMapping};

use super::channels::{self, Channel, FIRST_PORT, Sink};
use super::protocol::{Crash, Line, Stats};
use super::qemu::{self, Boot, Machine, Port, Qemu};
use super::{guard, signals};

/// What to run and where its bytes go.
pub struct Plan {
    /// The hardware.
    pub machine: Machine,
    /// The kernel file.
    pub kernel: std::path::PathBuf,
    /// The kernel's command line.
    pub command_line: String,
    /// The boot image.
    pub image: Vec<u8>,
    /// The program's standard output.
    pub stdout: Sink,
    /// The program's standard error.
    pub stderr: Sink,
    /// Whether the program reads our standard input; otherwise it finds it empty.
    pub stdin: bool,
    /// A fourth serial port on which the kernel itself may talk.
    pub kernel_log: bool,
    /// How long the kernel may take to say that it runs.
    pub boot_limit: Duration,
    /// How long everything may take.
    pub limit: Option<Duration>,
    /// Whether QEMU powers itself off after the exit line; if not it is killed at once.
    pub leaves_by_itself: bool,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The program called exit.
    Exited(i32),
    /// A signal killed the program.
    Killed(i32),
    /// We were told to stop by this signal.
    Interrupted(i32),
    /// The guest failed.
    Failed(String),
}

/// Everything known after a run.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// The kernel's counters.
    pub stats: Option<Stats>,
    /// The crash, if the program died of one.
    pub crash: Option<Box<Crash>>,
}

enum Event {
    Line(String),
    Closed,
    Signal(i32),
}

/// Runs a guest to its end. `notice` gets the lines that are for people.
pub fn run(plan: Plan, notice: &mut dyn FnMut(&Line)) -> Result<Outcome> {
    let mut running = Running::start(&plan)?;
    let (end, said) = running.listen(&plan, notice);
    Ok(running.finish(&plan, end, said))
}

/// What the guest said that outlives the conversation.
#[derive(Default)]
struct Said {
    booted: bool,
    panic: Option<String>,
    stats: Option<Stats>,
    crash: Option<Box<Crash>>,
}

/// A live QEMU with its threads.
struct Running {
    qemu: Child,
    events: Receiver<Event>,
    stdin: Sender<()>,
    output: Vec<JoinHandle<()>>,
    complaints: JoinHandle<String>,
    kernel_log: Option<JoinHandle<String>>,
    _watch: signals::Watch,
}

impl Running {
    fn start(plan: &Plan) -> Result<Self> {
        let ports = channels::open(if plan.kernel_log { 4 } else { 3 })?;
        let (hosts, guests): (Vec<_>, Vec<_>) =
            ports.into_iter().map(|Channel { host, guest }| (host, guest)).unzip();
        let mut qemu = spawn(plan, guests)?;
        let complaints = qemu.stderr.take().expect("piped");
        let (sender, events) = channel();
        let mut hosts = hosts.into_iter();
        let mut next = || hosts.next().expect("three ports or more");
        let (stdout, control, stderr) = (next(), next(), next());
        let output = vec![
            pump(stdout, plan.stdout.clone(), sender.clone()),
            pump(stderr, plan.stderr.clone(), sender.clone()),
        ];
        let watch = forward_signals(sender.clone());
        let stdin =
            channels::feed_stdin(control.try_clone().context("cannot duplicate a socket")?, plan.stdin);
        read_lines(control, sender);
        let kernel_log = hosts.next().map(collect);
        Ok(Running {
            qemu,
            events,
            stdin,
            output,
            complaints: collect(complaints),
            kernel_log,
            _watch: watch,
        })
    }

    /// Hears the guest out. No end: QEMU left without an exit line.
    fn listen(&mut self, plan: &Plan, notice: &mut dyn FnMut(&Line)) -> (Option<End>, Said) {
        let mut said = Said::default();
        let start = Instant::now();
        let boot_deadline = Some(start + plan.boot_limit);
        let deadline = plan.limit.map(|limit| start + limit);
        loop {
            let until = if said.booted { deadline } else { boot_deadline.min(deadline.or(boot_deadline)) };
            let end = match self.next_event(until) {
                Ok(Event::Line(line)) => said.hear(&line, &self.stdin, notice),
                Ok(Event::Signal(signal)) => Some(End::Interrupted(signal)),
                Ok(Event::Closed) | Err(RecvTimeoutError::Disconnected) => return (None, said),
                Err(RecvTimeoutError::Timeout) => Some(End::Failed(said.overdue(start.elapsed()))),
            };
            if end.is_some() {
                return (end, said);
            }
        }
    }

    fn next_event(&self, until: Option<Instant>) -> Result<Event, RecvTimeoutError> {
        match until {
            None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => self.events.recv_timeout(until.saturating_duration_since(Instant::now())),
        }
    }

    /// Sees QEMU off and reads every output to its end.
    fn finish(mut self, plan: &Plan, end: Option<End>, said: Said) -> Outcome {
        if matches!(end, Some(End::Exited(_) | End::Killed(_))) && plan.leaves_by_itself {
            self.wait_for_exit(Duration::from_secs(5));
        }
        self.kill();
        self.output.drain(..).for_each(|thread| thread.join().expect("a pump does not panic"));
        let end = end.unwrap_or_else(|| End::Failed(self.explain(said.panic)));
        Outcome { end, stats: said.stats, crash: said.crash }
    }

    /// Waits until the control port closes, which it does when QEMU goes.
    fn wait_for_exit(&self, grace: Duration) {
        let until = Instant::now() + grace;
        while let Ok(Event::Line(_)) = self.next_event(Some(until)) {}
    }

    fn kill(&mut self) {
        // Both fail only if QEMU is already gone and reaped.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }

    /// Why QEMU left without an exit line.
    fn explain(&mut self, panic: Option<String>) -> String {
        if let Some(text) = panic {
            return format!("the kernel panicked: {text}");
        }
        let complaints = take(&mut self.complaints);
        let log = self.kernel_log.as_mut().map(take).unwrap_or_default();
        let words = [complaints.trim(), tail(log.trim(), 12)].join("\n");
        match words.trim() {
            "" => "the guest stopped without a word".to_owned(),
            words => format!("the guest stopped: {words}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Said {
    /// Takes in one line; the run's end if it was the last one.
    fn hear(&mut self, text: &str, stdin: &Sender<()>, notice: &mut dyn FnMut(&Line)) -> Option<End> {
        let Ok(line) = serde_json::from_str(text) else {
            notice(&Line::Log { level: "error".to_owned(), text: format!("unreadable line: {text}") });
            return None;
        };
        notice(&line);
        match line {
            Line::Booted { .. } => self.booted = true,
            // Fails only when the feeder gave up because QEMU is gone.
            Line::Stdin => drop(stdin.send(())),
            Line::Panic { text } => self.panic = Some(text),
            Line::Stats(stats) => self.stats = Some(stats),
            Line::Crash(crash) => self.crash = Some(crash),
            Line::Exit { signal: Some(signal), .. } => return Some(End::Killed(signal)),
            Line::Exit { status, signal: None } => return Some(End::Exited(status.unwrap_or(0))),
            Line::Log { .. } | Line::UnknownSyscall { .. } | Line::Oom { .. } => {}
        }
        None
    }

    fn overdue(&self, after: Duration) -> String {
        let what = if self.booted { "did not end" } else { "did not boot" };
        format!("the guest {what} within {} s", after.as_secs())
    }
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
    let inherited = ports.into_iter().chain([image]).zip(FIRST_PORT..);
    let mappings = inherited.map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd }).collect();
    let mut command = guard::command(qemu::PROGRAM)?;
    command.args(Qemu { machine: plan.machine, boot, ports: backends }.arguments());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.fd_mappings(mappings).map_err(|error| anyhow!(error))?;
    command.spawn().with_context(|| format!("cannot start {}", qemu::PROGRAM))
}

/// An anonymous file with this content.
fn memory_file(content: &[u8]) -> Result<OwnedFd> {
    let descriptor = rustix::fs::memfd_create("boot-image", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(descriptor);
    file.write_all(content).context("no memory for the boot image")?;
    Ok(file.into())
}

fn pump(port: UnixStream, sink: Sink, events: Sender<Event>) -> JoinHandle<()> {
    // What a program on this machine would get for writing to a closed pipe.
    channels::pump(port, sink, move || drop(events.send(Event::Signal(signal_hook::consts::SIGPIPE))))
}

fn forward_signals(events: Sender<Event>) -> signals::Watch {
    signals::Watch::new(move |signal| drop(events.send(Event::Signal(signal))))
}

fn read_lines(port: UnixStream, events: Sender<Event>) {
    thread::spawn(move || {
        for line in BufReader::new(port).split(b'\n').map_while(Result::ok) {
            let _ = events.send(Event::Line(String::from_utf8_lossy(&line).into_owned()));
        }
        let _ = events.send(Event::Closed);
    });
}

/// Everything a stream says, in a thread.
fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn take(thread: &mut JoinHandle<String>) -> String {
    std::mem::replace(thread, thread::spawn(String::new)).join().unwrap_or_default()
}

/// The last `count` lines.
fn tail(text: &str, count: usize) -> &str {
    let start = text.rmatch_indices('\n').nth(count - 1).map_or(0, |(at, _)| at + 1);
    &text[start..]
}
