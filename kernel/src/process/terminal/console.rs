//! The terminal on the first serial port, `/dev/console`: standard input, output and error of a run with
//! `tty=ROWSxCOLUMNS`.
//!
//! It is the controlling terminal of the first process's session. Its input arrives on the control port,
//! unasked, in the frames of `fs::console`. A core that is interrupted by it takes the bytes on its way to
//! user mode, so that a control character sends its signal although no thread reads.

use abi::Errno;
use abi::signal::SIGWINCH;
use abi::terminal::Winsize;
use sync::SetOnce;

use super::discipline::Discipline;
use super::{Line, Output, State, Terminal};
use crate::fs::node::{Node, NodeRef, Volume};
use crate::fs::{console, tree};
use crate::mm::static_or_arc::StaticOrArc;
use crate::options;
use crate::process::Process;
use crate::process::signal::bit;

pub(super) use crate::fs::console::show;

/// Bytes of input that are taken while the lock is held.
const BURST: usize = 512;

static TERMINAL: Terminal = Terminal::new(State::new(Discipline::new(), Output::Port, false), true);

/// The node of `/dev/console`.
static NODE: SetOnce<NodeRef> = SetOnce::new();

/// Adds the terminal to `dev`, if this boot has one.
///
/// # Errors
/// ENOMEM.
pub(super) fn populate(dev: &NodeRef) -> Result<(), Errno> {
    if options::get().terminal.is_none() {
        return Ok(());
    }
    TERMINAL.state.lock().discipline.allocate()?;
    let content = Line::new(StaticOrArc::Static(&TERMINAL), (5, 1));
    let node = Node::file(Volume::System, 0o620, content)?.into_static()?;
    tree::attach(dev, b"console", &node)?;
    NODE.set(node);
    Ok(())
}

/// Makes it the controlling terminal of `first`, and returns its node, if this boot has one.
pub fn begin(first: &Process) -> Option<NodeRef> {
    let (rows, columns) = options::get().terminal?;
    TERMINAL.set_session(first.session(), first.group());
    TERMINAL.state.lock().size = Winsize { rows, columns, ..Winsize::default() };
    console::expect_all();
    NODE.get().cloned()
}

/// Returns the terminal, if it is that of a session.
pub(super) fn of_session(session: u32) -> Option<&'static Terminal> {
    (session != 0 && TERMINAL.session() == session).then_some(&TERMINAL)
}

/// Takes the input that has arrived. Called on the way to user mode, without locks.
pub fn take_input() {
    if options::get().terminal.is_none() {
        return;
    }
    let mut signals = 0;
    let changed = {
        let mut state = TERMINAL.state.lock();
        let mut changed = false;
        let mut left = BURST;
        while left > 0 && state.discipline.has_room() {
            match console::next_event() {
                None => break,
                Some(console::Event::Byte(byte)) => {
                    let sent = state.with_output(|discipline, show| discipline.accept(byte, show));
                    signals |= sent.map_or(0, bit);
                }
                Some(console::Event::Size(rows, columns)) => {
                    state.size = Winsize { rows, columns, ..Winsize::default() };
                    signals |= bit(SIGWINCH);
                }
                Some(console::Event::End) => {
                    state.has_hung_up = true;
                }
            }
            (changed, left) = (true, left - 1);
        }
        if left == 0 {
            // The rest comes on the next way to user mode, and others get the lock before.
            console::on_input();
        }
        changed.then_some(state.has_hung_up)
    };
    TERMINAL.send(signals);
    match changed {
        None => {}
        Some(has_hung_up) => {
            if has_hung_up {
                TERMINAL.hang_up(true);
            }
            TERMINAL.wake();
        }
    }
}
