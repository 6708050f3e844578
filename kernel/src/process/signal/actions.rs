//! The actions for each signal. Threads share them, and so do processes after `clone` with CLONE_SIGHAND.
//!
//! They are read without a lock and written one by one (`sync::Sequence`), so a call that looks at the action
//! for one signal shares no line with a call that sets another. Two neighbouring signals share one. A process
//! finds its actions by a word (`rcu::Word`), which only `exec` changes.
//!
//! A call that begins to ignore a signal discards those that are pending. Until it has, the stored flags have
//! [`DISCARDING`], and other calls that set this action wait. So a signal that is sent after one of them is
//! not discarded by an earlier one. A call that changes nothing, and finds nothing pending, writes nothing.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ptr;

use abi::Errno;
use abi::process::{CLONE_CLEAR_SIGHAND, CLONE_SIGHAND};
use abi::signal::{
    NSIG, SA_NOCLDSTOP, SA_NOCLDWAIT, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_RESTORER,
    SA_SIGINFO, SIG_DFL, SIG_IGN, Sigaction,
};
use percore::{Pinned, pin};
use rcu::Word;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{CachePadded, Sequence};

use super::{IGNORED, Pending, ProcessSignals, States, bit};
use crate::mm::{fallible, lending};
use crate::sched;

/// The flags that are kept. As on Linux, a program that sets others finds them cleared.
const FLAGS: u64 = SA_NOCLDSTOP
    | SA_NOCLDWAIT
    | SA_SIGINFO
    | SA_RESTORER
    | SA_ONSTACK
    | SA_RESTART
    | SA_NODEFER
    | SA_RESETHAND;

/// Set in the stored flags while a call discards the signals that the action ignores. Programs do not see it.
const DISCARDING: u32 = 1 << 8;
const _: () = assert!(FLAGS & DISCARDING as u64 == 0);

/// An action: the flags, and handler, restorer and mask.
type Stored = Sequence<3>;
const HANDLER: usize = 0;

/// The actions of neighbouring signals, on one line.
#[repr(align(64))]
struct Line([Stored; IN_LINE]);
const IN_LINE: usize = 2;

/// One action for each signal.
#[repr(align(64))]
pub struct Actions {
    /// Apart, because it would be moved over the stacks of forks.
    all: Box<[Line]>,
    /// The signals whose action was ever set. The others have the default. Relaxed: the bit is set before the
    /// action, and a fork may miss an action that is set meanwhile.
    touched: AtomicU64,
}

/// Returns the index of `signal`, which counts from 1.
pub(super) fn place(signal: u32) -> usize {
    (signal as usize).wrapping_sub(1)
}

impl Actions {
    fn new() -> Result<Arc<Self>, Errno> {
        let lines = (NSIG as usize).div_ceil(IN_LINE);
        let mut all = fallible::empty(lines)?;
        all.extend((0..lines).map(|_| Line([const { Stored::new() }; IN_LINE])));
        fallible::arc(Self { all: all.into_boxed_slice(), touched: AtomicU64::new(0) })
    }

    fn stored(&self, signal: u32) -> Option<&Stored> {
        let Line(line) = self.all.get(place(signal) / IN_LINE)?;
        line.get(place(signal) % IN_LINE)
    }

    /// Returns the action for `signal`.
    fn get(&self, signal: u32) -> Sigaction {
        self.stored(signal).map_or_else(Sigaction::default, |stored| unpacked(stored.read()))
    }

    /// Sets the action for `signal` and returns the old one.
    fn replace(&self, signal: u32, action: Sigaction) -> Sigaction {
        let Some(stored) = self.note_touched(signal) else { return Sigaction::default() };
        let new = packed(action);
        loop {
            let old = wait_for_discard(stored);
            if old == new || stored.replace_if(old, new) {
                return unpacked(old);
            }
        }
    }

    /// Returns where the action for `signal` is stored, which is about to be set.
    fn note_touched(&self, signal: u32) -> Option<&Stored> {
        if self.touched.load(Ordering::Relaxed) & bit(signal) == 0 {
            self.touched.fetch_or(bit(signal), Ordering::Relaxed);
        }
        self.stored(signal)
    }

    /// Sets the action for `signal` and returns the old one. If it ignores the signal, calls `discard` before
    /// another call sets the action, unless it was the same before and nothing `is_pending`.
    fn set(
        &self,
        signal: u32,
        action: Sigaction,
        is_pending: impl Fn() -> bool,
        discard: impl FnOnce(),
    ) -> Sigaction {
        if !is_ignored(signal, action.handler) {
            return self.replace(signal, action);
        }
        let Some(stored) = self.note_touched(signal) else { return Sigaction::default() };
        let new = packed(action);
        let discarding = (new.0 | DISCARDING, new.1);
        loop {
            let old = wait_for_discard(stored);
            if old == new && !is_pending() {
                return unpacked(old);
            }
            if stored.replace_if(old, discarding) {
                discard();
                stored.replace_if(discarding, new);
                return unpacked(old);
            }
        }
    }

    /// Returns the action for a signal that is delivered now. With SA_RESETHAND it becomes the default, which
    /// the next delivery finds. As on Linux its flags and its mask stay.
    fn get_for_delivery(&self, signal: u32) -> Sigaction {
        loop {
            let action = self.get(signal);
            if action.flags & SA_RESETHAND == 0 || matches!(action.handler, SIG_DFL | SIG_IGN) {
                return action;
            }
            let reset = Sigaction { handler: SIG_DFL, ..action };
            if self.stored(signal).is_none_or(|stored| stored.replace_if(packed(action), packed(reset))) {
                return action;
            }
        }
    }

    fn ignores(&self, signal: u32) -> bool {
        is_ignored(signal, self.stored(signal).map_or(SIG_DFL, |stored| stored.word(HANDLER)))
    }

    /// Copies each action that was ever set, changed by `change`, to `copy`, which is as new.
    fn copy_to(&self, copy: &Self, change: impl Fn(Sigaction) -> Sigaction) {
        let mut left = self.touched.load(Ordering::Relaxed);
        while left != 0 {
            let signal = left.trailing_zeros() + 1;
            copy.replace(signal, change(self.get(signal)));
            left &= left - 1;
        }
    }

    /// Copies the actions without handlers.
    fn copy_unhandled_to(&self, copy: &Self) {
        self.copy_to(copy, |action| {
            let handler = if action.handler == SIG_IGN { SIG_IGN } else { SIG_DFL };
            Sigaction { handler, ..Sigaction::default() }
        });
    }
}

/// Returns whether `signal` is ignored if it has this handler.
fn is_ignored(signal: u32, handler: u64) -> bool {
    match handler {
        SIG_IGN => true,
        SIG_DFL => IGNORED & bit(signal) != 0,
        _ => false,
    }
}

/// Returns an action once no call discards signals for it.
fn wait_for_discard(stored: &Stored) -> (u32, [u64; 3]) {
    loop {
        let found = stored.read();
        if found.0 & DISCARDING == 0 {
            return found;
        }
        percore::relax();
    }
}

fn packed(action: Sigaction) -> (u32, [u64; 3]) {
    let Sigaction { handler, flags, restorer, mask } = action;
    ((flags & FLAGS) as u32, [handler, restorer, mask])
}

fn unpacked((flags, [handler, restorer, mask]): (u32, [u64; 3])) -> Sigaction {
    Sigaction { handler, flags: u64::from(flags) & FLAGS, restorer, mask }
}

impl ProcessSignals {
    /// Creates the default for all signals, with none pending.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self::of(Actions::new()?))
    }

    fn of(actions: Arc<Actions>) -> Self {
        let word = Word::new();
        let _nothing = word.put(actions, false);
        Self {
            actions: word,
            pending: CachePadded::new(Pending::new()),
            states: States::new(),
            are_polled: AtomicBool::new(false),
            added: AtomicU64::new(0),
        }
    }

    /// Returns the actions, which the caller uses as long as it is pinned. The core may idle: a timer rings.
    fn actions<'p>(&'p self, pin: &'p Pinned) -> &'p Actions {
        sched::come_online();
        lending::peek(pin, &self.actions).unwrap_or_else(|| unreachable!("a process has actions"))
    }

    /// Returns the action for `signal`.
    pub fn action(&self, signal: u32) -> Sigaction {
        self.actions(&pin()).get(signal)
    }

    /// Returns the action for a signal that is delivered now.
    pub(super) fn action_for_delivery(&self, signal: u32) -> Sigaction {
        self.actions(&pin()).get_for_delivery(signal)
    }

    /// Sets the action for `signal` and returns the old one. If the signal is ignored from now on, it is not
    /// pending any more, neither for the process nor for a thread.
    pub(super) fn set_action(&self, signal: u32, action: Sigaction) -> Sigaction {
        let is_pending = || {
            let mut all = self.pending.set();
            self.states.for_each(|state| all |= state.pending.set());
            all & bit(signal) != 0
        };
        self.actions(&pin()).set(signal, action, is_pending, || self.discard_pending(bit(signal)))
    }

    pub(super) fn ignores(&self, signal: u32) -> bool {
        self.actions(&pin()).ignores(signal)
    }

    /// Returns the address of the actions, by which processes that share them are known.
    pub fn address(&self) -> usize {
        ptr::from_ref(self.actions(&pin())).addr()
    }

    /// Returns the actions of a child that is made with `flags`.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn inherit(&self, flags: u64) -> Result<Self, Errno> {
        let pin = pin();
        if flags & CLONE_SIGHAND != 0 {
            return Ok(Self::of(lending::get(&pin, &self.actions).ok_or(Errno::ENOMEM)?));
        }
        let copy = Actions::new()?;
        if flags & CLONE_CLEAR_SIGHAND != 0 {
            self.actions(&pin).copy_unhandled_to(&copy);
        } else {
            self.actions(&pin).copy_to(&copy, |action| action);
        }
        Ok(Self::of(copy))
    }

    /// Returns room for the actions of another program that this process will run.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn room_for_new_program() -> Result<Arc<Actions>, Errno> {
        Actions::new()
    }

    /// Replaces the actions by those of another program: handled signals have their default again. The other
    /// threads have ended, so none sets one meanwhile.
    pub fn begin_program(&self, actions: Arc<Actions>) {
        self.actions(&pin()).copy_unhandled_to(&actions);
        if let Some(old) = self.actions.put(actions, false) {
            lending::discard(old, false);
        }
    }
}
