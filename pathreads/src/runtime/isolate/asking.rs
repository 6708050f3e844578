//! Requests to other members, and what this one does when it is asked. The protocol is in
//! `pathreads::requests`.

use core::sync::atomic::Ordering;

use abi::Errno;
use pathreads::record::{MOST_MEMBERS, Members};
use pathreads::requests::{self, Seat};

use super::lock::Linux;
use super::{
    Member, barriers, calls, control, fork, is_member, locked, me, postponed, prepare_stack, protect_here,
    replace_here, signals, snapshots, stale, stats, timers, try_unmap_here, whole,
};
use crate::sys::Result;
use crate::{context, sigaction};

/// A thing that a member is asked to do.
#[derive(Clone, Copy)]
pub enum Request {
    /// Unmap memory that is not recorded any more.
    Unmap { start: u64, end: u64 },
    /// Give the memory of a range the rights that are recorded.
    Protect { start: u64, end: u64 },
    /// Map the memory of a range as it is recorded, but for the right to write.
    Replace { start: u64, end: u64 },
    /// Set the action of a signal.
    Act { signal: u64, action: [u64; 4] },
    /// Answer, and wait while `stops` has this value.
    Stop { value: u32 },
    /// Take part in the barriers of other processes.
    Register,
    /// Have the processor fetch changed code again.
    Serialize,
    /// Prepare the call again in which this member waits.
    Look,
    /// Give up the right to write to snapshots with this file.
    Freeze { file: u64 },
    /// Unmap what is not mapped as it is recorded.
    Forget,
    /// Queue the signal that is described in the control area.
    Queue { signal: u64 },
    /// Make the call about a timer that is described in the control area.
    Time,
    /// Take no signals that another member reads (`signal_files`).
    Unread,
    /// Take the signals that were added to those that this member reads.
    Read,
    /// Leave the session, which the leader has left.
    LeaveSession,
}

/// Asks members, and waits for their answers. This member is left out. The lock is held.
pub fn request(members: Members, what: Request) {
    // A child of `vfork` acts in its maker's name, and has not what that has mapped.
    let members = if fork::is_sharing() { members } else { members.without(me()) };
    if members.is_empty() {
        return;
    }
    // SAFETY: the lock is held, and no member is asked.
    unsafe { control().request.get().write(what) };
    let seat = |member: usize| {
        let Member { thread, pending, .. } = &control().members[member];
        Seat { thread, pending }
    };
    stats::timed(stats::Work::Request, || requests::ask(members.iter().map(seat), &control().stops, &Linux));
}

/// Does so for a thing that a member with too many mappings cannot do. Others have done it then.
pub fn request_or_fail(members: Members, what: Request) -> Result<()> {
    let is_refused = &control().is_refused;
    is_refused.store(false, Ordering::Relaxed);
    request(members, what);
    // A member wrote it before its answer.
    if is_refused.load(Ordering::Relaxed) { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// Says whether this member has done what it was asked to do.
fn answer(result: Result) {
    if result.is_err() {
        control().is_refused.store(true, Ordering::Relaxed);
    }
}

/// Returns all members but this one.
pub fn others() -> Members {
    (0..MOST_MEMBERS).fold(Members::NONE, |set, member| {
        let is_there = control().members[member].thread.load(Ordering::Relaxed) != 0;
        if is_there && member != me() { set.with(member) } else { set }
    })
}

/// Notes where the stacks are of this member, which stands on one.
pub fn note_stacks_here() {
    let here = 0_u8;
    snapshots::note_stacks(&raw const here as u64);
}

/// Does what this member is asked to do, if it is, on the stack on which it stands.
pub fn serve_here() {
    let here = 0_u8;
    serve(&raw const here as u64);
}

/// Does what this member is asked to do, if it is. `pointer` is that of the stack where it was interrupted.
pub fn serve(pointer: u64) {
    if fork::is_sharing() {
        return;
    }
    let mut stops = None;
    requests::serve(&control().members[me()].pending, &Linux, || stops = do_as_asked(pointer));
    if let Some(value) = stops {
        stay_stopped(value, pointer);
    }
}

/// Does what this member is asked to do. Returns the value of `stops` if it is to stop.
#[inline(always)]
fn do_as_asked(pointer: u64) -> Option<u32> {
    // SAFETY: the requester waits until `pending` is cleared.
    let what = unsafe { *control().request.get() };
    match what {
        Request::Unmap { start, end } => {
            // First, because Linux has a limit of mappings.
            let _ = stale::unmap(0, u64::MAX);
            answer(try_unmap_here(start, end));
            stale::note_here();
            stale::open();
        }
        Request::Protect { start, end } => {
            // SAFETY: the requester holds the lock, and does not change the record until `pending` is
            // cleared.
            let record = unsafe { &*control().record.get() };
            let regions = record.touched(start, end).filter(|region| region.holders.has(me()));
            regions.for_each(|region| answer(protect_here(region)));
        }
        Request::Replace { start, end } => {
            // SAFETY: as above.
            let record = unsafe { &*control().record.get() };
            let regions = record.touched(start, end).filter(|region| region.holders.has(me()));
            regions.for_each(replace_here);
        }
        Request::Act { signal, action } => sigaction::set_here(signal, action),
        Request::Stop { .. } => snapshots::note_stacks(pointer),
        Request::Look => {}
        Request::Freeze { file } => {
            // SAFETY: as above.
            answer(snapshots::drop_rights_here(unsafe { &*control().record.get() }, file));
        }
        // SAFETY: as above.
        Request::Forget => answer(snapshots::forget_here(unsafe { &*control().record.get() })),
        Request::Register => {
            let _ = barriers::register();
        }
        Request::Serialize => barriers::serialize(),
        Request::Queue { signal } => signals::take_carried(signal),
        Request::Time => timers::make_asked(),
        Request::Unread => signals::stop_reading(),
        Request::Read => signals::go_on_reading(),
        Request::LeaveSession => whole::leave_session(),
    }
    if let Request::Stop { value } = what { Some(value) } else { None }
}

/// Waits until members go on, and does meanwhile what this one is asked to do.
fn stay_stopped(value: u32, pointer: u64) {
    requests::stay_stopped(&control().stops, value, &Linux, || serve(pointer));
}

/// Runs `f`, which copies the program's memory, while all other members are stopped. A copy that is made
/// while they write would have what one wrote last, and not what it wrote before. The lock is held.
pub fn with_others_stopped<R>(f: impl FnOnce() -> R) -> R {
    let stops = &control().stops;
    let value = requests::begin_stop(stops);
    request(others(), Request::Stop { value });
    let result = f();
    requests::end_stop(stops, &Linux);
    result
}

/// Handles SIGSTKFLT.
pub extern "C" fn on_request(_: u64, _: &context::Information, context: &mut context::Context) {
    let (mask, is_in_stub) = context.blocked();
    signals::serving(is_in_stub, mask, || serve(context.stack_pointer()));
    if context.is_in_program() {
        signals::pass_unread_on();
    }
    calls::IS_ASKED.store(1, Ordering::Relaxed);
    postponed::end_request(context);
    context::prepare_again(context);
}

/// Sets the action of a signal here, by `exchange`, and in all other members. Both happen under the lock, so
/// that all members end with the same action when two set it at once.
pub fn act<R>(signal: u64, action: [u64; 4], exchange: impl FnOnce() -> Result<R>) -> Result<R> {
    if !is_member() {
        return exchange();
    }
    prepare_stack();
    locked(|_| {
        let old = exchange()?;
        request(others(), Request::Act { signal, action });
        signals::note_action(signal);
        Ok(old)
    })
}
