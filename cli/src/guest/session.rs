//! One run of one guest, from `spawn` to the last byte.
//!
//! | ends by | what follows |
//! |---|---|
//! | an `exit` line | QEMU gets a moment to leave (see [`Farewell`]), output is read to its end, the program's status is ours |
//! | QEMU leaving without one | the guest failed: the last panic line, or QEMU's own words |
//! | a signal to us, a broken output, the time limit | QEMU is killed and reaped; the status says which |
//!
//! The threads of [`Live`] feed one queue of events; the main thread alone decides here what they mean.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::channels::Sink;
use super::live::{Event, Live};
use super::protocol::{Crash, Line, Owners, Stats};
use super::qemu::Machine;

/// What to run and where its bytes go.
pub struct Plan {
    /// The hardware.
    pub machine: Machine,
    /// The kernel file.
    pub kernel: PathBuf,
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
    /// What happens to QEMU after the exit line.
    pub farewell: Farewell,
    /// A plugin that watches the guest.
    pub plugin: Option<Plugin>,
    /// A file that is all that is wanted of this guest: when it is put in its place, the run is over.
    pub wanted: Option<PathBuf>,
}

/// How QEMU goes when the program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// The guest powers off; QEMU gets a moment for that.
    ByItself,
    /// QEMU is killed at once.
    Killed,
    /// QEMU is asked to go, and waited for: a plugin has something to write.
    Asked,
}

/// A QEMU plugin.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Its file and options, as `-plugin` takes them.
    pub argument: OsString,
    /// A library that QEMU is to load before all others.
    pub preload: PathBuf,
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
    /// What was wanted of the guest is there.
    Enough,
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
    /// What the kernel's memory was used for.
    pub owners: Option<Owners>,
}

/// Runs a guest to its end. `notice` gets the lines that are for people.
pub fn run(plan: Plan, notice: &mut dyn FnMut(&Line)) -> Result<Outcome> {
    let live = Live::start(&plan)?;
    let (end, said) = listen(&live, &plan, notice);
    let orderly = matches!(end, Some(End::Exited(_) | End::Killed(_)));
    let words = live.end(if orderly { plan.farewell } else { Farewell::Killed });
    let end = end.unwrap_or_else(|| End::Failed(said.explain(&words)));
    Ok(Outcome { end, stats: said.stats, crash: said.crash, owners: said.owners })
}

/// Hears the guest out. No end: QEMU left without an exit line.
fn listen(live: &Live, plan: &Plan, notice: &mut dyn FnMut(&Line)) -> (Option<End>, Said) {
    let mut said = Said::default();
    let start = Instant::now();
    let boot_deadline = Some(start + plan.boot_limit);
    let deadline = plan.limit.map(|limit| start + limit);
    loop {
        let until = if said.booted { deadline } else { boot_deadline.min(deadline.or(boot_deadline)) };
        let end = match live.next_event(until) {
            Ok(Event::Line(line)) => said.hear(&line, live, notice),
            Ok(Event::Enough) => Some(End::Enough),
            Ok(Event::Signal(signal)) => Some(End::Interrupted(signal)),
            Ok(Event::Closed) | Err(RecvTimeoutError::Disconnected) => return (None, said),
            Err(RecvTimeoutError::Timeout) => Some(End::Failed(said.overdue(start.elapsed()))),
        };
        if end.is_some() {
            return (end, said);
        }
    }
}

/// What the guest said that outlives the conversation.
#[derive(Default)]
struct Said {
    booted: bool,
    panic: Option<String>,
    stats: Option<Stats>,
    crash: Option<Box<Crash>>,
    owners: Option<Owners>,
}

impl Said {
    /// Takes in one line; the run's end if it was the last one.
    fn hear(&mut self, text: &str, live: &Live, notice: &mut dyn FnMut(&Line)) -> Option<End> {
        let Ok(line) = serde_json::from_str(text) else {
            notice(&Line::Log { level: "error".to_owned(), text: format!("unreadable line: {text}") });
            return None;
        };
        notice(&line);
        match line {
            Line::Booted { .. } => self.booted = true,
            Line::Stdin => live.feed(),
            Line::Panic { text } => self.panic = Some(text),
            Line::Stats(stats) => self.stats = Some(stats),
            Line::Crash(crash) => self.crash = Some(crash),
            Line::Owners(owners) => self.owners = Some(owners),
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

    /// Why QEMU left without an exit line, given its own words.
    fn explain(&self, words: &str) -> String {
        match (&self.panic, words) {
            (Some(text), _) => format!("the kernel panicked: {text}"),
            (None, "") => "the guest stopped without a word".to_owned(),
            (None, words) => format!("the guest stopped: {words}"),
        }
    }
}
