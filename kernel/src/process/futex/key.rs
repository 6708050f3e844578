//! What makes a futex word the same word for several threads.

use alloc::sync::Arc;

use abi::Errno;
use vm::VirtAddr;

use crate::mm::file_mapping::shared_word;
use crate::mm::user;
use crate::sched::Task;

/// A word as a thread names it.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// Its address in the thread's memory.
    pub at: u64,
    /// Whether only threads that share all memory use it (FUTEX_PRIVATE_FLAG).
    pub private: bool,
}

/// A word: where it is, and in whose memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Names the address space, or the file of shared memory, by a place in the kernel's memory that is its own while
    /// threads run in it, or it is mapped.
    pub home: u64,
    /// The address there, or the place in the file, plus 1: never 0.
    pub at: u64,
}

impl Key {
    /// What `word` leads to in the memory of `task`. It is aligned and in user space.
    ///
    /// # Errors
    /// EINVAL, EFAULT.
    pub fn of(task: &Task, Word { at, private }: Word) -> Result<Self, Errno> {
        match (at % 4, at) {
            (0, 1..user::USER_END) => {
                let shared = if private { None } else { shared_word(task.space(), VirtAddr::new(at)) };
                let (home, at) = shared.unwrap_or((Arc::as_ptr(task.space()) as u64, at));
                Ok(Self { home, at: at + 1 })
            }
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
