//! Terminals: that of a run with `tty=ROWSxCOLUMNS`, and pairs that programs make.
//!
//! ```text
//!   host ── serial port ── discipline ── /dev/console        one, if there is a `tty=`
//!   program ── /dev/ptmx ── discipline ── /dev/pts/N         a pair: the master, and the terminal
//! ```
//! | file | contents |
//! |---|---|
//! | `terminal` | reads and writes, which session a terminal controls, and its groups |
//! | `discipline` | what becomes of the bytes |
//! | `console` | the terminal on the serial port |
//! | `pair` | `/dev/ptmx` and `/dev/pts` |
//! | `control` | `ioctl` |
//!
//! | a process of the terminal's session | reads | writes with TOSTOP, or changes the terminal |
//! |---|---|---|
//! | in the foreground group | yes | yes |
//! | in another group | its group gets SIGTTIN; EIO if that is ignored or the group is orphaned | the same with SIGTTOU; if that is ignored, yes |

mod console;
mod control;
mod discipline;
mod pair;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::any::Any;

use abi::Errno;
use abi::file::{O_NOCTTY, POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, S_IFCHR};
use abi::signal::*;
use abi::terminal::cc::{VMIN, VTIME};
use abi::terminal::*;
use abi::users::CAP_SYS_ADMIN;
use sync::SpinLock;
use sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::signal::{self, Origin, bit};
use super::{Process, pid};
use crate::fs::content::{Content, WriteAt};
use crate::fs::node::NodeRef;
use crate::fs::{OpenFile, folder, readiness, tree};
use crate::mm::fallible;
use crate::mm::static_or_arc::StaticOrArc;
use crate::sched::{self, Task, WaitQueue};
use discipline::{Discipline, Show};

pub use console::{begin, take_input};
pub use control::control;
pub use pair::{leader_ended, open_peer};

/// Bytes that are written while the lock is held.
const PIECE: usize = 64;
/// The most bytes that appear for a byte of output, which are those of a tab.
const MOST_FOR_ONE: usize = 8;

/// A terminal.
struct Terminal {
    state: SpinLock<State>,
    readers: WaitQueue,
    writers: WaitQueue,
    /// Those that read or write the master of a pair.
    masters: WaitQueue,
    /// Whether a call writes, whose bytes stay together. Acquire and Release: as a lock's.
    is_writing: AtomicBool,
    /// The session whose controlling terminal it is, and the group in the foreground, or 0. Relaxed: they
    /// order nothing.
    session: AtomicU32,
    foreground: AtomicU32,
    is_console: bool,
}

struct State {
    discipline: Discipline,
    output: Output,
    size: Winsize,
    /// Set when the host's terminal, or the master, is gone.
    has_hung_up: bool,
    /// Of a pair: how often the terminal is open, whether it was, and whether it may be opened.
    opens: usize,
    was_open: bool,
    is_locked: bool,
}

/// Where output goes.
enum Output {
    /// To the serial port.
    Port,
    /// To the reader of the master. There is room for [`KEPT`] bytes.
    Kept(VecDeque<u8>),
}

/// The bytes of output that a pair keeps.
const KEPT: usize = 8192;

impl Output {
    /// Returns whether a piece of output may go there.
    fn has_room(&self) -> bool {
        match self {
            Self::Port => true,
            Self::Kept(bytes) => KEPT - bytes.len() >= PIECE * MOST_FOR_ONE,
        }
    }

    /// Adds bytes. If a pair is full, those that show its input are lost.
    fn show(&mut self, more: &[u8]) {
        match self {
            Self::Port => console::show(more),
            Self::Kept(bytes) => bytes.extend(more.iter().take(KEPT - bytes.len())),
        }
    }
}

impl State {
    const fn new(discipline: Discipline, output: Output, is_locked: bool) -> Self {
        let size = Winsize { rows: 0, columns: 0, width: 0, height: 0 };
        Self { discipline, output, size, has_hung_up: false, opens: 0, was_open: false, is_locked }
    }

    /// Calls `f` with the discipline and the place where it shows bytes.
    fn with_output<R>(&mut self, f: impl FnOnce(&mut Discipline, Show<'_>) -> R) -> R {
        let Self { discipline, output, .. } = self;
        f(discipline, &mut |bytes| output.show(bytes))
    }

    fn can_write(&self) -> bool {
        !self.discipline.stops() && self.output.has_room()
    }
}

/// Adds the terminals to `/dev`.
///
/// # Errors
/// ENOMEM.
pub fn populate(root: &NodeRef) -> Result<(), Errno> {
    let dev = root.lookup(b"dev")?;
    console::populate(&dev)?;
    pair::populate(&dev)?;
    let controlling = folder::device((5, 0), || {
        controlling(&sched::current()).map_or(Err(Errno::ENXIO), |terminal| match terminal {
            StaticOrArc::Static(_) => Ok(fallible::boxed(Line::new(terminal, (5, 0)))? as Box<dyn Content>),
            StaticOrArc::Arc(pair) => pair::open(&pair, (5, 0)),
        })
    })?;
    tree::attach(&dev, b"tty", &controlling.into_static()?)
}

/// Returns the controlling terminal of the task's session.
fn controlling(task: &Task) -> Option<StaticOrArc<Terminal>> {
    let session = task.process().session();
    let console = console::of_session(session).map(StaticOrArc::Static);
    console.or_else(|| pair::of_session(session).map(StaticOrArc::Arc))
}

/// Makes a terminal that the leader of a session has opened its controlling terminal, if neither has another.
pub fn opened(task: &Task, file: &OpenFile, flags: u32) {
    if let Ok(line) = Line::of(file)
        && flags & O_NOCTTY == 0
        && !line.is_master
    {
        let _has_another = line.terminal.take_control(task, false);
    }
}

/// Sends a signal to a group.
fn send_to_group(group: u32, signal: u32) {
    if group != 0 {
        pid::for_each(|process| {
            if process.group() == group {
                signal::send_to_process(process, signal, Origin::new(SI_KERNEL, 0));
            }
        });
    }
}

/// Returns whether all processes of a group have their parents in it or in another session, so that none
/// would continue it.
fn is_orphaned(group: u32) -> bool {
    let mut is_orphaned = true;
    pid::for_each(|process| {
        let is_kept = |parent: Arc<Process>| parent.group() != group && parent.session() == process.session();
        if process.group() == group && process.parent().is_some_and(is_kept) {
            is_orphaned = false;
        }
    });
    is_orphaned
}

impl Terminal {
    const fn new(state: State, is_console: bool) -> Self {
        Self {
            state: SpinLock::new(state),
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            masters: WaitQueue::new(),
            is_writing: AtomicBool::new(false),
            session: AtomicU32::new(0),
            foreground: AtomicU32::new(0),
            is_console,
        }
    }

    fn session(&self) -> u32 {
        self.session.load(Ordering::Relaxed)
    }

    fn foreground(&self) -> u32 {
        self.foreground.load(Ordering::Relaxed)
    }

    fn set_session(&self, session: u32, foreground: u32) {
        self.session.store(session, Ordering::Relaxed);
        self.foreground.store(foreground, Ordering::Relaxed);
    }

    fn is_controlling(&self, task: &Task) -> bool {
        task.process().session() == self.session()
    }

    /// Makes it the controlling terminal of the task's session, from which it may be taken if it `steals`.
    ///
    /// # Errors
    /// EPERM if the task does not lead its session, or one of both has another.
    fn take_control(&self, task: &Task, steals: bool) -> Result<(), Errno> {
        let process = task.process();
        let leads = process.session() == process.pid();
        if leads && self.is_controlling(task) {
            return Ok(());
        }
        let may_steal = || steals && sched::with_credentials(|of| of.can(CAP_SYS_ADMIN));
        if !leads || controlling(task).is_some() || self.session() != 0 && !may_steal() {
            return Err(Errno::EPERM);
        }
        self.set_session(process.session(), process.group());
        Ok(())
    }

    fn wake(&self) {
        self.readers.wake_all();
        self.writers.wake_all();
        self.masters.wake_all();
        readiness::changed();
    }

    /// Sends the signals of a set to the foreground.
    fn send(&self, mut signals: u64) {
        while signals != 0 {
            send_to_group(self.foreground(), signals.trailing_zeros() + 1);
            signals &= signals - 1;
        }
    }

    /// Tells the leader of the session, and the foreground if that is `told` too, that no one is there any
    /// more.
    fn hang_up(&self, told: bool) {
        let (session, foreground) = (self.session(), self.foreground());
        for signal in [SIGHUP, SIGCONT] {
            if (session != foreground || !told)
                && let Some(leader) = pid::process(session)
            {
                signal::send_to_process(&leader, signal, Origin::new(SI_KERNEL, 0));
            }
            if told {
                send_to_group(foreground, signal);
            }
        }
    }

    /// Checks that the running process is in the foreground, if it is of the terminal's session.
    ///
    /// # Errors
    /// EIO if it may not go on. EINTR if its group gets `signal`: the call is made again.
    fn check_foreground(&self, task: &Task, signal: u32) -> Result<(), Errno> {
        let process = task.process();
        if !self.is_controlling(task) || process.group() == self.foreground() {
            return Ok(());
        }
        let signals = &task.thread.signals;
        let is_ignored =
            signals.mask() & bit(signal) != 0 || process.signals.action(signal).handler == SIG_IGN;
        match signal {
            SIGTTOU if is_ignored => return Ok(()),
            _ if is_ignored || is_orphaned(process.group()) => return Err(Errno::EIO),
            _ => send_to_group(process.group(), signal),
        }
        signals.allow_restart();
        Err(Errno::EINTR)
    }

    /// Takes the input for which there is room by now.
    fn refill(&self) {
        if self.is_console {
            take_input();
        } else {
            self.masters.wake_all();
            readiness::changed();
        }
    }

    fn read(&self, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        self.check_foreground(&sched::current(), SIGTTIN)?;
        if into.is_empty() {
            return Ok(0);
        }
        // A flush may have made room.
        self.refill();
        let read = match self.deadline() {
            _ if !wait => match self.take(into, true) {
                None if is_polling(&self.state.lock().discipline) => Ok(Some(0)),
                None => Err(Errno::EAGAIN),
                read => Ok(read),
            },
            until => self.readers.wait_until_or(until, || self.take(into, false)),
        };
        let read = match read {
            Ok(Some(read)) => Ok(read),
            Ok(None) => Ok(self.take(into, true).unwrap_or(0)),
            // Bytes that are there come before the signal.
            Err(error) if wait => self.take(into, true).filter(|read| *read > 0).ok_or(error),
            Err(error) => Err(error),
        };
        // There is room again.
        self.refill();
        read
    }

    fn write(&self, from: &[u8], wait: bool) -> Result<usize, Errno> {
        if self.state.lock().discipline.termios().local & TOSTOP != 0 {
            self.check_foreground(&sched::current(), SIGTTOU)?;
        }
        let _turn = self.writers.attempt(wait, || Writing::begin(self))?;
        let mut done = 0;
        for piece in from.chunks(PIECE) {
            // The port is slow, so others run and signals come between two pieces.
            let goes_on = sched::pause();
            let may_go_on = sched::current().check_interrupted();
            let put = || self.writers.attempt(wait, || self.put(piece)).and_then(|written| written);
            match may_go_on.and_then(|()| put()) {
                Ok(()) => done += piece.len(),
                Err(error) if done == 0 => {
                    if goes_on && error == Errno::EINTR {
                        sched::current().thread.signals.allow_restart();
                    }
                    return Err(error);
                }
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes bytes, if the output is not stopped and there is room.
    fn put(&self, bytes: &[u8]) -> Option<Result<(), Errno>> {
        let mut state = self.state.lock();
        match (state.has_hung_up, state.can_write()) {
            (true, _) => return Some(Err(Errno::EIO)),
            (false, false) => return None,
            (false, true) => state.with_output(|discipline, show| discipline.put(bytes, show)),
        }
        drop(state);
        if !self.is_console {
            self.masters.wake_all();
            readiness::changed();
        }
        Some(Ok(()))
    }

    /// Returns the time until which a read waits, if that is limited: without lines, by VTIME.
    fn deadline(&self) -> Option<u64> {
        const TENTH: u64 = 100_000_000;
        let state = self.state.lock();
        let discipline = &state.discipline;
        let is_limited = discipline.termios().local & ICANON == 0
            && (discipline.character(VMIN) == 0
                || discipline.character(VTIME) > 0 && discipline.readable() > 0);
        is_limited.then(|| crate::arch::now_ns() + u64::from(discipline.character(VTIME)) * TENTH)
    }

    /// Takes input, if there is as much as a reader waits for, or `is_late`, or no more will come.
    fn take(&self, into: &mut [u8], is_late: bool) -> Option<usize> {
        let mut state = self.state.lock();
        let least = if is_late { 1 } else { least(&state.discipline, into.len()) };
        if state.discipline.readable() >= least || state.has_hung_up {
            return Some(state.discipline.take(into).unwrap_or(0));
        }
        None
    }

    fn ready(&self) -> i16 {
        let state = self.state.lock();
        // Linux asks for VMIN if no time is limited.
        let is_timed = state.discipline.character(VTIME) > 0;
        let least = if is_timed { 1 } else { least(&state.discipline, usize::MAX) };
        let has_input = state.discipline.readable() >= least || state.has_hung_up;
        let input = if has_input { POLLIN | POLLRDNORM } else { 0 };
        let output = if state.can_write() || state.has_hung_up { POLLOUT | POLLWRNORM } else { 0 };
        input | output | if state.has_hung_up { POLLHUP | POLLERR } else { 0 }
    }
}

/// Returns whether a read without input returns at once.
fn is_polling(discipline: &Discipline) -> bool {
    discipline.termios().local & ICANON == 0
        && discipline.character(VMIN) == 0
        && discipline.character(VTIME) == 0
}

/// Returns the bytes for which a read waits that wants this number.
fn least(discipline: &Discipline, wanted: usize) -> usize {
    let is_canonical = discipline.termios().local & ICANON != 0;
    if is_canonical { 1 } else { usize::from(discipline.character(VMIN)).min(wanted).max(1) }
}

/// A turn to write.
struct Writing<'t>(&'t Terminal);

impl<'t> Writing<'t> {
    fn begin(terminal: &'t Terminal) -> Option<Self> {
        let taken = terminal.is_writing.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Writing(terminal))
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.is_writing.store(false, Ordering::Release);
        self.0.writers.wake_all();
    }
}

/// A file of a terminal.
struct Line {
    terminal: StaticOrArc<Terminal>,
    device: (u32, u32),
    is_master: bool,
    /// The number of a pair.
    number: usize,
}

impl Line {
    const fn new(terminal: StaticOrArc<Terminal>, device: (u32, u32)) -> Self {
        Self { terminal, device, is_master: false, number: 0 }
    }

    /// Returns the terminal that `file` is of.
    ///
    /// # Errors
    /// ENOTTY.
    fn of(file: &OpenFile) -> Result<&Self, Errno> {
        let object = file.node().content().and_then(Content::stands_for);
        object.and_then(<dyn Any>::downcast_ref).ok_or(Errno::ENOTTY)
    }
}

impl Content for Line {
    fn kind(&self) -> u32 {
        S_IFCHR
    }

    fn device(&self) -> (u32, u32) {
        self.device
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        self.terminal.read(into, wait)
    }

    fn write(&self, _at: WriteAt, from: &[u8], wait: bool) -> Result<usize, Errno> {
        self.terminal.write(from, wait)
    }

    fn ready(&self) -> i16 {
        self.terminal.ready()
    }

    fn waiting(&self, _at: u64) -> u64 {
        self.terminal.state.lock().discipline.waiting() as u64
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
