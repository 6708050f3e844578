//! `ioctl` of terminals.

use abi::Errno;
use abi::signal::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGTTOU, SIGWINCH};
use abi::terminal::*;

use super::{Line, Terminal, pair, send_to_group};
use crate::fs::OpenFile;
use crate::mm::user;
use crate::process::pid;
use crate::sched::Task;

/// Handles an `ioctl` of a file.
///
/// # Errors
/// ENOTTY if it is no terminal. EINVAL, EFAULT, EPERM, ESRCH, EIO, EINTR.
pub fn control(task: &Task, file: &OpenFile, request: u64, argument: u64) -> Result<(), Errno> {
    let line = Line::of(file)?;
    let terminal = &*line.terminal;
    if line.is_master {
        match pair::control(line, request, argument) {
            Err(Errno::ENOTTY) => {}
            done => return done,
        }
    } else if terminal.state.lock().has_hung_up && !terminal.is_console {
        return Err(Errno::EIO);
    }
    // The master's process is no process of the terminal's session, or does as it likes.
    let check = || if line.is_master { Ok(()) } else { terminal.check_foreground(task, SIGTTOU) };
    match request {
        // The copy to the program may sleep, and the lock is released before.
        TCGETS => {
            let termios = terminal.state.lock().discipline.termios();
            user::write(argument, &termios)
        }
        TCGETS2 => {
            const SPEED: u32 = 38_400;
            let termios = terminal.state.lock().discipline.termios();
            user::write(argument, &Termios2 { termios, input_speed: SPEED, output_speed: SPEED })
        }
        TCSETS..=TCSETSF => {
            let termios = user::read(argument)?;
            check().map(|()| terminal.set(termios, request == TCSETSF))
        }
        TCSETS2 | TCSETSW2 | TCSETSF2 => {
            let Termios2 { termios, .. } = user::read(argument)?;
            check().map(|()| terminal.set(termios, request == TCSETSF2))
        }
        TCSBRK => check(),
        TCXONC => check().and_then(|()| terminal.set_flow(argument)),
        TCFLSH => check().and_then(|()| terminal.flush(argument)),
        TIOCGWINSZ => {
            let size = terminal.state.lock().size;
            user::write(argument, &size)
        }
        TIOCSWINSZ => {
            terminal.set_size(user::read(argument)?);
            Ok(())
        }
        TIOCOUTQ => user::write(argument, &0_i32),
        TIOCSCTTY if line.is_master => Err(Errno::EPERM),
        TIOCSCTTY => terminal.take_control(task, argument == 1),
        TIOCNOTTY if terminal.is_controlling(task) => {
            terminal.give_up_control(task);
            Ok(())
        }
        TIOCGPGRP if line.is_master || terminal.is_controlling(task) => {
            user::write(argument, &terminal.foreground())
        }
        TIOCGSID if terminal.is_controlling(task) || line.is_master && terminal.session() != 0 => {
            user::write(argument, &terminal.session())
        }
        TIOCSPGRP => {
            let group = user::read(argument)?;
            check().and_then(|()| terminal.set_foreground(task, group))
        }
        _ => Err(Errno::ENOTTY),
    }
}

impl Terminal {
    fn set(&self, termios: Termios, drops_input: bool) {
        let mut state = self.state.lock();
        if drops_input {
            state.discipline.flush();
        }
        state.discipline.set_termios(termios);
        drop(state);
        self.refill();
        self.wake();
    }

    fn set_flow(&self, what: u64) -> Result<(), Errno> {
        match what {
            TCOOFF | TCOON => self.state.lock().discipline.is_held = what == TCOOFF,
            // The host's terminal needs no byte for this.
            _ if what <= TCION => {}
            _ => return Err(Errno::EINVAL),
        }
        self.wake();
        Ok(())
    }

    fn flush(&self, what: u64) -> Result<(), Errno> {
        match what {
            TCIFLUSH | TCIOFLUSH => {
                self.state.lock().discipline.flush();
                self.refill();
            }
            // Output is out when a write returns.
            TCOFLUSH => {}
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    fn set_size(&self, size: Winsize) {
        let old = core::mem::replace(&mut self.state.lock().size, size);
        if old != size {
            send_to_group(self.foreground(), SIGWINCH);
        }
    }

    /// Takes the terminal from the task's session, if the task leads it. The foreground is told.
    fn give_up_control(&self, task: &Task) {
        let process = task.process();
        if process.session() == process.pid() {
            let foreground = self.foreground();
            self.set_session(0, 0);
            send_to_group(foreground, SIGHUP);
            send_to_group(foreground, SIGCONT);
        }
    }

    fn set_foreground(&self, task: &Task, group: i32) -> Result<(), Errno> {
        if !self.is_controlling(task) {
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
                self.foreground.store(group, sync::atomic::Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Sends a signal to the foreground, as the master asks.
    ///
    /// # Errors
    /// EINVAL.
    pub(super) fn signal(&self, number: u64) -> Result<(), Errno> {
        let signal =
            u32::try_from(number).ok().filter(|signal| matches!(*signal, SIGINT | SIGQUIT | SIGTSTP));
        send_to_group(self.foreground(), signal.ok_or(Errno::EINVAL)?);
        Ok(())
    }
}
