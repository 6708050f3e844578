//! What makes a futex word the same word for several threads.

use alloc::sync::Arc;

use abi::Errno;

use crate::mm::user;
use crate::sched::Task;

/// A word: where it is, and in whose memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Names the address space by a place in memory that is its own while threads run in it.
    pub home: u64,
    /// The address. Never 0.
    pub at: u64,
}

impl Key {
    /// The word at `at` in the memory of `task`. It is aligned and in user space: that is also what keeps it from 0.
    ///
    /// # Errors
    /// EINVAL, EFAULT.
    pub fn of(task: &Task, at: u64) -> Result<Self, Errno> {
        match (at % 4, at) {
            (0, 1..user::USER_END) => Ok(Self { home: Arc::as_ptr(task.space()) as u64, at }),
            (0, _) => Err(Errno::EFAULT),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Any number below 256, seldom the same for two words.
    pub fn hash(self) -> usize {
        // Fibonacci hashing: the high bits of the product depend on all of the sum.
        ((self.home >> 4).wrapping_add(self.at >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
    }
}
