//! The state that Linux keeps for a process and the program has as a whole: limits, group and session.
//! The leader's process has the program's, and all members have the same, so that a new one inherits it. All
//! is changed under the lock, so no member is made meanwhile.
//!
//! Linux moves no process to another session. So each member begins one of its own when the leader does, and
//! is asked about the leader's.

use abi::Errno;

use super::helpers::{self, What};
use super::{Request, control, leader, locked, me, member_of, memory, others, refuse, request};
use crate::dispatch::Then;
use crate::entry::Frame;
use crate::sys::{Result, harmless, nr};
use crate::user;

/// Returns whether a call is about the program, and not about another process, such as a child of `vfork`
/// that makes it. Not inlined, because Go makes calls with little stack.
#[inline(never)]
pub fn is_programs(number: u64, process: u64) -> bool {
    let has_process = !matches!(number, nr::SETSID | nr::GETPGRP);
    let process = u64::from(process as u32);
    super::is_member() && (!has_process || process == 0 || member_of(process).is_some())
}

/// Returns the program's group or session. Not inlined, because Go makes calls with little stack.
#[inline(never)]
pub fn group(number: u64) -> Result {
    let asked = if number == nr::GETSID { nr::GETSID } else { nr::GETPGID };
    harmless!(asked, u64::from(leader()))
}

/// Moves the program to a group, or to a session of its own.
pub extern "C" fn move_to_group(frame: &mut Frame) -> Then {
    let [number, _, group, ..] = frame.call;
    let moved = if number == nr::SETSID { begin_session() } else { set_group(group) };
    frame.rax = moved.unwrap_or_else(Errno::to_result);
    Then::Return
}

fn begin_session() -> Result {
    let session = helpers::ask(What::Call([nr::SETSID, 0, 0, 0, 0, 0, 0]))?;
    super::prepare_stack();
    locked(|_| {
        leave_session();
        request(others(), Request::LeaveSession);
    });
    Ok(session)
}

/// Begins a session of this member, unless it has one.
pub fn leave_session() {
    let _ = harmless!(nr::SETSID);
}

fn set_group(group: u64) -> Result {
    helpers::ask(What::Call([nr::SETPGID, 0, group, 0, 0, 0, 0]))?;
    super::prepare_stack();
    locked(|_| {
        let group = harmless!(nr::GETPGID, u64::from(leader()))?;
        // Members are the leader's children.
        for member in 1.. {
            let Some(thread) = thread_of(member) else { break };
            if thread != 0 {
                let _ = helpers::ask(What::Call([nr::SETPGID, thread, group, 0, 0, 0, 0]));
            }
        }
        Ok(0)
    })
}

/// Returns the number in Linux of a member, or 0, if it may be one.
fn thread_of(member: usize) -> Option<u64> {
    use core::sync::atomic::Ordering;
    let most = control().most.load(Ordering::SeqCst) as usize;
    (member <= most).then(|| u64::from(control().members[member].thread.load(Ordering::Relaxed)))
}

/// Handles `setrlimit` and `prlimit`.
pub extern "C" fn set_limit(frame: &mut Frame) -> Then {
    let [number, a, b, c, d, ..] = frame.call;
    let is_old = number == nr::SETRLIMIT;
    let (process, kind, new_at, old_at) = if is_old { (0, a, b, 0) } else { (a, b, c, d) };
    let is_unread = is_old && new_at == 0;
    frame.rax = if is_programs(number, process) && !is_unread {
        exchange_limit(u64::from(kind as u32), new_at, old_at).unwrap_or_else(Errno::to_result)
    } else {
        // SAFETY: the call is the program's, and the kernel writes to its memory alone.
        unsafe { crate::sys::raw(number, frame.arguments()) }
    };
    Then::Return
}

/// Reads a limit of the program, and sets it.
fn exchange_limit(kind: u64, new_at: u64, old_at: u64) -> Result {
    let new = if new_at == 0 { None } else { Some(user::words::<2>(new_at)?) };
    if kind == super::RLIMIT_FSIZE && new.is_some_and(|[limit, _]| limit != u64::MAX) {
        return Err(refuse(b"a limit of the size of files"));
    }
    let mut old = [0_u64; 2];
    super::prepare_stack();
    locked(|_| {
        let new_at = new.as_ref().map_or(0, |new| new.as_ptr() as u64);
        harmless!(nr::PRLIMIT64, 0, kind, new_at, old.as_mut_ptr() as u64)?;
        if new_at != 0 {
            for member in others().iter().filter(|member| *member != me()) {
                let thread = thread_of(member).unwrap_or(0);
                let _ = harmless!(nr::PRLIMIT64, thread, kind, new_at, 0);
            }
            memory::note_limit();
        }
        Ok(())
    })?;
    if old_at != 0 {
        user::write_words(old_at, &old)?;
    }
    Ok(0)
}
