//! ITIMER_VIRTUAL and ITIMER_PROF. They measure the processor's time of the whole program, and their signals
//! are the process's. Linux measures a process, which is one thread here.
//!
//! So the *ticker*, a real thread of the leader in the runtime's code, adds the times of all members now and
//! then, and sends the signal. It sleeps for as long as all of them need to use what is left, at least a
//! millisecond, so a signal comes late by as much as Linux's does.
//!
//! | a timer | `end` | becomes |
//! |---|---|---|
//! | is not set | 0 | set, by any member |
//! | is set | the sum at which it expires | set for one interval more, or not set, by the ticker; anything, by any member |
//!
//! 1. *The words are read and written under the lock*, and so is the sum: members come and go under it.
//! 2. *The sum never falls*: a member that leaves adds its time to `ended`.
//! 3. *Before there are other threads the timers are Linux's*. They are taken over when the watcher begins.
//!
//! With `execve` they are lost, where Linux keeps them.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use abi::Errno;
use pathreads::record::MOST_MEMBERS;

use super::helpers::{self, What};
use super::{MILLISECOND, control, fork, leader, locked, me, own_thread, thread, wait, waiting, wake};
use crate::dispatch::Then;
use crate::entry::{self, Frame};
use crate::sys::{self, Result, harmless, nr};
use crate::user;

/// The words of a `struct itimerval`: interval and value, in seconds and microseconds.
const WORDS: usize = 4;

pub const SECOND: u64 = 1000 * MILLISECOND;
pub const MICROSECOND: u64 = 1000;

/// The kinds: ITIMER_VIRTUAL and ITIMER_PROF less one.
const KINDS: usize = 2;

/// Their signals, and the clocks that they measure.
const SIGNALS: [u64; KINDS] = [26, 27];
const OF_KINDS: [CpuClock; KINDS] = [CpuClock::User, CpuClock::All];

/// A clock of a process, with its number in Linux.
#[derive(Clone, Copy)]
pub enum CpuClock {
    /// User time and the kernel's, by ticks of the kernel's clock on some.
    All = 0,
    User = 1,
    /// Both, in nanoseconds.
    Exact = 2,
}

impl CpuClock {
    const EACH: [CpuClock; 3] = [CpuClock::All, CpuClock::User, CpuClock::Exact];

    /// Returns the clock with a number.
    pub fn of(number: i32) -> Option<Self> {
        Self::EACH.into_iter().find(|clock| *clock as i32 == number)
    }
}

struct Timer {
    end: AtomicU64,
    interval: AtomicU64,
}

/// The part of the control area for these timers, in nanoseconds.
pub struct CpuTimers {
    timers: [Timer; KINDS],
    /// The times of the members that have left, by clock.
    ended: [AtomicU64; CpuClock::EACH.len()],
    /// The times of each member when its thread began, if it was another thread before.
    before: [[AtomicU64; CpuClock::EACH.len()]; MOST_MEMBERS],
    /// Counts changes. The ticker sleeps here.
    changes: AtomicU32,
}

/// Whether there is a ticker, in the leader's process.
static HAS_TICKER: AtomicBool = AtomicBool::new(false);

const STACK: usize = 16 << 10;

#[repr(align(16))]
struct Stack(UnsafeCell<[u8; STACK]>);

// SAFETY: only the ticker uses it.
unsafe impl Sync for Stack {}

static TICKERS: Stack = Stack(UnsafeCell::new([0; STACK]));

/// Returns whether this thread is the ticker, by its stack.
pub fn is_ticker() -> bool {
    let here = 0_u8;
    let start = TICKERS.0.get() as u64;
    (start..start + STACK as u64).contains(&(&raw const here as u64))
}

/// Returns whether a call is about one of these timers, and to be handled here.
pub fn is_handled(which: u64) -> bool {
    let is_cpu = matches!(which as u32, 1 | 2);
    is_cpu && !fork::is_sharing() && !waiting::makes_own_children() && (me() != 0 || thread::is_watched())
}

/// Handles `setitimer` and `getitimer`.
pub extern "C" fn handle(frame: &mut Frame) -> Then {
    frame.rax = exchange(&frame.call).map_or_else(Errno::to_result, |()| 0);
    Then::Return
}

fn exchange(&[number, which, b, c, ..]: &[u64; 7]) -> Result<()> {
    let kind = which as u32 as usize - 1;
    let (new, old_at) = match number {
        nr::SETITIMER if b == 0 => (Some([0; 2]), c),
        nr::SETITIMER => (Some(times_of(user::words::<WORDS>(b)?)?), c),
        _ => (None, b),
    };
    if new.is_some_and(|[_, value]| value != 0) {
        helpers::ask(What::Ticker)?;
    }
    super::prepare_stack();
    let [interval, left] = locked(|_| {
        let old = current(kind);
        if let Some(new) = new {
            set(kind, new);
        }
        old
    });
    if old_at == 0 && new.is_some() {
        return Ok(());
    }
    let rest = |time: u64| time % SECOND / MICROSECOND;
    user::write_words(old_at, &[interval / SECOND, rest(interval), left / SECOND, rest(left)])
}

/// Returns the interval and the value of a `struct itimerval`, in nanoseconds.
fn times_of([a, b, c, d]: [u64; WORDS]) -> Result<[u64; 2]> {
    const MOST: u64 = u64::MAX / 4 / SECOND;
    let is_time = |seconds: u64, rest: u64| (seconds as i64) >= 0 && rest < SECOND / MICROSECOND;
    if !is_time(a, b) || !is_time(c, d) {
        return Err(Errno::EINVAL);
    }
    let time = |seconds: u64, rest: u64| seconds.min(MOST) * SECOND + rest * MICROSECOND;
    Ok([time(a, b), time(c, d)])
}

/// Returns the interval of a timer and the time that is left, 0 if it is not set. The lock is held.
fn current(kind: usize) -> [u64; 2] {
    let Timer { end, interval } = &control().cpu_timers.timers[kind];
    let left = match end.load(Ordering::Relaxed) {
        0 => 0,
        // One that is about to expire is set still.
        end => end.saturating_sub(sum(OF_KINDS[kind])).max(MICROSECOND),
    };
    [interval.load(Ordering::Relaxed), left]
}

/// Sets a timer. The lock is held.
fn set(kind: usize, [interval, value]: [u64; 2]) {
    let CpuTimers { timers, changes, .. } = &control().cpu_timers;
    timers[kind].interval.store(interval, Ordering::Relaxed);
    timers[kind].end.store(if value == 0 { 0 } else { sum(OF_KINDS[kind]) + value }, Ordering::Relaxed);
    changes.fetch_add(1, Ordering::Release);
    wake(changes);
}

/// Returns the nanoseconds that all members have used. The lock is held.
pub fn sum(clock: CpuClock) -> u64 {
    let ended = control().cpu_timers.ended[clock as usize].load(Ordering::Relaxed);
    threads().fold(ended, |sum, number| sum + used(number, clock))
}

/// Returns the numbers in Linux of the members.
fn threads() -> impl Iterator<Item = u32> {
    control().members.iter().map(|member| member.thread.load(Ordering::Relaxed)).filter(|number| *number != 0)
}

/// Returns the nanoseconds that a process has used.
fn used(process: u32, clock: CpuClock) -> u64 {
    let mut time = [0_u64; 2];
    let clock = u64::from(!process << 3 | clock as u32);
    let _ = harmless!(nr::CLOCK_GETTIME, clock, time.as_mut_ptr() as u64);
    time[0] * SECOND + time[1]
}

/// Returns the nanoseconds that a member has used for its thread.
pub fn used_by(member: usize, clock: CpuClock) -> u64 {
    let number = control().members[member].thread.load(Ordering::Relaxed);
    let before = control().cpu_timers.before[member][clock as usize].load(Ordering::Relaxed);
    used(number, clock).saturating_sub(before)
}

/// Begins the next thread of this member, which has used no time.
pub fn begin_thread() {
    for (before, clock) in control().cpu_timers.before[me()].iter().zip(CpuClock::EACH) {
        before.store(used(own_thread(), clock), Ordering::Relaxed);
    }
}

/// Adds the time of this member, which leaves. The lock is held.
pub fn leave() {
    for (ended, clock) in control().cpu_timers.ended.iter().zip(CpuClock::EACH) {
        ended.fetch_add(used(own_thread(), clock), Ordering::Relaxed);
        control().cpu_timers.before[me()][clock as usize].store(0, Ordering::Relaxed);
    }
}

/// Forgets all, in a new process.
pub fn begin_process() {
    let CpuTimers { timers, ended, before, .. } = &control().cpu_timers;
    before.as_flattened().iter().for_each(|time| time.store(0, Ordering::Relaxed));
    timers.iter().for_each(|timer| timer.end.store(0, Ordering::Relaxed));
    ended.iter().for_each(|time| time.store(0, Ordering::Relaxed));
    HAS_TICKER.store(false, Ordering::Relaxed);
}

/// Takes over what Linux has set for the leader's process, before there are other members. Signals are
/// blocked.
pub fn take_over() {
    for kind in 0..KINDS {
        let (mut old, never) = ([0_u64; WORDS], [0_u64; WORDS]);
        let which = kind as u64 + 1;
        let _ = harmless!(nr::SETITIMER, which, never.as_ptr() as u64, old.as_mut_ptr() as u64);
        if let Ok(times) = times_of(old)
            && times[1] != 0
            && begin().is_ok()
        {
            locked(|_| set(kind, times));
        }
    }
}

/// Makes the ticker, in the leader's process.
pub fn begin() -> Result {
    if HAS_TICKER.swap(true, Ordering::Relaxed) {
        return Ok(0);
    }
    let end = TICKERS.0.get() as u64 + STACK as u64;
    // SAFETY: the stack is the ticker's, and it stays in the runtime.
    let made = unsafe { entry::spawn_helper(thread::HELPER_FLAGS, end, tick) };
    let error = Errno::from_result(made);
    if error.is_some() {
        HAS_TICKER.store(false, Ordering::Relaxed);
    }
    error.map_or(Ok(0), Err)
}

/// Sends the signals of timers that expire.
extern "C" fn tick() -> ! {
    sys::block_all();
    let changes = &control().cpu_timers.changes;
    loop {
        // Acquire pairs with the release in `set`.
        let seen = changes.load(Ordering::Acquire);
        let mut soonest = 1000 * MILLISECOND;
        for (kind, signal) in SIGNALS.into_iter().enumerate() {
            let (is_over, left) = super::with_record(|_| expire(kind));
            if is_over && !thread::is_ending() {
                let _ = harmless!(nr::KILL, u64::from(leader()), signal);
            }
            soonest = soonest.min(left);
        }
        wait(changes, seen, soonest);
    }
}

/// Looks at a timer. Returns whether it has expired, and how long it takes at least until it does. The lock
/// is held.
fn expire(kind: usize) -> (bool, u64) {
    let Timer { end, interval } = &control().cpu_timers.timers[kind];
    let (now, old, interval) =
        (sum(OF_KINDS[kind]), end.load(Ordering::Relaxed), interval.load(Ordering::Relaxed));
    if old == 0 {
        return (false, u64::MAX);
    }
    let is_over = old <= now;
    let next = match (is_over, interval) {
        (false, _) => old,
        (true, 0) => 0,
        // Intervals that are missed are one signal.
        (true, interval) => old + ((now - old) / interval + 1) * interval,
    };
    end.store(next, Ordering::Relaxed);
    let left = if next == 0 { u64::MAX } else { (next - now) / threads().count().max(1) as u64 };
    (is_over, left.max(MILLISECOND))
}
