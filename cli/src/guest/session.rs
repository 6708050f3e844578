//! One run of one guest, from `spawn` to the last byte.
//!
//! | ends by | then |
//! |---|---|
//! | an `exit` line, or `refused` | QEMU gets a moment to leave (see [`Farewell`]), output is read to its end, the program's status is ours |
//! | QEMU leaving without one | the guest failed: the last panic line, or QEMU's own words |
//! | a signal to us, a broken output, the time limit | QEMU is killed and reaped; the status says which |
//!
//! The threads of [`Live`] feed one queue of events. The main thread alone handles them here.

use std::ffi::OsString;
use std::fs::File;
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
    /// A disk, for files that are too large for the image.
    pub disk: Option<File>,
    /// The program's standard output.
    pub stdout: Sink,
    /// The program's standard error.
    pub stderr: Sink,
    /// Set if the program reads our standard input. Otherwise it finds it empty.
    pub stdin: bool,
    /// A fourth serial port on which the kernel itself may talk.
    pub kernel_log: bool,
    /// How long the kernel may take to say that it runs.
    pub boot_limit: Duration,
    /// How long everything may take.
    pub limit: Option<Duration>,
    /// The way to end QEMU after the exit line.
    pub farewell: Farewell,
    /// A plugin that watches the guest.
    pub plugin: Option<Plugin>,
    /// A file that ends the run when it is moved to its place.
    pub wanted: Option<PathBuf>,
}

/// The way to end QEMU after the program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// The guest powers off. QEMU gets a moment for that.
    ByItself,
    /// QEMU is killed at once.
    Killed,
    /// QEMU is asked to end, and waited for, because a plugin has something to write.
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

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The program called exit.
    Exited(i32),
    /// A signal killed the program.
    Killed(i32),
    /// The program was not started, for this reason.
    Refused(String),
    /// We were told to stop by this signal.
    Interrupted(i32),
    /// The guest failed.
    Failed(String),
    /// The guest did not boot in time: a stock kernel may do so when it is booted again.
    Unbooted(String),
    /// The file that ends the run is there.
    Enough,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The end of the run.
    pub end: End,
    /// The kernel's counters.
    pub stats: Option<Stats>,
    /// The crash, if the program died of one.
    pub crash: Option<Box<Crash>>,
    /// The owners of physical memory.
    pub owners: Option<Owners>,
}

/// A notice for the user while a guest runs.
#[derive(Debug)]
pub enum Notice<'a> {
    /// The guest said this.
    Line(&'a Line),
    /// It has not said anything for so long.
    StillBooting(Duration),
}

/// Takes the notices.
type Reader<'a> = dyn FnMut(Notice<'_>) + 'a;

/// A boot takes seconds; under a translator on a busy machine more. After this long it is worth a word.
const NOTICE_AFTER: Duration = Duration::from_secs(30);

/// Runs a guest to its end. `notice` gets what is for people.
pub fn run(plan: Plan, notice: &mut Reader<'_>) -> Result<Outcome> {
    let live = Live::start(&plan)?;
    let (end, said) = listen(&live, &plan, notice);
    let orderly = matches!(end, Some(End::Exited(_) | End::Killed(_) | End::Refused(_)));
    let farewell = match &end {
        // QEMU is on its way out by itself.
        None => Farewell::ByItself,
        Some(_) if orderly => plan.farewell,
        Some(_) => Farewell::Killed,
    };
    let words = live.end(farewell);
    let end = end.unwrap_or_else(|| End::Failed(said.explain(&words)));
    Ok(Outcome { end, stats: said.stats, crash: said.crash, owners: said.owners })
}

/// Hears the guest out. No end: QEMU left without an exit line.
fn listen(live: &Live, plan: &Plan, notice: &mut Reader<'_>) -> (Option<End>, Said) {
    let mut said = Said::default();
    let start = Instant::now();
    loop {
        let until = said.next_limit(plan).map(|limit| start + limit);
        let end = match live.next_event(until) {
            Ok(Event::Line(line)) => said.hear(&line, live, notice),
            Ok(Event::Enough) => Some(End::Enough),
            Ok(Event::Signal(signal)) => Some(End::Interrupted(signal)),
            Ok(Event::Closed) | Err(RecvTimeoutError::Disconnected) => return (None, said),
            Err(RecvTimeoutError::Timeout) => said.be_patient(plan, start.elapsed(), notice),
        };
        if end.is_some() {
            return (end, said);
        }
    }
}

/// The guest's reports that are needed after the run.
#[derive(Default)]
struct Said {
    booted: bool,
    /// Whether somebody was told that the boot takes long.
    slow: bool,
    panic: Option<String>,
    stats: Option<Stats>,
    crash: Option<Box<Crash>>,
    owners: Option<Owners>,
}

impl Said {
    /// Handles one line, and returns the run's end if it was the last one.
    fn hear(&mut self, text: &str, live: &Live, notice: &mut Reader<'_>) -> Option<End> {
        let Ok(line) = serde_json::from_str(text) else {
            let text = format!("unreadable line: {text}");
            notice(Notice::Line(&Line::Log { level: "error".to_owned(), text }));
            return None;
        };
        notice(Notice::Line(&line));
        match line {
            Line::Booted { .. } => self.booted = true,
            Line::Stdin => live.feed(),
            Line::Panic { text } => self.panic = Some(text),
            Line::Stats(stats) => self.stats = Some(stats),
            Line::Crash(crash) => self.crash = Some(crash),
            Line::Refused { text } => return Some(End::Refused(text)),
            Line::Owners(owners) => self.owners = Some(owners),
            Line::Exit { signal: Some(signal), .. } => return Some(End::Killed(signal)),
            Line::Exit { status, signal: None } => return Some(End::Exited(status.unwrap_or(0))),
            Line::Log { .. } | Line::UnknownSyscall { .. } | Line::Oom { .. } => {}
        }
        None
    }

    /// When something is to be done if the guest stays silent, counted from the start.
    fn next_limit(&self, plan: &Plan) -> Option<Duration> {
        let boot = (!self.booted).then_some(plan.boot_limit);
        let patience = (!self.booted && !self.slow).then_some(NOTICE_AFTER);
        [boot, patience, plan.limit].into_iter().flatten().min()
    }

    /// At one of the limits: the end, or a word about the boot.
    fn be_patient(&mut self, plan: &Plan, after: Duration, notice: &mut Reader<'_>) -> Option<End> {
        self.slow = true;
        if self.next_limit(plan).is_none_or(|limit| after < limit) {
            notice(Notice::StillBooting(after));
            return None;
        }
        Some(self.overdue(after.as_secs()))
    }

    fn overdue(&self, seconds: u64) -> End {
        if self.booted {
            End::Failed(format!("the guest did not end within {seconds} s"))
        } else {
            End::Unbooted(format!("the guest did not boot within {seconds} s"))
        }
    }

    /// Why QEMU left without an exit line, given its own words.
    fn explain(&self, words: &str) -> String {
        match &self.panic {
            Some(text) => format!("the kernel panicked: {text}"),
            None if self.booted => format!("the guest stopped: {words}"),
            None => format!("the guest did not boot: {words}; does it want more memory (-m)?"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::qemu::Accel;
    use super::*;

    fn plan(boot_limit: u64, limit: Option<u64>) -> Plan {
        Plan {
            machine: Machine { cpus: 1, memory: 0, accel: Accel::Tcg, cpu_model: "max" },
            kernel: PathBuf::new(),
            command_line: String::new(),
            image: Vec::new(),
            disk: None,
            stdout: Sink::buffer(),
            stderr: Sink::buffer(),
            stdin: false,
            kernel_log: false,
            boot_limit: Duration::from_secs(boot_limit),
            limit: limit.map(Duration::from_secs),
            farewell: Farewell::Killed,
            plugin: None,
            wanted: None,
        }
    }

    /// Seconds until each limit of a guest that never says anything, and what happens there.
    fn silence(plan: &Plan, mut said: Said) -> Vec<(u64, bool)> {
        let mut happened = Vec::new();
        while let Some(limit) = said.next_limit(plan) {
            let mut told = false;
            let end = said.be_patient(plan, limit, &mut |_| told = true);
            happened.push((limit.as_secs(), told));
            if end.is_some() {
                break;
            }
        }
        happened
    }

    #[test]
    fn a_slow_boot_is_told_once_and_then_ended() {
        assert_eq!(silence(&plan(94, None), Said::default()), [(30, true), (94, false)]);
        assert_eq!(silence(&plan(94, Some(600)), Said::default()), [(30, true), (94, false)]);
        assert_eq!(silence(&plan(5, Some(5)), Said::default()), [(5, false)]);
    }

    #[test]
    fn a_program_may_be_silent() {
        let booted = || Said { booted: true, ..Said::default() };
        assert_eq!(silence(&plan(94, None), booted()), []);
        assert_eq!(silence(&plan(94, Some(600)), booted()), [(600, false)]);
        assert_eq!(booted().overdue(600), End::Failed("the guest did not end within 600 s".to_owned()));
        assert_eq!(
            Said::default().overdue(94),
            End::Unbooted("the guest did not boot within 94 s".to_owned())
        );
    }
}
