//! Signals that were sent and not taken yet.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

use abi::signal::{
    CLD_CONTINUED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, CLD_TRAPPED, NSIG, SI_TIMER, SI_USER, SIGBUS,
    SIGCONT, SIGFPE, SIGILL, SIGRTMIN, SIGSEGV, SIGSYS, SIGTRAP,
};
use sync::SpinLock;
use sync::atomic::{AtomicU64, Ordering, fence};

use super::actions::place;
use super::{bit, waiting_count};
use crate::mm::fallible;
use crate::process::{Ending, News, Process, State};
use crate::sched;

/// The origin of a signal: what its `siginfo_t` says after the number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// `si_code`.
    pub code: i32,
    /// `si_errno`.
    pub errno: i32,
    /// The words after it. The first is `si_addr` of a fault, or `si_pid` and `si_uid` of a sender or a
    /// child, or `si_timerid`. The second is `si_status` of a child, or `si_value`.
    pub fields: [u64; 4],
    /// The number that no other timer has or had, if a timer sends it, or 0. Programs can forge the rest.
    timer: u64,
}

impl Origin {
    /// Creates the origin of a signal from a fault or from the kernel.
    pub const fn new(code: i32, value: u64) -> Self {
        Self::of_two(code, value, 0)
    }

    /// Creates the origin of a signal that says two words.
    pub const fn of_two(code: i32, first: u64, second: u64) -> Self {
        Self { code, errno: 0, fields: [first, second, 0, 0], timer: 0 }
    }

    /// Creates the origin of the signal of a timer, which its process calls `number`. No other timer has or
    /// had the number `timer`, which is not 0.
    pub const fn of_timer(timer: u64, number: u32, value: u64) -> Self {
        Self { timer, ..Self::of_two(SI_TIMER, number as u64, value) }
    }

    /// Creates the origin of a signal that the running thread, one of `process`, sends.
    pub fn sent_by(process: &Process, code: i32) -> Self {
        let user = sched::with_credentials(|of| of.users.real);
        Self::new(code, Self::peer(process.pid(), user))
    }

    /// Returns the word of a sender or a child: its number and its user.
    pub fn peer(pid: u32, user: u32) -> u64 {
        u64::from(pid) | u64::from(user) << 32
    }

    /// Returns the origin that a program gives to the signal that it sends.
    pub const fn given(code: i32, errno: i32, fields: [u64; 4]) -> Self {
        Self { code, errno, fields, timer: 0 }
    }

    /// Returns the same for a timer that was due `overruns` times more.
    pub fn with_overruns(mut self, overruns: u32) -> Self {
        if self.timer != 0 {
            self.fields[0] = u64::from(self.fields[0] as u32) | u64::from(overruns) << 32;
        }
        self
    }

    /// Returns how often its timer was due after the first time.
    fn overruns(&self) -> u32 {
        (self.fields[0] >> 32) as u32
    }

    /// Adds the times that the same timer was due since: `later` is the origin of the signal that it sends
    /// now.
    fn add_overruns(&mut self, later: &Origin) {
        const MOST: u32 = i32::MAX as u32;
        let all = self.overruns().saturating_add(later.overruns()).saturating_add(1);
        *self = self.with_overruns(all.min(MOST));
    }

    /// Returns the first word.
    pub fn first(&self) -> u64 {
        self.fields[0]
    }

    /// Returns whether its signal counts while it waits. One of a timer counts as long as the timer exists.
    fn is_counted(&self) -> bool {
        self.timer == 0
    }

    /// Returns what becomes of a real-time signal for which there is no room.
    fn without_room(&self) -> Added {
        // As on Linux: `kill` succeeds.
        if self.code == SI_USER || self.timer != 0 { Added::WithoutOrigin } else { Added::Refused }
    }

    /// Creates the origin of the signal that the child `pid` of a user sends its parent.
    pub fn of_child(pid: u32, user: u32, state: State) -> Self {
        let (code, status) = match state {
            State::Ended(Ending::Status(status)) => (CLD_EXITED, i32::from(status)),
            State::Ended(Ending::Signal(signal)) => (CLD_KILLED, signal as i32),
            State::Changed(News::Stopped(signal)) => (CLD_STOPPED, signal as i32),
            State::Changed(News::Continued) => (CLD_CONTINUED, SIGCONT as i32),
            State::Traced(code) => (CLD_TRAPPED, code as i32),
        };
        Self::of_two(code, Self::peer(pid, user), u64::from(status as u32))
    }
}

/// Signals that were sent and not taken yet: one of each number below [`SIGRTMIN`], and a queue of each of
/// the others.
pub struct Pending {
    /// The numbers. Changed with `waiting` locked.
    set: AtomicU64,
    waiting: SpinLock<Waiting>,
}

/// The origins of the signals.
struct Waiting {
    /// Those of signals below [`SIGRTMIN`]. An array would be moved over the stacks of forks.
    standard: Vec<(u32, Origin)>,
    /// Made with the first real-time signal.
    queues: Option<Box<[VecDeque<Origin>; REAL_TIME]>>,
    /// The timers whose signals are in the queues. Each has one there, whatever the limit.
    timers: Vec<u64>,
}

/// The most signals of timers in the queues: as many as a process has timers. Deleted ones may be among them.
const MOST_TIMERS: usize = 512;
/// The signals that faults raise. They are taken first, as on Linux.
const OF_FAULTS: u64 = bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGFPE) | bit(SIGSYS);

const STANDARD: usize = SIGRTMIN as usize - 1;
const REAL_TIME: usize = NSIG as usize - STANDARD;

/// The result of adding a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is pending.
    New,
    /// Only one with its number can be pending, and is.
    Before,
    /// There was no room for its origin, so that is lost. The number is pending.
    WithoutOrigin,
    /// There was no room for its origin, and its sender is told.
    Refused,
}

impl Pending {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self { set: AtomicU64::new(0), waiting: SpinLock::new(Waiting::new()) }
    }

    /// Returns the pending signals as a mask.
    pub fn set(&self) -> u64 {
        // SeqCst: paired with the sender's notification (see `ThreadSignals::mask`).
        self.set.load(Ordering::SeqCst)
    }

    /// Adds `signal`, if fewer than `most` wait in all processes, unless `is_receiver` finds that they are
    /// another receiver's. If a standard one is there already, its origin stays.
    pub fn add(
        &self,
        signal: u32,
        origin: Origin,
        most: u64,
        is_receiver: impl Fn() -> bool,
    ) -> Option<Added> {
        if signal < SIGRTMIN && origin.timer == 0 && self.has(signal) {
            return is_receiver().then_some(Added::Before);
        }
        let mut waiting = self.waiting.lock();
        is_receiver().then(|| self.add_to(&mut waiting, signal, origin, most))
    }

    /// Returns whether a signal is pending that need not be added again. It writes nothing.
    ///
    /// The thread that takes the pending signal sees all that the sender did before: the fence orders it
    /// before the look at the set, which finds the signal not taken yet. The thread takes it by a SeqCst
    /// read-modify-write, which its handler comes after.
    fn has(&self, signal: u32) -> bool {
        fence(Ordering::SeqCst);
        self.set() & bit(signal) != 0
    }

    /// Calls `f` while no signal is added or taken.
    pub fn under_lock(&self, f: impl FnOnce()) {
        let _lock = self.waiting.lock();
        f();
    }

    /// Removes all signals and frees their memory.
    pub fn clear(&self) {
        let waiting = mem::replace(&mut *self.waiting.lock(), Waiting::new());
        self.set.store(0, Ordering::SeqCst);
        drop(waiting);
    }

    fn add_to(&self, waiting: &mut Waiting, signal: u32, origin: Origin, most: u64) -> Added {
        let added = match signal {
            ..SIGRTMIN if self.set() & bit(signal) != 0 => waiting.add_again(signal, &origin),
            ..SIGRTMIN => waiting.note(signal, origin, most),
            _ => waiting.queue(signal, origin, most),
        };
        if matches!(added, Added::New | Added::WithoutOrigin) {
            self.set.fetch_or(bit(signal), Ordering::SeqCst);
        }
        added
    }

    /// Takes the lowest of `wanted` that is pending, but first those of faults. Of those with its number it
    /// takes the first that was sent.
    pub fn take(&self, wanted: u64) -> Option<(u32, Origin)> {
        if self.set() & wanted == 0 {
            return None;
        }
        let mut waiting = self.waiting.lock();
        self.take_from(&mut waiting, wanted)
    }

    fn take_from(&self, waiting: &mut Waiting, wanted: u64) -> Option<(u32, Origin)> {
        let there = self.set() & wanted;
        let first = if there & OF_FAULTS != 0 { there & OF_FAULTS } else { there };
        let signal = (first != 0).then(|| first.trailing_zeros() + 1)?;
        let (origin, is_last) = waiting.take(signal);
        if is_last {
            self.set.fetch_and(!bit(signal), Ordering::SeqCst);
        }
        Some((signal, origin))
    }

    /// Removes `signals`.
    pub fn discard(&self, signals: u64) {
        while self.take(signals).is_some() {}
    }

    /// Removes the signals of timers, as on Linux also those that only say that they are.
    pub fn forget_timers(&self) {
        if self.set() == 0 {
            return;
        }
        let mut waiting = self.waiting.lock();
        let gone = waiting.forget_timers();
        self.set.fetch_and(!gone, Ordering::SeqCst);
    }

    /// Moves all pending signals of `other` here, which takes no memory. Those that were sent here already
    /// come after them.
    pub fn take_over(&self, other: &Pending) {
        let (mut mine, mut later) = (self.waiting.lock(), other.waiting.lock());
        mem::swap(&mut *mine, &mut *later);
        // SeqCst: see `set`. No sender finds the other any more.
        let set = other.set.swap(self.set(), Ordering::SeqCst);
        self.set.store(set, Ordering::SeqCst);
        while let Some((signal, origin)) = other.take_from(&mut later, u64::MAX) {
            self.add_to(&mut mine, signal, origin, u64::MAX);
        }
    }
}

impl Waiting {
    const fn new() -> Self {
        Self { standard: Vec::new(), queues: None, timers: Vec::new() }
    }

    /// Notes a standard signal, which is not pending.
    fn note(&mut self, signal: u32, origin: Origin, most: u64) -> Added {
        let is_full = origin.is_counted() && most != u64::MAX && waiting_count::is_at(most);
        if is_full || self.standard.try_reserve(1).is_err() {
            return Added::WithoutOrigin;
        }
        self.standard.push((signal, origin));
        waiting_count::add(origin.is_counted().into());
        Added::New
    }

    /// Adds the times that a timer was due to its signal that is pending, if it is the timer's.
    fn add_again(&mut self, signal: u32, origin: &Origin) -> Added {
        let is_same = |other: &&mut Origin| origin.timer != 0 && other.timer == origin.timer;
        let pending = if signal < SIGRTMIN {
            let mut standard = self.standard.iter_mut().filter(|(other, _)| *other == signal);
            standard.next().map(|(_, origin)| origin).filter(is_same)
        } else {
            self.queue_of(signal).and_then(|queue| queue.iter_mut().find(is_same))
        };
        pending.into_iter().for_each(|pending| pending.add_overruns(origin));
        Added::Before
    }

    /// Appends a real-time signal to its queue.
    fn queue(&mut self, signal: u32, origin: Origin, most: u64) -> Added {
        let timer = Some(origin.timer).filter(|&timer| timer != 0);
        if timer.is_some_and(|timer| self.timers.contains(&timer)) {
            return self.add_again(signal, &origin);
        }
        let is_full =
            if timer.is_some() { self.timers.len() >= MOST_TIMERS } else { waiting_count::is_at(most) };
        if is_full || timer.is_some() && self.timers.try_reserve(1).is_err() {
            return origin.without_room();
        }
        if self.queues.is_none() {
            self.queues = fallible::boxed([const { VecDeque::new() }; REAL_TIME]).ok();
        }
        let Some(queue) = self.queue_of(signal) else { return origin.without_room() };
        if queue.try_reserve(1).is_err() {
            return origin.without_room();
        }
        queue.push_back(origin);
        match timer {
            Some(timer) => self.timers.push(timer),
            None => waiting_count::add(1),
        }
        Added::New
    }

    /// Removes the signals of timers. Returns the numbers of which none is left.
    fn forget_timers(&mut self) -> u64 {
        let (mut gone, mut counted) = (0, 0);
        let mut stays = |origin: &Origin| {
            let is_timer = origin.code == SI_TIMER;
            counted += i64::from(is_timer && origin.is_counted());
            !is_timer
        };
        self.standard.retain(|(signal, origin)| {
            let stays = stays(origin);
            gone |= if stays { 0 } else { bit(*signal) };
            stays
        });
        for (queue, signal) in self.queues.iter_mut().flat_map(|queues| queues.iter_mut()).zip(SIGRTMIN..) {
            let before = queue.len();
            queue.retain(&mut stays);
            gone |= if queue.is_empty() && before > 0 { bit(signal) } else { 0 };
        }
        self.timers.clear();
        waiting_count::add(-counted);
        gone
    }

    fn queue_of(&mut self, signal: u32) -> Option<&mut VecDeque<Origin>> {
        self.queues.as_mut()?.get_mut(place(signal).checked_sub(STANDARD)?)
    }

    /// Takes the first signal with a number that is pending. Returns whether it was the last.
    fn take(&mut self, signal: u32) -> (Origin, bool) {
        if signal < SIGRTMIN {
            let place = self.standard.iter().position(|(other, _)| *other == signal);
            let taken = place.map(|place| self.standard.swap_remove(place).1);
            waiting_count::add(-i64::from(taken.is_some_and(|origin| origin.is_counted())));
            return (taken.unwrap_or_default(), true);
        }
        let Some(queue) = self.queue_of(signal) else { return (Origin::default(), true) };
        let (taken, is_last) = (queue.pop_front(), queue.is_empty());
        if is_last {
            *queue = VecDeque::new();
        }
        match taken {
            Some(Origin { timer: 0, .. }) => waiting_count::add(-1),
            Some(Origin { timer, .. }) => self.timers.retain(|&other| other != timer),
            None => {}
        }
        (taken.unwrap_or_default(), is_last)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let standard = self.standard.iter().map(|(_, origin)| origin);
        let queued = self.queues.iter().flat_map(|queues| queues.iter().flatten());
        let counted = standard.chain(queued).filter(|origin| origin.is_counted()).count();
        waiting_count::add(-(counted as i64));
    }
}
