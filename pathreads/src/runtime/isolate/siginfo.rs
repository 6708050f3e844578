//! Signals with all that they say (`siginfo`): this process takes and sends them, as the kernel keeps them.

use abi::Errno;

use super::{MILLISECOND, own_thread};
use crate::context::Information;
use crate::sys::{Result, harmless, nr};

const SIGCHLD: u64 = 17;

/// The words of a `siginfo` that the kernel keeps.
pub const WORDS: usize = 6;

/// A signal's last word, if the courier gave it. The kernel keeps the word, and uses it for SIGCHLD alone.
pub const MARK: u64 = 0x7261_6469_7876_6d73;

/// Returns the set of one signal.
pub const fn bit(signal: u64) -> u64 {
    1 << (signal - 1)
}

/// Sends a signal to this process, or to its one thread.
#[inline(never)]
pub fn queue(signal: u64, information: &[u64; WORDS], number: u64) -> Result {
    let mut whole = [0_u64; 16];
    whole[..WORDS].copy_from_slice(information);
    let (own, at) = (u64::from(own_thread()), whole.as_ptr() as u64);
    match number {
        nr::SIGQUEUEINFO => harmless!(number, own, signal, at),
        _ => harmless!(number, own, own, signal, at),
    }
}

/// Does so beyond the limit of pending signals, up to the one that this process may set: the program had room
/// for the signal when it was sent. The lock is held, so no thread sets the limit meanwhile.
#[inline(never)]
pub fn queue_beyond(signal: u64, information: &[u64; WORDS], number: u64) -> Result {
    const RLIMIT_SIGPENDING: u64 = 11;
    let queued = queue(signal, information, number);
    let mut old = [0_u64; 2];
    if queued != Err(Errno::EAGAIN)
        || harmless!(nr::PRLIMIT64, 0, RLIMIT_SIGPENDING, 0, old.as_mut_ptr() as u64).is_err()
    {
        return queued;
    }
    let new = [old[1]; 2];
    if new == old || harmless!(nr::PRLIMIT64, 0, RLIMIT_SIGPENDING, new.as_ptr() as u64, 0).is_err() {
        return queued;
    }
    let queued = queue(signal, information, number);
    let _ = harmless!(nr::PRLIMIT64, 0, RLIMIT_SIGPENDING, old.as_ptr() as u64, 0);
    queued
}

/// Sends a signal to this process, or to its one thread, that was taken from there. It had room before, and
/// waits some time for it if it has none. Signals are blocked.
pub fn queue_again(signal: u64, information: &[u64; WORDS], number: u64) {
    const TRIES: u32 = 1000;
    if queue(signal, information, number) != Err(Errno::EAGAIN) {
        return;
    }
    super::prepare_stack();
    let is_queued = || super::locked(|_| queue_beyond(signal, information, number)) != Err(Errno::EAGAIN);
    for _ in 0..TRIES {
        if is_queued() {
            return;
        }
        pause();
    }
}

/// Waits for others to take signals: no more may be pending.
pub fn pause() {
    let time = [0, MILLISECOND];
    let _ = harmless!(nr::NANOSLEEP, time.as_ptr() as u64, 0);
}

/// Takes a signal that is pending here, and returns what it says.
pub fn take(signal: u64) -> Result<[u64; WORDS]> {
    let (mut information, set, none) = ([0_u64; 16], bit(signal), [0_u64; 2]);
    let at = information.as_mut_ptr() as u64;
    harmless!(nr::SIGTIMEDWAIT, &raw const set as u64, at, none.as_ptr() as u64, 8)?;
    let mut words = [0; WORDS];
    words.copy_from_slice(&information[..WORDS]);
    Ok(words)
}

impl Information {
    /// Returns the information that these words are.
    pub fn of([numbers, code, sender, rest, more, mark]: [u64; WORDS]) -> Self {
        Information {
            signal: numbers as i32,
            error: (numbers >> 32) as i32,
            code: code as i32,
            pad: (code >> 32) as i32,
            sender: sender as u32,
            user: (sender >> 32) as u32,
            rest: [rest, more],
            mark,
        }
    }

    /// Returns the words that this information is.
    pub fn words(&self) -> [u64; WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [
            pair(self.signal as u32, self.error as u32),
            pair(self.code as u32, self.pad as u32),
            pair(self.sender, self.user),
            self.rest[0],
            self.rest[1],
            self.mark,
        ]
    }

    /// Returns whether the last word is a time: that of a child that has ended.
    fn is_of_child(&self) -> bool {
        self.signal as u64 == SIGCHLD && self.code > 0
    }

    /// Returns whether the courier gave the signal.
    pub fn is_given(&self) -> bool {
        self.mark == MARK || self.is_of_child()
    }

    /// Returns the information with a mark, or without one.
    pub fn marked(self, is_given: bool) -> Self {
        let mark = match () {
            () if self.is_of_child() => self.mark,
            () if is_given => MARK,
            () => 0,
        };
        Information { mark, ..self }
    }

    /// Makes it what the program is shown.
    pub fn show(&mut self) {
        self.name_sender();
        if self.mark == MARK {
            self.mark = 0;
        }
    }
}
