//! The terminal: standard input, output and error of a run with `tty=ROWSxCOLUMNS`.
//!
//! There is one, `/dev/console`, on the first serial port, and it is the controlling terminal of the first
//! process's session. Its input arrives on the control port, unasked, in the frames of `fs::console`. A core
//! that is interrupted by it takes the bytes on its way to user mode, so that a control character sends its
//! signal although no thread reads.
//!
//! | a process of its session | reads | writes with TOSTOP, or changes the terminal |
//! |---|---|---|
//! | in the foreground group | yes | yes |
//! | in another group | its group gets SIGTTIN; EIO if that is ignored or the group is orphaned | the same with SIGTTOU; if that is ignored, yes |

mod discipline;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;

use abi::Errno;
use abi::file::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, S_IFCHR};
use abi::signal::*;
use abi::terminal::cc::{VMIN, VTIME};
use abi::terminal::*;
use sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sync::{SetOnce, SpinLock};

use super::signal::{self, Origin, bit};
use super::{Process, pid};
use crate::fs::content::{Content, WriteAt};
use crate::fs::node::{Node, NodeRef, Volume};
use crate::fs::{OpenFile, console, folder, readiness, tree};
use crate::mm::{fallible, user};
use crate::options;
use crate::sched::{self, Task, WaitQueue};
use discipline::Discipline;

/// Bytes that are written while the lock is held.
const PIECE: usize = 64;

/// Bytes of input that are taken while the lock is held.
const BURST: usize = 512;

/// A terminal.
struct Terminal {
    state: SpinLock<State>,
    readers: WaitQueue,
    writers: WaitQueue,
    /// Whether a call writes, whose bytes stay together. Acquire and Release: as a lock's.
    is_writing: AtomicBool,
    /// The session whose controlling terminal it is, and the group in the foreground. Relaxed: they order
    /// nothing.
    session: AtomicU32,
    foreground: AtomicU32,
}

struct State {
    discipline: Discipline,
    size: Winsize,
    /// Set when the host's terminal is gone.
    has_hung_up: bool,
}

static TERMINAL: Terminal = Terminal {
    state: SpinLock::new(State {
        discipline: Discipline::new(),
        size: Winsize { rows: 0, columns: 0, width: 0, height: 0 },
        has_hung_up: false,
    }),
    readers: WaitQueue::new(),
    writers: WaitQueue::new(),
    is_writing: AtomicBool::new(false),
    session: AtomicU32::new(0),
    foreground: AtomicU32::new(0),
};

/// The node of `/dev/console`.
static NODE: SetOnce<NodeRef> = SetOnce::new();

/// Adds the terminal to `/dev`, if this boot has one.
///
/// # Errors
/// ENOMEM.
pub fn populate(root: &NodeRef) -> Result<(), Errno> {
    if options::get().terminal.is_none() {
        return Ok(());
    }
    let dev = root.lookup(b"dev")?;
    let node = Node::file(Volume::System, 0o620, Console { minor: 1 })?.into_static()?;
    tree::attach(&dev, b"console", &node)?;
    NODE.set(node);
    let controlling = folder::device(|| {
        if !is_controlling(&sched::current()) {
            return Err(Errno::ENXIO);
        }
        let content: Box<dyn Content> = fallible::boxed(Console { minor: 0 })?;
        Ok(content)
    })?;
    tree::attach(&dev, b"tty", &controlling.into_static()?)
}

/// Makes it the controlling terminal of `first`, and returns its node, if this boot has one.
pub fn begin(first: &Process) -> Option<NodeRef> {
    let (rows, columns) = options::get().terminal?;
    TERMINAL.session.store(first.session(), Ordering::Relaxed);
    TERMINAL.foreground.store(first.group(), Ordering::Relaxed);
    TERMINAL.state.lock().size = Winsize { rows, columns, ..Winsize::default() };
    console::expect_all();
    NODE.get().cloned()
}

/// Takes the input that has arrived. Called on the way to user mode, without locks.
pub fn take_input() {
    if options::get().terminal.is_none() {
        return;
    }
    let mut signals = 0;
    let changed = {
        let mut state = TERMINAL.state.lock();
        let State { discipline, size, has_hung_up } = &mut *state;
        let mut changed = false;
        let mut left = BURST;
        while left > 0 && discipline.has_room() {
            match console::next_event() {
                None => break,
                Some(console::Event::Byte(byte)) => {
                    let sent = discipline.accept(byte, &mut |bytes| console::show(bytes));
                    signals |= sent.map_or(0, bit);
                }
                Some(console::Event::Size(rows, columns)) => {
                    *size = Winsize { rows, columns, ..Winsize::default() };
                    signals |= bit(SIGWINCH);
                }
                Some(console::Event::End) => {
                    *has_hung_up = true;
                }
            }
            (changed, left) = (true, left - 1);
        }
        if left == 0 {
            // The rest comes on the next way to user mode, and others get the lock before.
            console::on_input();
        }
        changed.then_some(*has_hung_up)
    };
    while signals != 0 {
        send_to_group(TERMINAL.foreground.load(Ordering::Relaxed), signals.trailing_zeros() + 1);
        signals &= signals - 1;
    }
    match changed {
        None => {}
        Some(has_hung_up) => {
            if has_hung_up {
                hang_up();
            }
            wake();
        }
    }
}

/// Tells the session that the host's terminal is gone.
fn hang_up() {
    let session = TERMINAL.session.load(Ordering::Relaxed);
    let foreground = TERMINAL.foreground.load(Ordering::Relaxed);
    for signal in [SIGHUP, SIGCONT] {
        if session != foreground
            && let Some(leader) = pid::process(session)
        {
            signal::send_to_process(&leader, signal, Origin::new(SI_KERNEL, 0));
        }
        send_to_group(foreground, signal);
    }
}

fn wake() {
    TERMINAL.readers.wake_all();
    TERMINAL.writers.wake_all();
    readiness::changed();
}

fn send_to_group(group: u32, signal: u32) {
    pid::for_each(|process| {
        if process.group() == group {
            signal::send_to_process(process, signal, Origin::new(SI_KERNEL, 0));
        }
    });
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

/// Checks that the running process is in the foreground, if it is of the terminal's session.
///
/// # Errors
/// EIO if it may not go on. EINTR if its group gets `signal`: the call is made again.
fn check_foreground(task: &Task, signal: u32) -> Result<(), Errno> {
    let process = task.process();
    let is_apart = process.session() == TERMINAL.session.load(Ordering::Relaxed)
        && process.group() != TERMINAL.foreground.load(Ordering::Relaxed);
    if !is_apart {
        return Ok(());
    }
    let signals = &task.thread.signals;
    let is_ignored = signals.mask() & bit(signal) != 0 || process.signals.action(signal).handler == SIG_IGN;
    match signal {
        SIGTTOU if is_ignored => return Ok(()),
        _ if is_ignored || is_orphaned(process.group()) => return Err(Errno::EIO),
        _ => send_to_group(process.group(), signal),
    }
    signals.allow_restart();
    Err(Errno::EINTR)
}

/// The contents of the terminal's nodes.
struct Console {
    minor: u32,
}

/// A turn to write.
struct Writing;

impl Writing {
    fn begin() -> Option<Self> {
        let taken = TERMINAL.is_writing.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then_some(Writing)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        TERMINAL.is_writing.store(false, Ordering::Release);
        TERMINAL.writers.wake_all();
    }
}

impl Content for Console {
    fn kind(&self) -> u32 {
        S_IFCHR
    }

    fn device(&self) -> (u32, u32) {
        (5, self.minor)
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        check_foreground(&sched::current(), SIGTTIN)?;
        if into.is_empty() {
            return Ok(0);
        }
        // A flush may have made room.
        take_input();
        let read = match deadline() {
            _ if !wait => match take(into, true) {
                None if is_polling(&TERMINAL.state.lock().discipline) => Ok(Some(0)),
                None => Err(Errno::EAGAIN),
                read => Ok(read),
            },
            until => TERMINAL.readers.wait_until_or(until, || take(into, false)),
        };
        let read = match read {
            Ok(Some(read)) => Ok(read),
            Ok(None) => Ok(take(into, true).unwrap_or(0)),
            // Bytes that are there come before the signal.
            Err(error) if wait => take(into, true).filter(|read| *read > 0).ok_or(error),
            Err(error) => Err(error),
        };
        // There is room again.
        take_input();
        read
    }

    fn write(&self, _at: WriteAt, from: &[u8], wait: bool) -> Result<usize, Errno> {
        if TERMINAL.state.lock().discipline.termios().local & TOSTOP != 0 {
            check_foreground(&sched::current(), SIGTTOU)?;
        }
        let _turn = TERMINAL.writers.attempt(wait, Writing::begin)?;
        let mut done = 0;
        for piece in from.chunks(PIECE) {
            // The port is slow, so others run and signals come between two pieces.
            let goes_on = sched::pause();
            let may_go_on = sched::current().check_interrupted();
            let put = || TERMINAL.writers.attempt(wait, || put(piece)).and_then(|written| written);
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

    fn ready(&self) -> i16 {
        let state = TERMINAL.state.lock();
        // Linux asks for VMIN if no time is limited.
        let is_timed = state.discipline.character(VTIME) > 0;
        let least = if is_timed { 1 } else { least(&state.discipline, usize::MAX) };
        let has_input = state.discipline.readable() >= least || state.has_hung_up;
        let input = if has_input { POLLIN | POLLRDNORM } else { 0 };
        let output = if state.discipline.stops() { 0 } else { POLLOUT | POLLWRNORM };
        input | output | if state.has_hung_up { POLLHUP | POLLERR } else { 0 }
    }

    fn waiting(&self, _at: u64) -> u64 {
        TERMINAL.state.lock().discipline.waiting() as u64
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// Writes bytes, if the output is not stopped.
fn put(bytes: &[u8]) -> Option<Result<(), Errno>> {
    let mut state = TERMINAL.state.lock();
    match (state.has_hung_up, state.discipline.stops()) {
        (true, _) => Some(Err(Errno::EIO)),
        (_, true) => None,
        _ => {
            state.discipline.put(bytes, &mut |bytes| console::show(bytes));
            Some(Ok(()))
        }
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

/// Returns the time until which a read waits, if that is limited: without lines, by VTIME.
fn deadline() -> Option<u64> {
    const TENTH: u64 = 100_000_000;
    let state = TERMINAL.state.lock();
    let discipline = &state.discipline;
    let is_limited = discipline.termios().local & ICANON == 0
        && (discipline.character(VMIN) == 0 || discipline.character(VTIME) > 0 && discipline.readable() > 0);
    is_limited.then(|| crate::arch::now_ns() + u64::from(discipline.character(VTIME)) * TENTH)
}

/// Takes input, if there is as much as a reader waits for, or `is_late`, or no more will come.
fn take(into: &mut [u8], is_late: bool) -> Option<usize> {
    let mut state = TERMINAL.state.lock();
    let least = if is_late { 1 } else { least(&state.discipline, into.len()) };
    if state.discipline.readable() >= least || state.has_hung_up {
        return Some(state.discipline.take(into).unwrap_or(0));
    }
    None
}

/// Handles an `ioctl` of a file.
///
/// # Errors
/// ENOTTY if it is no terminal. EINVAL, EFAULT, EPERM, ESRCH, EIO, EINTR.
pub fn control(task: &Task, file: &OpenFile, request: u64, argument: u64) -> Result<(), Errno> {
    let object = file.node().content().and_then(Content::stands_for);
    let _: &Console = object.and_then(<dyn Any>::downcast_ref).ok_or(Errno::ENOTTY)?;
    match request {
        // The copy to the program may sleep, and the lock is released before.
        TCGETS => {
            let termios = TERMINAL.state.lock().discipline.termios();
            user::write(argument, &termios)
        }
        TCGETS2 => {
            const SPEED: u32 = 38_400;
            let termios = TERMINAL.state.lock().discipline.termios();
            user::write(argument, &Termios2 { termios, input_speed: SPEED, output_speed: SPEED })
        }
        TCSETS..=TCSETSF => set(task, user::read(argument)?, request == TCSETSF),
        TCSETS2 | TCSETSW2 | TCSETSF2 => {
            let Termios2 { termios, .. } = user::read(argument)?;
            set(task, termios, request == TCSETSF2)
        }
        TCSBRK => check_foreground(task, SIGTTOU),
        TCXONC => set_flow(task, argument),
        TCFLSH => flush(task, argument),
        TIOCGWINSZ => {
            let size = TERMINAL.state.lock().size;
            user::write(argument, &size)
        }
        TIOCSWINSZ => set_size(user::read(argument)?),
        TIOCOUTQ => user::write(argument, &0_i32),
        TIOCSCTTY if is_controlling(task) => Ok(()),
        TIOCSCTTY if argument == 1 && task.process().session() == task.process().pid() => {
            TERMINAL.session.store(task.process().session(), Ordering::Relaxed);
            TERMINAL.foreground.store(task.process().group(), Ordering::Relaxed);
            Ok(())
        }
        TIOCSCTTY => Err(Errno::EPERM),
        TIOCGPGRP if is_controlling(task) => {
            user::write(argument, &TERMINAL.foreground.load(Ordering::Relaxed))
        }
        TIOCGSID if is_controlling(task) => user::write(argument, &TERMINAL.session.load(Ordering::Relaxed)),
        TIOCSPGRP => set_foreground(task, user::read(argument)?),
        _ => Err(Errno::ENOTTY),
    }
}

fn is_controlling(task: &Task) -> bool {
    task.process().session() == TERMINAL.session.load(Ordering::Relaxed)
}

fn set(task: &Task, termios: Termios, drops_input: bool) -> Result<(), Errno> {
    check_foreground(task, SIGTTOU)?;
    let mut state = TERMINAL.state.lock();
    if drops_input {
        state.discipline.flush();
    }
    state.discipline.set_termios(termios);
    drop(state);
    take_input();
    wake();
    Ok(())
}

fn set_flow(task: &Task, what: u64) -> Result<(), Errno> {
    check_foreground(task, SIGTTOU)?;
    match what {
        TCOOFF | TCOON => TERMINAL.state.lock().discipline.is_held = what == TCOOFF,
        // The host's terminal needs no byte for this.
        _ if what <= TCION => {}
        _ => return Err(Errno::EINVAL),
    }
    wake();
    Ok(())
}

fn flush(task: &Task, what: u64) -> Result<(), Errno> {
    check_foreground(task, SIGTTOU)?;
    match what {
        TCIFLUSH | TCIOFLUSH => {
            TERMINAL.state.lock().discipline.flush();
            take_input();
        }
        // Output is out when a write returns.
        TCOFLUSH => {}
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

fn set_size(size: Winsize) -> Result<(), Errno> {
    let old = core::mem::replace(&mut TERMINAL.state.lock().size, size);
    if old != size {
        send_to_group(TERMINAL.foreground.load(Ordering::Relaxed), SIGWINCH);
    }
    Ok(())
}

fn set_foreground(task: &Task, group: i32) -> Result<(), Errno> {
    check_foreground(task, SIGTTOU)?;
    if !is_controlling(task) {
        return Err(Errno::ENOTTY);
    }
    let group = u32::try_from(group).map_err(|_| Errno::EINVAL)?;
    let mut session = None;
    pid::for_each(|process| {
        if process.group() == group {
            session = Some(process.session());
        }
    });
    match session {
        None => Err(Errno::ESRCH),
        Some(of) if of != task.process().session() => Err(Errno::EPERM),
        Some(_) => {
            TERMINAL.foreground.store(group, Ordering::Relaxed);
            Ok(())
        }
    }
}
