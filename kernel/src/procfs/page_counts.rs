//! `/proc/kpagecount`: a word for each frame of the machine, the number of pages that show it.
//!
//! No count of a frame says that. Refcache's is known only after epochs, and a frame that has one owner has
//! no count at all. A count kept for this file would be a line that all faults on a page of a file write. So
//! faults write nothing for it, and a read walks over the pages of all processes and counts those that show
//! one of its frames.
//!
//! 1. The walk takes no lock of a space on tables of the radix design. It is pinned for a bounded number of
//!    steps at a time, and other tasks run between two of these. The sums are exact if no page comes or goes
//!    meanwhile.
//! 2. It costs as much for one frame as for many, so a read counts up to [`MOST`] bytes of words at once.
//! 3. One task walks at a time. It leaves the walk's number in each memory that it has counted, so processes
//!    that share their memory count once.
//! 4. A process's memory is held only for one step, so it is freed when the process ends.
//! 5. A caller that holds the lock of a file's position must not pause. It gets EDEADLK, and reads without
//!    the lock.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use sync::SpinLock;
use vm::FrameRun;

use crate::bytes::{prefix, prefix_mut};
use crate::fs::content::{Content, Take, WriteAt};
use crate::fs::page_cache::PAGE;
use crate::mm::space::user_pages;
use crate::mm::{epoch, fallible, frames};
use crate::process::{Process, pid};
use crate::sched;

const WORD: usize = size_of::<u64>();
/// The most bytes that one walk counts.
const MOST: usize = 64 * PAGE;

/// The number of the last walk, locked while it is under way.
static WALK: SpinLock<u64> = SpinLock::new(0);

/// See the module.
pub struct PageCounts;

impl Content for PageCounts {
    fn read(&self, at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        into.fill(0);
        count(at, into)
    }

    fn show(&self, at: u64, most: usize, take: Take<'_>) -> Option<Result<usize, Errno>> {
        if !epoch::may_reclaim() {
            // Before words are made for nothing.
            return Some(Err(Errno::EDEADLK));
        }
        Some(room(most).and_then(|mut words| {
            let len = count(at, &mut words)?;
            take(prefix(&words, len as u64))
        }))
    }

    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EROFS)
    }
}

/// Returns zeroes for words of at most `most` bytes: fewer if memory is short.
fn room(most: usize) -> Result<Vec<u8>, Errno> {
    let mut len = most.min(MOST);
    loop {
        match fallible::zeroes(len) {
            Err(Errno::ENOMEM) if len > PAGE => len = PAGE.max(len / 2 / WORD * WORD),
            made => return made,
        }
    }
}

/// Fills `words`, which are zeroes, with those from `at` on. Returns the number of bytes, 0 behind the last
/// frame.
fn count(at: u64, words: &mut [u8]) -> Result<usize, Errno> {
    if !at.is_multiple_of(WORD as u64) || !words.len().is_multiple_of(WORD) {
        return Err(Errno::EINVAL);
    }
    if !epoch::may_reclaim() {
        return Err(Errno::EDEADLK);
    }
    let first = at / WORD as u64;
    let left = frames::end().saturating_sub(first).saturating_mul(WORD as u64);
    let words = prefix_mut(words, left).as_chunks_mut::<WORD>().0;
    let mut add = |run: FrameRun| {
        for frame in run.frames() {
            let index = frame.get().wrapping_sub(first) as usize;
            words
                .get_mut(index)
                .into_iter()
                .for_each(|word| *word = (u64::from_le_bytes(*word) + 1).to_le_bytes());
        }
    };
    let mut walk = loop {
        match WALK.try_lock() {
            Some(walk) => break walk,
            None if sched::pause() => sched::give_way(),
            None => return Err(Errno::EINTR),
        }
    };
    *walk += 1;
    let mut goes_on = true;
    pid::for_each(|process| goes_on = goes_on && show_frames(process, *walk, &mut add));
    if goes_on { Ok(words.len() * WORD) } else { Err(Errno::EINTR) }
}

/// Shows the frames of a process to `visit`, unless another has shown them in this `walk`. Returns false if
/// the caller is killed.
fn show_frames(process: &Arc<Process>, walk: u64, visit: &mut dyn FnMut(FrameRun)) -> bool {
    let mut rest = user_pages();
    let memory = process.memory().filter(|memory| memory.enter_walk(walk));
    // The same one in each piece: another process that has it is passed over, whatever this one runs by then.
    let Some(memory) = memory.map(|memory| Arc::downgrade(&memory)) else { return sched::pause() };
    while !rest.is_empty() {
        let Some(memory) = memory.upgrade() else { return true };
        rest = memory.space.frames_of(rest, visit);
        drop(memory);
        if !sched::pause() {
            return false;
        }
    }
    true
}
