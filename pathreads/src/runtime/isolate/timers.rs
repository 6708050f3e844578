//! Timers of `timer_create`, `setitimer` and `alarm`. Linux keeps timers for a process, and POSIX for the
//! program: any thread uses one, it outlives the thread that made it, and its signal is the program's.
//!
//! So timers are the leader's process's, and a helper makes the calls of other members. Their signals are
//! given to members as others to the process (`signals`).
//!
//! A timer for one thread (SIGEV_THREAD_ID), which the C library also makes for SIGEV_THREAD, is that
//! member's process's: Linux sends no timer's signal to a thread of another process. The table has such
//! timers, and the program knows them by their places in it. Other members have that member make their calls
//! by requests.
//!
//! | `owner` of a place | the timer | becomes |
//! |---|---|---|
//! | 0 | is none | a member's, as it is made |
//! | a member's number plus one | is of that process. The leader's number stands for one that sends nothing | free, as it is deleted; gone, as the member ends |
//! | [`GONE`] | has gone with its thread | the leader's, with the next call that names it; free, in a new process |
//!
//! The table is read and written under the lock. A place is freed under the lock under which its timer is
//! found, before Linux deletes that, so one of several that delete a timer does.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::Errno;
use pathreads::record::Members;

use super::helpers::{self, What};
use super::{Request, control, leader, locked, me, member_of, own_thread, request, waiting};
use crate::dispatch::Then;
use crate::entry::Frame;
use crate::sys::{Result, harmless, nr};
use crate::user;

/// The most timers for one thread that a program has.
const MOST: usize = 512;

/// The number of the first timer in the table. Those of Linux are lower.
const FIRST: u64 = 1 << 30;

/// The words of a `sigevent`, and of a time with its interval.
const EVENT: usize = 8;
const TIME: usize = 4;

/// The words of memory for a call: what it reads, and what it writes.
const WORDS: usize = 12;
const READ: usize = 8;

const GONE: u32 = u32::MAX;
const OF_LEADER: u32 = 1;

struct Timer {
    owner: AtomicU32,
    /// Its number in that process.
    id: AtomicU32,
    /// Its clock.
    clock: AtomicU32,
}

/// The part of the control area for timers.
pub struct Timers {
    all: [Timer; MOST],
    /// The call that a member is asked to make, its memory and its result.
    call: [AtomicU64; 7],
    memory: [AtomicU64; WORDS],
    result: AtomicU64,
}

/// Where a timer is, and its number there.
enum Place {
    Leader(u64),
    Gone {
        clock: u64,
    },
    /// The call was made.
    Made(Result),
}

/// A call that names a timer, as its number and the address of its memory make it.
type Call<'a> = &'a dyn Fn(u64, u64) -> [u64; 7];

/// Forgets all timers, in a new process.
pub fn begin_process() {
    control().timers.all.iter().for_each(|timer| timer.owner.store(0, Ordering::Relaxed));
}

/// Notes that this member's timers go with it. The lock is held.
pub fn leave() {
    let own = |timer: &&Timer| timer.owner.load(Ordering::Relaxed) == me() as u32 + 1;
    control().timers.all.iter().filter(own).for_each(|timer| timer.owner.store(GONE, Ordering::Relaxed));
}

/// Returns whether a call about a timer is to be handled here: not the leader's own about one of its process.
/// Not inlined, because Go makes calls with little stack.
#[inline(never)]
pub fn is_handled(frame: &Frame) -> bool {
    let [number, id, event_at, ..] = frame.call;
    if super::fork::is_sharing() || waiting::makes_own_children() {
        return false;
    }
    let is_in_table = match number {
        nr::TIMER_CREATE => {
            event_at != 0 && user::words(event_at).is_ok_and(|event| member_for(&event).is_some())
        }
        _ => number_of(id) >= FIRST,
    };
    me() != 0 || is_in_table
}

/// Returns the number of a timer, which Linux reads as an `int`.
fn number_of(id: u64) -> u64 {
    u64::from(id as u32)
}

/// Returns the member whose process a timer with this event is to be of, if it is not the leader's.
fn member_for(event: &[u64; EVENT]) -> Option<usize> {
    const SIGEV_THREAD_ID: u64 = 4;
    let thread = u64::from(event[2] as u32);
    let is_for_thread = event[1] >> 32 == SIGEV_THREAD_ID && thread != u64::from(leader());
    if is_for_thread && super::is_thread(thread) { member_of(thread) } else { None }
}

/// Handles a call about a timer.
pub extern "C" fn handle(frame: &mut Frame) -> Then {
    let [number, a, b, c, d, ..] = frame.call;
    let id = number_of(a);
    let result = match number {
        nr::TIMER_CREATE => create(a, b, c),
        nr::TIMER_SETTIME => set(id, b, c, d),
        nr::TIMER_GETTIME => get(id, b),
        nr::TIMER_DELETE => delete(id),
        _ => make_call(id, &|id, _| [number, id, 0, 0, 0, 0, 0], &mut [0; WORDS]),
    };
    frame.rax = result.unwrap_or_else(Errno::to_result);
    Then::Return
}

fn set(id: u64, flags: u64, new_at: u64, old_at: u64) -> Result {
    if new_at == 0 {
        return Err(Errno::EINVAL);
    }
    let mut memory = [0; WORDS];
    memory[..TIME].copy_from_slice(&user::words::<TIME>(new_at)?);
    let call = |id, at| [nr::TIMER_SETTIME, id, flags, at, at + READ as u64 * 8, 0, 0];
    make_call(id, &call, &mut memory)?;
    if old_at != 0 {
        user::write_words(old_at, &memory[READ..])?;
    }
    Ok(0)
}

fn get(id: u64, at: u64) -> Result {
    let mut memory = [0; WORDS];
    make_call(id, &|id, at| [nr::TIMER_GETTIME, id, at + READ as u64 * 8, 0, 0, 0, 0], &mut memory)?;
    user::write_words(at, &memory[READ..])?;
    Ok(0)
}

/// Makes a timer.
fn create(clock: u64, event_at: u64, id_at: u64) -> Result {
    let event = if event_at == 0 { None } else { Some(user::words::<EVENT>(event_at)?) };
    let member = event.as_ref().and_then(member_for);
    let clock = clock_for(clock, member.unwrap_or(0));
    let id = match (event, member) {
        (Some(event), Some(_)) => create_for_thread(clock, &event)?,
        (event, _) => create_in_leader(clock, event)?,
    };
    user::write(id_at, &(id as u32).to_le_bytes()).inspect_err(|_| _ = delete(id))?;
    Ok(0)
}

/// Deletes a timer.
fn delete(id: u64) -> Result {
    let call = |id| [nr::TIMER_DELETE, id, 0, 0, 0, 0, 0];
    match remove(id, &|id, _| call(id))? {
        Place::Leader(id) => ask_helper(&|_| call(id), &mut [0; WORDS]),
        Place::Made(result) => result,
        Place::Gone { .. } => Ok(0),
    }
}

/// Finds a timer and frees its place. If it is of a member's process, the call is made there.
#[inline(never)]
fn remove(id: u64, call: Call) -> Result<Place> {
    if id < FIRST {
        return Ok(Place::Leader(id));
    }
    super::prepare_stack();
    locked(|_| {
        let place = find_locked(id, call, &mut [0; WORDS])?;
        entry(id)?.owner.store(0, Ordering::Relaxed);
        Ok(place)
    })
}

/// Returns the clock by which a timer in a member's process measures what `clock` does for this member.
/// Clocks of processors are a process's, and a thread of the program is one.
fn clock_for(clock: u64, member: usize) -> u64 {
    const CLOCK_PROCESS_CPUTIME_ID: u32 = 2;
    const CLOCK_THREAD_CPUTIME_ID: u32 = 3;
    const OF_PROCESSOR: u32 = 2;
    const OF_THREAD: u32 = 4;
    let number = clock as u32;
    let of_process = |process: u32| u64::from(!process << 3 | OF_PROCESSOR);
    if member != me() && matches!(number, CLOCK_PROCESS_CPUTIME_ID | CLOCK_THREAD_CPUTIME_ID) {
        return of_process(own_thread());
    }
    // One that names a thread.
    let named = !(number as i32 >> 3) as u32;
    let is_threads = number >> 31 != 0 && number & 7 == OF_THREAD | OF_PROCESSOR;
    if is_threads && member_of(u64::from(named)).is_some() { of_process(named) } else { clock }
}

fn create_in_leader(clock: u64, event: Option<[u64; EVENT]>) -> Result {
    let mut memory = [0; WORDS];
    memory[..EVENT].copy_from_slice(&event.unwrap_or_default());
    let call = |at| {
        let event_at = if event.is_some() { at } else { 0 };
        [nr::TIMER_CREATE, clock, event_at, at + READ as u64 * 8, 0, 0, 0]
    };
    ask_helper(&call, &mut memory)?;
    Ok(number_of(memory[READ]))
}

/// Makes a timer in the process of the thread that it is for.
#[inline(never)]
fn create_for_thread(clock: u64, event: &[u64; EVENT]) -> Result {
    super::prepare_stack();
    locked(|_| {
        let member = member_for(event).ok_or(Errno::EINVAL)?;
        let is_free = |timer: &Timer| timer.owner.load(Ordering::Relaxed) == 0;
        let index = control().timers.all.iter().position(is_free).ok_or(Errno::EAGAIN)?;
        let mut memory = [0; WORDS];
        memory[..EVENT].copy_from_slice(event);
        let call = |at| [nr::TIMER_CREATE, clock, at, at + READ as u64 * 8, 0, 0, 0];
        make_in(member, &call, &mut memory)?;
        let Timer { owner, id, clock: place } = &control().timers.all[index];
        id.store(memory[READ] as u32, Ordering::Relaxed);
        place.store(clock as u32, Ordering::Relaxed);
        owner.store(member as u32 + 1, Ordering::Relaxed);
        Ok(FIRST + index as u64)
    })
}

/// Makes a call about a timer in its process.
fn make_call(id: u64, call: Call, memory: &mut [u64; WORDS]) -> Result {
    loop {
        match find(id, call, memory)? {
            Place::Leader(id) => return ask_helper(&|at| call(id, at), memory),
            Place::Made(result) => return result,
            Place::Gone { clock } => replace(id, clock)?,
        }
    }
}

/// Returns the place in the table of a timer.
fn entry(id: u64) -> Result<&'static Timer> {
    let index = (id - FIRST) as usize;
    let timer = control().timers.all.get(index).ok_or(Errno::EINVAL)?;
    if timer.owner.load(Ordering::Relaxed) == 0 { Err(Errno::EINVAL) } else { Ok(timer) }
}

/// Finds a timer. If it is of a member's process, the call is made there before that ends.
#[inline(never)]
fn find(id: u64, call: Call, memory: &mut [u64; WORDS]) -> Result<Place> {
    if id < FIRST {
        return Ok(Place::Leader(id));
    }
    super::prepare_stack();
    locked(|_| find_locked(id, call, memory))
}

/// Does so for one in the table. The lock is held.
fn find_locked(id: u64, call: Call, memory: &mut [u64; WORDS]) -> Result<Place> {
    let timer = entry(id)?;
    let number = u64::from(timer.id.load(Ordering::Relaxed));
    Ok(match timer.owner.load(Ordering::Relaxed) {
        GONE => Place::Gone { clock: u64::from(timer.clock.load(Ordering::Relaxed)) },
        OF_LEADER => Place::Leader(number),
        owner => Place::Made(make_in(owner as usize - 1, &|at| call(number, at), memory)),
    })
}

/// Replaces a timer that has gone with its thread by one that sends nothing.
fn replace(id: u64, clock: u64) -> Result<()> {
    const SIGEV_NONE: u64 = 1 << 32;
    let new = create_in_leader(clock, Some([0, SIGEV_NONE, 0, 0, 0, 0, 0, 0]))?;
    super::prepare_stack();
    let is_used = locked(|_| {
        let is_gone = |timer: &&Timer| timer.owner.load(Ordering::Relaxed) == GONE;
        let Some(timer) = entry(id).ok().filter(is_gone) else { return false };
        timer.id.store(new as u32, Ordering::Relaxed);
        timer.owner.store(OF_LEADER, Ordering::Relaxed);
        true
    });
    if !is_used {
        let _ = delete(new);
    }
    Ok(())
}

fn write(to: &[AtomicU64], from: &[u64]) {
    to.iter().zip(from).for_each(|(place, word)| place.store(*word, Ordering::Relaxed));
}

fn read(from: &[AtomicU64], to: &mut [u64]) {
    to.iter_mut().zip(from).for_each(|(word, place)| *word = place.load(Ordering::Relaxed));
}

/// Makes a call in the leader's process, by the address of its memory.
fn ask_helper(call: &dyn Fn(u64) -> [u64; 7], memory: &mut [u64; WORDS]) -> Result {
    let job = helpers::own_job();
    write(&job.answer, memory);
    let result = helpers::ask(What::Call(call(job.answer_at(0))))?;
    read(&job.answer, memory);
    Ok(result)
}

/// Makes a call in a member's process. The lock is held.
fn make_in(member: usize, call: &dyn Fn(u64) -> [u64; 7], memory: &mut [u64; WORDS]) -> Result {
    let timers = &control().timers;
    write(&timers.memory, memory);
    write(&timers.call, &call(timers.memory.as_ptr() as u64));
    if member == me() {
        make_asked();
    } else {
        request(Members::NONE.with(member), Request::Time);
    }
    read(&timers.memory, memory);
    let result = timers.result.load(Ordering::Relaxed);
    Errno::from_result(result).map_or(Ok(result), Err)
}

/// Makes the call about a timer that this member is asked to make.
pub fn make_asked() {
    let timers = &control().timers;
    let mut call = [0; 7];
    read(&timers.call, &mut call);
    let [number, a, b, c, d, ..] = call;
    // The timer goes with this process, which another thread must not have then.
    waiting::note_own_state();
    let result = harmless!(number, a, b, c, d).unwrap_or_else(Errno::to_result);
    timers.result.store(result, Ordering::Relaxed);
}
