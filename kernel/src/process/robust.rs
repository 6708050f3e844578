//! Robust futexes: a list, in the program's memory, of the locks that a thread holds. They are released when
//! it dies.

use abi::Errno;
use abi::process::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS, RobustListHead};
use sync::atomic::Ordering;

use super::futex::{self, Word};
use crate::mm::user;
use crate::sched::Task;

/// The longest list that is walked, because it may be circular.
const LIMIT: usize = 2048;
/// Bit 0 of a pointer marks a priority-inheritance lock, which we do not have.
const MARK: u64 = 1;

/// Releases the locks that the running thread still holds. A damaged list ends the walk.
pub fn release(task: &Task) {
    let head = task.thread.robust_list.load(Ordering::Relaxed);
    if head != 0 {
        let _damaged = walk(task, head);
    }
}

fn walk(task: &Task, head: u64) -> Result<(), Errno> {
    let list: RobustListHead = user::read(head)?;
    let mut entry = list.next;
    for _ in 0..LIMIT {
        if entry & !MARK == head {
            break;
        }
        let next: Result<u64, Errno> = user::read(entry & !MARK);
        if entry != list.pending {
            mark_dead(task, entry, list.futex_offset)?;
        }
        entry = next?;
    }
    match list.pending {
        0 => Ok(()),
        pending => mark_dead(task, pending, list.futex_offset),
    }
}

fn mark_dead(task: &Task, entry: u64, offset: i64) -> Result<(), Errno> {
    let at = (entry & !MARK).wrapping_add_signed(offset);
    let mut word = user::load_u32(at)?;
    while word & FUTEX_TID_MASK == task.tid() {
        let dead = word & FUTEX_WAITERS | FUTEX_OWNER_DIED;
        let found = user::compare_exchange_u32(at, word, dead)?;
        if found == word {
            break;
        }
        word = found;
    }
    if word & FUTEX_TID_MASK == task.tid() && word & FUTEX_WAITERS != 0 {
        futex::wake(task, Word::new(at, false)?, 1, u32::MAX);
    }
    Ok(())
}
