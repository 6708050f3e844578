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

use super::boot_clock::{BootClock, Times};
use super::channels::Sink;
use super::live::{Event, Last, Live};
use super::network_arg::Network;
use super::protocol::{Crash, Line, Owners, Stats};
use super::qemu::Machine;
use crate::exit_status::StatusError;

/// The guest to run, and the destinations of its output.
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
    /// Set if the guest reads the host's files.
    pub host_files: bool,
    /// The directories that it may change, too.
    pub mounts: Vec<PathBuf>,
    /// The network, if it has one.
    pub network: Option<Network>,
    /// The program's standard output.
    pub stdout: Sink,
    /// The program's standard error.
    pub stderr: Sink,
    /// Set if the program reads our standard input. Otherwise it finds it empty.
    pub stdin: bool,
    /// Set if the program has our terminal, which is raw. Its input is passed on as it comes.
    pub terminal: bool,
    /// Set to add a fourth serial port for the kernel's log.
    pub kernel_log: bool,
    /// The time that the kernel may take to boot, by the [`boot_clock`](super::boot_clock).
    pub boot_limit: Duration,
    /// The time that the whole run may take.
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
    /// Set if it reads the guest's memory, which QEMU then maps from a file without a name.
    pub reads_memory: bool,
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
    /// The user stopped the run by this signal.
    Interrupted(i32),
    /// The guest failed.
    Failed(String),
    /// The guest did not boot in time. A stock kernel may boot the next time.
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
    /// Set if the changes of a file could not be written back.
    pub lost_changes: bool,
}

/// A notice for the user while a guest runs.
#[derive(Debug)]
pub enum Notice<'a> {
    /// A line of the guest.
    Line(&'a Line),
    /// The guest is still booting after these times.
    StillBooting(Times),
}

/// Takes the notices.
type Reader<'a> = dyn FnMut(Notice<'_>) + 'a;

/// The time between notices about a long boot. A boot takes seconds, and more under a translator on a busy
/// machine.
const REPORT_EVERY: Duration = Duration::from_secs(30);
/// The time between looks at the boot's clock.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs a guest to its end. `notice` gets the notices for the user.
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
    let Last { words, unwritable } = live.end(farewell);
    let end = match (end, unwritable) {
        (Some(_), Some(why)) if orderly => End::Failed(why),
        (Some(end), _) => end,
        (None, _) => End::Failed(said.explain(&words)),
    };
    let Said { stats, crash, owners, lost_changes, .. } = said;
    Ok(Outcome { end, stats, crash, owners, lost_changes })
}

/// Runs a guest without notices.
///
/// # Errors
/// Returns the errors of [`run`], and a signal to this process, with the status that a shell expects.
pub fn run_unwatched(plan: Plan) -> Result<Outcome> {
    let outcome = run(plan, &mut |_| {})?;
    match outcome.end {
        End::Interrupted(signal) => Err(StatusError::interrupted(signal)),
        _ => Ok(outcome),
    }
}

/// Handles events until the end. Returns no end if QEMU left without an exit line.
fn listen(live: &Live, plan: &Plan, notice: &mut Reader<'_>) -> (Option<End>, Said) {
    let mut said = Said::default();
    let mut clock = BootClock::start(live.process());
    let end = plan.limit.map(|limit| Instant::now() + limit);
    loop {
        let look = (!said.booted).then(|| Instant::now() + LOOK_EVERY);
        let event = live.next_event([look, end].into_iter().flatten().min());
        let end = match event {
            Ok(Event::Line(line)) => said.hear(&line, live, notice),
            Ok(Event::Enough) => Some(End::Enough),
            Ok(Event::Signal(signal)) => Some(End::Interrupted(signal)),
            Ok(Event::Unwritable(why)) => Some(End::Failed(why)),
            Ok(Event::Closed) | Err(RecvTimeoutError::Disconnected) => return (None, said),
            Err(RecvTimeoutError::Timeout) => said.look(plan, clock.look(), notice),
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
    /// The boot's clock at the guest's last line.
    heard: Duration,
    /// The time of the last notice that the boot takes long.
    told: Duration,
    /// The boot's clock at the last look.
    had: Duration,
    panic: Option<String>,
    stats: Option<Stats>,
    crash: Option<Box<Crash>>,
    owners: Option<Owners>,
    lost_changes: bool,
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
        self.heard = self.had;
        match line {
            Line::Booted { .. } => self.booted = true,
            Line::Stdin => live.feed(),
            Line::Panic { text } => self.panic = Some(text),
            Line::Stats(stats) => self.stats = Some(stats),
            Line::Crash(crash) => self.crash = Some(crash),
            Line::Refused { text } => return Some(End::Refused(text)),
            Line::Owners(owners) => self.owners = Some(owners),
            Line::Unwritten { .. } => self.lost_changes = true,
            Line::Exit { signal: Some(signal), .. } => return Some(End::Killed(signal)),
            Line::Exit { status, signal: None } => return Some(End::Exited(status.unwrap_or(0))),
            Line::Log { .. } | Line::UnknownSyscall { .. } | Line::Oom { .. } | Line::Call(_) => {}
        }
        None
    }

    /// Checks how far a silent guest is. Returns its end, or gives a notice about the boot.
    fn look(&mut self, plan: &Plan, times: Times, notice: &mut Reader<'_>) -> Option<End> {
        self.had = times.had;
        if plan.limit.is_some_and(|limit| times.elapsed >= limit) {
            return Some(End::Failed(format!("the guest did not end within {}", times.describe())));
        }
        if !self.booted && times.had.saturating_sub(self.heard) >= plan.boot_limit {
            return Some(End::Unbooted(unbooted(times)));
        }
        if !self.booted && times.elapsed - self.told >= REPORT_EVERY {
            self.told = times.elapsed;
            notice(Notice::StillBooting(times));
        }
        None
    }

    /// Explains why QEMU left without an exit line, from its own messages.
    fn explain(&self, words: &str) -> String {
        match &self.panic {
            Some(text) => format!("the kernel panicked: {text}"),
            None if self.booted => format!("the guest stopped: {words}"),
            None => format!("the guest did not boot: {words}; does it want more memory (-m)?"),
        }
    }
}

fn unbooted(times: Times) -> String {
    format!("the guest did not boot within {}; --boot-limit gives it more", times.describe())
}

#[cfg(test)]
mod tests {
    use super::super::qemu::Accel;
    use super::*;

    fn plan(boot_limit: u64, limit: Option<u64>) -> Plan {
        Plan {
            machine: Machine { cpus: 1, memory: 0, accel: Accel::Tcg, cpu_model: "max", gdb: None },
            kernel: PathBuf::new(),
            command_line: String::new(),
            image: Vec::new(),
            disk: None,
            host_files: false,
            mounts: Vec::new(),
            network: None,
            stdout: Sink::buffer(),
            stderr: Sink::buffer(),
            stdin: false,
            terminal: false,
            kernel_log: false,
            boot_limit: Duration::from_secs(boot_limit),
            limit: limit.map(Duration::from_secs),
            farewell: Farewell::Killed,
            plugin: None,
            wanted: None,
        }
    }

    /// Returns the result for a guest that never writes anything and gets one of every `share` seconds: the
    /// seconds of the notices that it still boots, and the end.
    fn silence(plan: &Plan, mut said: Said, share: u64) -> (Vec<u64>, Option<End>) {
        let mut told = Vec::new();
        for second in 1..1000 {
            let times =
                Times { elapsed: Duration::from_secs(second), had: Duration::from_secs(second / share) };
            let end = said.look(plan, times, &mut |_| told.push(second));
            if end.is_some() {
                return (told, end);
            }
        }
        (told, None)
    }

    fn unbooted_after(elapsed: u64, had: u64) -> Option<End> {
        let [elapsed, had] = [elapsed, had].map(Duration::from_secs);
        Some(End::Unbooted(unbooted(Times { elapsed, had })))
    }

    #[test]
    fn a_slow_boot_is_told_and_then_ended() {
        assert_eq!(silence(&plan(94, None), Said::default(), 1), (vec![30, 60, 90], unbooted_after(94, 94)));
        assert_eq!(silence(&plan(94, Some(600)), Said::default(), 1).1, unbooted_after(94, 94));
        let failed = End::Failed("the guest did not end within 5 s".to_owned());
        assert_eq!(silence(&plan(94, Some(5)), Said::default(), 1), (vec![], Some(failed)));
    }

    #[test]
    fn a_busy_machine_gives_a_boot_more_time_and_is_named() {
        let (told, end) = silence(&plan(94, None), Said::default(), 5);
        assert_eq!((told.len(), end), (15, unbooted_after(470, 94)));
        assert!(
            unbooted(Times { elapsed: Duration::from_secs(470), had: Duration::from_secs(94) })
                .contains("busy")
        );
    }

    #[test]
    fn a_line_is_progress() {
        let said = Said { heard: Duration::from_secs(50), ..Said::default() };
        assert_eq!(silence(&plan(94, None), said, 1).1, unbooted_after(144, 144));
    }

    #[test]
    fn a_program_may_be_silent() {
        let booted = || Said { booted: true, ..Said::default() };
        assert_eq!(silence(&plan(94, None), booted(), 1), (vec![], None));
        let (told, end) = silence(&plan(94, Some(600)), booted(), 1);
        assert_eq!((told, end), (vec![], Some(End::Failed("the guest did not end within 600 s".to_owned()))));
    }
}
