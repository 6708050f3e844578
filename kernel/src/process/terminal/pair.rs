//! Pseudo-terminals (`pty(7)`): each open of `/dev/ptmx` makes a pair, a master and a terminal `/dev/pts/N`.
//!
//! | one side | the other side |
//! |---|---|
//! | the master is closed | the terminal hangs up: reads end, writes and `ioctl` fail (EIO), the leader of its session gets SIGHUP, its name is gone |
//! | the terminal is closed for the last time | reads of the master fail (EIO) when the output is read, until it is opened again |
//!
//! The name of a terminal leads to one node as long as the master is open. An open of it makes contents that
//! count the open.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};

use abi::Errno;
use abi::file::{
    O_ACCMODE, O_CLOEXEC, O_NOCTTY, O_NONBLOCK, POLLHUP, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, S_IFCHR,
};
use abi::signal::SIGHUP;
use abi::terminal::*;
use sync::atomic::AtomicBool;
use sync::{SetOnce, SpinLock};

use super::discipline::Discipline;
use super::{KEPT, Line, Output, State, Terminal, send_to_group};
use crate::fs::content::{Content, WriteAt};
use crate::fs::folder::{self, DOTS, Folder, Show};
use crate::fs::holders::Holders;
use crate::fs::node::NodeRef;
use crate::fs::rights;
use crate::fs::{OpenFile, readiness, tree};
use crate::mm::static_or_arc::StaticOrArc;
use crate::mm::{fallible, user};
use crate::process::signal::bit;
use crate::sched;

/// The most pairs.
const MOST: usize = 64;
/// The major numbers of terminals and masters.
const TERMINALS: u32 = 136;
const MASTER: (u32, u32) = (5, 2);
/// Bytes of input that are taken while the lock is held.
const BURST: usize = 512;

/// A pair whose master is open.
struct Pair {
    terminal: Arc<Terminal>,
    /// The node of its name.
    node: NodeRef,
}

static PAIRS: SpinLock<[Option<Pair>; MOST]> = SpinLock::new([const { None }; MOST]);
/// Their number: the end of a process reads it. Relaxed: a session with a terminal has made it rise before.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The directory `/dev/pts`.
static DIRECTORY: SetOnce<NodeRef> = SetOnce::new();

/// Adds `ptmx` and `pts` to `dev`.
///
/// # Errors
/// ENOMEM.
pub(super) fn populate(dev: &NodeRef) -> Result<(), Errno> {
    tree::attach(dev, b"ptmx", &folder::device(MASTER, make)?.into_static()?)?;
    let directory = folder::node(Names { parent: dev.clone() })?.into_static()?;
    tree::attach(dev, b"pts", &directory)?;
    DIRECTORY.set(directory);
    Ok(())
}

/// The directory of the terminals.
struct Names {
    parent: NodeRef,
}

impl Folder for Names {
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        let number: usize = folder::number(name).ok_or(Errno::ENOENT)?;
        let pairs = PAIRS.lock();
        let pair = pairs.get(number).and_then(Option::as_ref).ok_or(Errno::ENOENT)?;
        Ok(pair.node.clone())
    }

    fn list(&self, position: u64, show: &mut Show<'_>) {
        let next = |from: u64| {
            let pairs = PAIRS.lock();
            (from as usize..MOST).find(|&at| pairs.get(at).is_some_and(Option::is_some)).map(|at| at as u64)
        };
        let _all = folder::list_numbers(position, (DOTS + 1, S_IFCHR), next, show);
    }

    fn parent(&self) -> Option<NodeRef> {
        Some(self.parent.clone())
    }
}

/// Makes a pair, and returns the contents of its master.
fn make() -> Result<Box<dyn Content>, Errno> {
    let mut kept = VecDeque::new();
    kept.try_reserve_exact(KEPT).map_err(|_| Errno::ENOMEM)?;
    let mut discipline = Discipline::new();
    discipline.allocate()?;
    let terminal = fallible::arc(Terminal::new(State::new(discipline, Output::Kept(kept), true), false))?;
    let number = enter(&terminal)?;
    let line = Line { terminal: StaticOrArc::Arc(terminal), device: MASTER, is_master: true, number };
    // If there is no memory, it is dropped and leaves.
    let master = Master { line, holders: Holders::new(), has_left: AtomicBool::new(false) };
    Ok(fallible::boxed(master)?)
}

/// Gives a pair the lowest free number.
///
/// # Errors
/// ENOSPC if there are too many, ENOMEM.
fn enter(terminal: &Arc<Terminal>) -> Result<usize, Errno> {
    loop {
        let is_free = |pair: &Option<Pair>| pair.is_none();
        let number = PAIRS.lock().iter().position(is_free).ok_or(Errno::ENOSPC)?;
        let (device, opened) = ((TERMINALS, number as u32), terminal.clone());
        let node = folder::device(device, move || open(&opened, device))?;
        node.set_permissions(0o620);
        node.set_owner(rights::owner_of_new());
        let mut pairs = PAIRS.lock();
        if let Some(place) = pairs.get_mut(number).filter(|place| place.is_none()) {
            *place = Some(Pair { terminal: terminal.clone(), node });
            COUNT.fetch_add(1, Ordering::Relaxed);
            return Ok(number);
        }
    }
}

/// Opens the terminal of a pair.
///
/// # Errors
/// EIO if it is locked or its master is closed, ENOMEM.
pub(super) fn open(terminal: &Arc<Terminal>, device: (u32, u32)) -> Result<Box<dyn Content>, Errno> {
    let line = Line::new(StaticOrArc::Arc(terminal.clone()), device);
    let content = fallible::boxed(Slave { line, holders: Holders::new(), is_open: AtomicBool::new(false) })?;
    let mut state = terminal.state.lock();
    if state.is_locked || state.has_hung_up {
        return Err(Errno::EIO);
    }
    (state.opens, state.was_open) = (state.opens + 1, true);
    content.is_open.store(true, Ordering::Relaxed);
    drop(state);
    Ok(content)
}

/// Opens the terminal of the master `file`, with `flags`.
///
/// # Errors
/// ENOTTY if it is no master, EINVAL, EIO, ENOMEM.
pub fn open_peer(file: &OpenFile, flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
    let Line { number, is_master: true, .. } = Line::of(file)? else { return Err(Errno::ENOTTY) };
    if flags & !(O_ACCMODE | O_NOCTTY | O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let directory = DIRECTORY.get().ok_or(Errno::EIO)?;
    let mut name = fallible::Text::default();
    core::fmt::Write::write_fmt(&mut name, format_args!("{number}")).map_err(|_| Errno::ENOMEM)?;
    let node = directory.lookup(&name.0).map_err(|_| Errno::EIO)?;
    OpenFile::found(node, (directory.clone(), name.0), flags)
}

/// Returns the terminal that controls a session.
pub(super) fn of_session(session: u32) -> Option<Arc<Terminal>> {
    if session == 0 || COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let pairs = PAIRS.lock();
    let found = pairs.iter().flatten().find(|pair| pair.terminal.session() == session);
    found.map(|pair| pair.terminal.clone())
}

/// Takes the terminal of a pair from the session whose leader has ended, and tells its foreground.
pub fn leader_ended(session: u32) {
    if let Some(terminal) = of_session(session) {
        let foreground = terminal.foreground();
        terminal.set_session(0, 0);
        send_to_group(foreground, SIGHUP);
    }
}

/// Handles an `ioctl` of a master.
///
/// # Errors
/// ENOTTY for those that it has in common with its terminal. EINVAL, EFAULT.
pub(super) fn control(line: &Line, request: u64, argument: u64) -> Result<(), Errno> {
    let terminal = &*line.terminal;
    match request {
        TIOCGPTN => user::write(argument, &(line.number as u32)),
        TIOCSPTLCK => {
            let lock: i32 = user::read(argument)?;
            terminal.state.lock().is_locked = lock != 0;
            Ok(())
        }
        TIOCGPTLCK => {
            let is_locked = terminal.state.lock().is_locked;
            user::write(argument, &i32::from(is_locked))
        }
        TIOCSIG => terminal.signal(argument),
        _ => Err(Errno::ENOTTY),
    }
}

/// The contents of a master.
struct Master {
    line: Line,
    holders: Holders,
    has_left: AtomicBool,
}

impl Master {
    /// Takes input from the program, as much as there is room for.
    fn feed(&self, from: &[u8]) -> Option<usize> {
        let terminal = &*self.line.terminal;
        let (mut done, mut signals) = (0, 0);
        {
            let mut state = terminal.state.lock();
            for &byte in from.iter().take(BURST) {
                if !state.discipline.has_room() {
                    break;
                }
                let sent = state.with_output(|discipline, show| discipline.accept(byte, show));
                signals |= sent.map_or(0, bit);
                done += 1;
            }
        }
        if done > 0 {
            terminal.send(signals);
            terminal.wake();
        }
        (done > 0).then_some(done)
    }

    /// Takes output of the terminal's programs.
    fn drain(&self, into: &mut [u8]) -> Option<Result<usize, Errno>> {
        let mut state = self.line.terminal.state.lock();
        let is_over = state.was_open && state.opens == 0;
        let Output::Kept(bytes) = &mut state.output else { return None };
        let taken = bytes.len().min(into.len());
        into.iter_mut().zip(bytes.drain(..taken)).for_each(|(place, byte)| *place = byte);
        match taken {
            0 if is_over => Some(Err(Errno::EIO)),
            0 => None,
            _ => Some(Ok(taken)),
        }
    }

    /// Hangs the terminal up, once.
    fn leave(&self) {
        if self.has_left.swap(true, Ordering::Relaxed) {
            return;
        }
        let terminal = &*self.line.terminal;
        let left = PAIRS.lock().get_mut(self.line.number).and_then(Option::take);
        COUNT.fetch_sub(1, Ordering::Relaxed);
        {
            let mut state = terminal.state.lock();
            state.has_hung_up = true;
            state.discipline.flush();
        }
        terminal.hang_up(false);
        terminal.set_session(0, 0);
        terminal.wake();
        drop(left);
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Content for Master {
    fn kind(&self) -> u32 {
        S_IFCHR
    }

    fn device(&self) -> (u32, u32) {
        MASTER
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        if into.is_empty() {
            return Ok(0);
        }
        let taken = self.line.terminal.masters.attempt(wait, || self.drain(into))??;
        self.line.terminal.writers.wake_all();
        readiness::changed();
        Ok(taken)
    }

    fn write(&self, _at: WriteAt, from: &[u8], wait: bool) -> Result<usize, Errno> {
        let mut done = 0;
        while let Some(rest) = from.get(done..).filter(|rest| !rest.is_empty()) {
            match self.line.terminal.masters.attempt(wait, || self.feed(rest)) {
                Ok(fed) => done += fed,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            if !sched::pause() {
                break;
            }
        }
        Ok(done)
    }

    fn ready(&self) -> i16 {
        let state = self.line.terminal.state.lock();
        let has_output = matches!(&state.output, Output::Kept(bytes) if !bytes.is_empty());
        let is_over = state.was_open && state.opens == 0;
        let input = if has_output { POLLIN | POLLRDNORM } else { 0 };
        let output = if state.discipline.has_room() { POLLOUT | POLLWRNORM } else { 0 };
        input | output | if is_over { POLLHUP } else { 0 }
    }

    fn waiting(&self, _at: u64) -> u64 {
        match &self.line.terminal.state.lock().output {
            Output::Kept(bytes) => bytes.len() as u64,
            Output::Port => 0,
        }
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.holders)
    }

    fn closed(&self) {
        self.leave();
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(&self.line)
    }
}

/// The contents of an open terminal of a pair.
struct Slave {
    line: Line,
    holders: Holders,
    is_open: AtomicBool,
}

impl Slave {
    /// Counts an open less, once.
    fn leave(&self) {
        if self.is_open.swap(false, Ordering::Relaxed) {
            let terminal = &*self.line.terminal;
            terminal.state.lock().opens -= 1;
            terminal.wake();
        }
    }
}

impl Drop for Slave {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Content for Slave {
    fn kind(&self) -> u32 {
        S_IFCHR
    }

    fn device(&self) -> (u32, u32) {
        self.line.device
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        self.line.read(at, into, wait)
    }

    fn write(&self, at: WriteAt, from: &[u8], wait: bool) -> Result<usize, Errno> {
        self.line.write(at, from, wait)
    }

    fn ready(&self) -> i16 {
        self.line.ready()
    }

    fn waiting(&self, at: u64) -> u64 {
        self.line.waiting(at)
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.holders)
    }

    fn closed(&self) {
        self.leave();
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(&self.line)
    }
}
