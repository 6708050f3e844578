//! Descriptors by which signals are read (`signalfd`). Linux has a reader find the signals of its own
//! process, and those to the program are the leader's. So the courier gives them to the member that reads: it
//! takes the signals of such descriptors, as by `sigwait`, until another member does
//! (`signals::read_by_file`), or until the last known one is closed. A call that is prepared again after a
//! request takes them no second time.
//!
//! | call | it reads signals if |
//! |---|---|
//! | `read`, `readv` | its descriptor is one of `signalfd` |
//! | `poll`, `ppoll`, `select`, `pselect6` | one of its descriptors is |
//! | `epoll_ctl` | it adds one. The descriptor of `epoll` counts as one from then on |
//! | `epoll_wait` and others of its kind | its descriptor is such a one |
//!
//! Copies (`dup`, `dup2`, `dup3`, F_DUPFD) are known as their descriptors are. Descriptors of high numbers
//! are not.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::{NEVER_BLOCKED, control, fork, signals};
use crate::entry::Frame;
use crate::sys::{Result, harmless, nr};
use crate::user;

/// The descriptors that are known.
const MOST: u64 = 1 << 16;

/// The part of the control area for them.
pub struct SignalFiles {
    /// Whether one is known. Changed under the lock.
    is_used: AtomicBool,
    /// A bit for each descriptor.
    known: [AtomicU64; MOST as usize / 64],
    /// The signals of all. Changed under the lock.
    pub set: AtomicU64,
    /// The member that reads, or the leader. Written under the lock.
    pub reader: AtomicU32,
}

impl SignalFiles {
    /// Returns whether signals are read by a descriptor.
    fn has(&self, file: u64) -> bool {
        let file = u64::from(file as u32);
        file < MOST && self.known[file as usize / 64].load(Ordering::Relaxed) >> (file % 64) & 1 != 0
    }

    fn note(&self, file: u64, is_known: bool) {
        let file = u64::from(file as u32);
        if file < MOST {
            let (word, bit) = (&self.known[file as usize / 64], 1 << (file % 64));
            let change = |word: &AtomicU64| match is_known {
                true => word.fetch_or(bit, Ordering::Relaxed),
                false => word.fetch_and(!bit, Ordering::Relaxed),
            };
            change(word);
        }
    }

    fn has_any(&self) -> bool {
        self.known.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }
}

fn files() -> &'static SignalFiles {
    &control().signal_files
}

/// In the place of a descriptor, asks for a new one.
const NEW: u32 = u32::MAX;

/// Handles `signalfd` and `signalfd4`, of which the memory is mapped.
#[inline(never)]
pub fn make(frame: &Frame) -> Result {
    let [number, file, set_at, size, flags, ..] = frame.call;
    // A wrong address, and another size, are left to the kernel.
    let Ok([set]) = user::words::<1>(set_at) else { return harmless!(number, file, set_at, size, flags) };
    // A reader would take the signals of requests, which have to interrupt it.
    let set = set & !NEVER_BLOCKED;
    let made = harmless!(number, file, &raw const set as u64, size, flags)?;
    // A child of `vfork` has descriptors of its own.
    if !fork::is_sharing() {
        super::prepare_stack();
        // A thread that closes the last one forgets the set under the lock.
        super::locked(|_| {
            files().set.fetch_or(set, Ordering::Relaxed);
            files().note(made, true);
            files().is_used.store(true, Ordering::Relaxed);
            if file as u32 != NEW {
                signals::read_more();
            }
        });
    }
    Ok(made)
}

/// Notes descriptors that are closed, from one to another.
pub fn close(first: u64, last: u64) {
    if files().is_used.load(Ordering::Relaxed) && !fork::is_sharing() {
        let mut known =
            (first..MOST.min(last.saturating_add(1))).filter(|file| files().has(*file)).peekable();
        let has_known = known.peek().is_some();
        known.for_each(|file| files().note(file, false));
        if has_known {
            end_if_last();
        }
    }
}

/// Notes that a descriptor is replaced by a copy of another one (`dup2`, `dup3`), if that will succeed.
pub fn copy(call: &[u64; 7]) {
    if files().is_used.load(Ordering::Relaxed) && !fork::is_sharing() {
        copy_used(call);
    }
}

/// Not inlined, because Go makes calls with little stack.
#[inline(never)]
fn copy_used(&[number, from, to, flags, ..]: &[u64; 7]) {
    const F_GETFD: u64 = 1;
    const O_CLOEXEC: u64 = 0o200_0000;
    let is_wrong = number == nr::DUP3 && flags as u32 as u64 & !O_CLOEXEC != 0;
    if from as u32 == to as u32 || is_wrong || files().has(from) == files().has(to) {
        return;
    }
    if harmless!(nr::FCNTL, from, F_GETFD).is_ok() {
        files().note(to, files().has(from));
        end_if_last();
    }
}

/// Copies a descriptor to a free number (`dup`, F_DUPFD), if signals are read by it. Returns the result.
#[inline(always)]
pub fn copy_anywhere(call: &[u64; 7]) -> Option<Result> {
    let is_used = files().is_used.load(Ordering::Relaxed) && !fork::is_sharing();
    (is_used && files().has(call[1]) && is_copying(call)).then(|| copy_known(call))
}

fn is_copying(&[number, _, command, ..]: &[u64; 7]) -> bool {
    const F_DUPFD: u32 = 0;
    const F_DUPFD_CLOEXEC: u32 = 1030;
    number == nr::DUP || number == nr::FCNTL && matches!(command as u32, F_DUPFD | F_DUPFD_CLOEXEC)
}

/// Not inlined, because Go makes calls with little stack.
#[inline(never)]
fn copy_known(&[number, file, command, least, ..]: &[u64; 7]) -> Result {
    super::prepare_stack();
    // A thread that closes the last one forgets the set under the lock.
    super::locked(|_| {
        let made = harmless!(number, file, command, least)?;
        files().note(made, true);
        Ok(made)
    })
}

/// Forgets the signals, and has none read them, if no descriptor is known any more.
#[inline(never)]
fn end_if_last() {
    if files().has_any() {
        return;
    }
    super::prepare_stack();
    super::locked(|_| {
        // Another thread may have made one.
        if !files().has_any() {
            files().is_used.store(false, Ordering::Relaxed);
            files().set.store(0, Ordering::Relaxed);
            signals::end_reading();
        }
    });
    signals::pass_unread_on();
}

/// Has a member that is about to read signals get them. Inlined, because Go makes calls with little stack.
#[inline(always)]
pub fn prepare(call: &[u64; 7]) {
    if files().is_used.load(Ordering::Relaxed) {
        prepare_used(call);
    }
}

#[inline(never)]
fn prepare_used(call: &[u64; 7]) {
    const EPOLL_CTL_ADD: u64 = 1;
    let [number, a, b, c, ..] = *call;
    let reads = match number {
        nr::READ | nr::READV => files().has(a),
        nr::POLL | nr::PPOLL => has_polled(a, b),
        nr::SELECT | nr::PSELECT6 => has_selected(a, b),
        nr::EPOLL_CTL => u64::from(b as u32) == EPOLL_CTL_ADD && files().has(c),
        nr::EPOLL_WAIT | nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => files().has(a),
        _ => false,
    };
    if reads && number == nr::EPOLL_CTL {
        files().note(a, true);
    }
    if reads {
        signals::read_by_file();
    }
}

/// Returns whether one of the descriptors of `poll` is known.
fn has_polled(start: u64, count: u64) -> bool {
    /// The kernel's `struct pollfd` begins with the descriptor.
    const POLLED: u64 = 8;
    let mut all = (0..count.min(MOST)).map(|index| user::words::<1>(start.wrapping_add(index * POLLED)));
    all.any(|polled| polled.is_ok_and(|[file]| files().has(file)))
}

/// Returns whether one of the descriptors of a set is known.
fn has_selected(count: u64, set: u64) -> bool {
    let words = u64::from(count as u32).min(MOST).div_ceil(64);
    set != 0
        && (0..words).any(|word| {
            let selected = user::words::<1>(set.wrapping_add(word * 8)).unwrap_or([0])[0];
            selected & files().known[word as usize].load(Ordering::Relaxed) != 0
        })
}

/// Begins a process, which has the descriptors, and one member.
pub fn begin_process() {
    files().reader.store(0, Ordering::Relaxed);
}
