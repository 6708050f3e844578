//! The clocks of processor time: `clock_gettime`, `getrusage` and `times` of the program, and clocks of other
//! threads. Linux measures a process, which is one thread here, so the times of all members are added
//! ([`cpu_timers`](super::cpu_timers)). A process that was another thread before has used time for that,
//! which is taken off. Before there are other threads the calls are Linux's.

use abi::Errno;

use super::cpu_timers::{CpuClock, MICROSECOND, SECOND, sum, used_by};
use super::is_thread as is_thread_of_program;
use super::{fork, leader, locked, me, member_of, own_thread, prepare_stack, thread};
use crate::dispatch::Then;
use crate::entry::Frame;
use crate::sys::{Result, harmless, nr};
use crate::user;

const RUSAGE_SELF: u32 = 0;
const RUSAGE_THREAD: u32 = 1;
/// The unit of `times`, which Linux has on all machines of this kind.
const TICK: u64 = SECOND / 100;

/// A clock of processor time.
enum Of {
    Program(CpuClock),
    Thread(usize, CpuClock),
}

/// Returns the clock that a number stands for, if Linux would measure too little, or not know it.
fn clock(number: u64) -> Option<Of> {
    const PROCESS: i32 = 2;
    const OWN_THREAD: i32 = 3;
    const IS_THREAD: i32 = 4;
    let number = number as i32;
    match number {
        PROCESS => return Some(Of::Program(CpuClock::Exact)),
        OWN_THREAD => return own(CpuClock::Exact),
        0.. => return None,
        _ => {}
    }
    // Of a process or a thread: its number, inverted, above three bits.
    let (process, kind) = ((!(number >> 3)) as u32, CpuClock::of(number & 3)?);
    let is_thread = number & IS_THREAD != 0;
    match is_thread {
        true if [0, own_thread()].contains(&process) => own(kind),
        true if !is_thread_of_program(u64::from(process)) => None,
        true => member_of(u64::from(process)).map(|member| Of::Thread(member, kind)),
        false => [0, leader()].contains(&process).then_some(Of::Program(kind)),
    }
}

/// Returns the clock of this thread. Linux has that of the leader's own, which is one of its process's
/// threads.
fn own(kind: CpuClock) -> Option<Of> {
    (me() != 0).then(|| Of::Thread(me(), kind))
}

/// Returns whether a call is about time that Linux keeps for another member, too.
pub fn is_handled(number: u64, first: u64) -> bool {
    let is_about = || match number {
        nr::CLOCK_GETTIME => clock(first).is_some(),
        nr::CLOCK_GETRES => matches!(clock(first), Some(Of::Thread(..))),
        nr::GETRUSAGE => first as u32 == RUSAGE_SELF || first as u32 == RUSAGE_THREAD && me() != 0,
        _ => true,
    };
    !fork::is_sharing() && (me() != 0 || thread::is_watched()) && is_about()
}

/// Handles such a call. Its memory is mapped.
pub extern "C" fn handle(frame: &mut Frame) -> Then {
    prepare_stack();
    let [number, a, b, ..] = frame.call;
    let result = match number {
        nr::CLOCK_GETTIME => read(a, b),
        nr::CLOCK_GETRES => resolution(b),
        nr::GETRUSAGE => usage(a as u32, b),
        _ => times(a),
    };
    frame.rax = result.unwrap_or_else(Errno::to_result);
    Then::Return
}

fn read(number: u64, at: u64) -> Result {
    let time = match clock(number) {
        Some(Of::Thread(member, kind)) => used_by(member, kind),
        Some(Of::Program(kind)) => locked(|_| sum(kind)),
        None => return Err(Errno::EINVAL),
    };
    user::write_words(at, &[time / SECOND, time % SECOND]).map(|()| 0)
}

/// All these clocks have one resolution.
fn resolution(at: u64) -> Result {
    const OWN_THREAD: u64 = 3;
    let mut time = [0_u64; 2];
    harmless!(nr::CLOCK_GETRES, OWN_THREAD, time.as_mut_ptr() as u64)?;
    if at == 0 { Ok(0) } else { user::write_words(at, &time).map(|()| 0) }
}

/// Returns the time of the program, or of this thread, in user mode and in the kernel. As in Linux the sum is
/// exact, and divided by what was seen at ticks.
fn user_and_kernel(who: u32) -> [u64; 2] {
    let read = |clock| if who == RUSAGE_THREAD { used_by(me(), clock) } else { sum(clock) };
    locked(|_| {
        let [exact, user, all] = [CpuClock::Exact, CpuClock::User, CpuClock::All].map(read);
        let user = match all {
            0 => exact,
            _ => (u128::from(exact) * u128::from(user.min(all)) / u128::from(all)) as u64,
        };
        [user, exact - user]
    })
}

/// Handles `getrusage`. All but the times is this member's.
fn usage(who: u32, at: u64) -> Result {
    const WORDS: usize = 18;
    let mut words = [0_u64; WORDS];
    harmless!(nr::GETRUSAGE, u64::from(who), words.as_mut_ptr() as u64)?;
    for (index, time) in user_and_kernel(who).into_iter().enumerate() {
        words[2 * index..2 * index + 2].copy_from_slice(&[time / SECOND, time % SECOND / MICROSECOND]);
    }
    user::write_words(at, &words).map(|()| 0)
}

fn times(at: u64) -> Result {
    let mut words = [0_u64; 4];
    let now = harmless!(nr::TIMES, words.as_mut_ptr() as u64)?;
    if at != 0 {
        words[..2].copy_from_slice(&user_and_kernel(RUSAGE_SELF).map(|time| time / TICK));
        user::write_words(at, &words)?;
    }
    Ok(now)
}
