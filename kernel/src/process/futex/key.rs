//! What makes a futex word the same word for several threads.

use alloc::sync::Arc;

use abi::Errno;
use percore::pin;
use vm::{Flags, Mapping, PAGE_SIZE, VirtAddr};

use crate::mm::{file_mapping, user};
use crate::sched::Task;

/// A word as a call names it.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// Its address. Aligned and in user space.
    at: u64,
    /// Only threads of one address space are meant.
    is_private: bool,
}

impl Word {
    /// The word at `at`.
    ///
    /// # Errors
    /// EINVAL, EFAULT.
    pub fn new(at: u64, is_private: bool) -> Result<Self, Errno> {
        match (at % 4, at) {
            (0, 1..user::USER_END) => Ok(Self { at, is_private }),
            (0, _) => Err(Errno::EFAULT),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Its address.
    pub fn at(self) -> u64 {
        self.at
    }
}

/// A word: where it is, and in what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Names an address space, or what shared memory shows, by a place in memory that is its own while threads use it.
    pub home: u64,
    /// The address, or the offset and one. Never 0.
    pub at: u64,
}

impl Key {
    /// That of `word` in the memory of `task`.
    pub fn of(task: &Task, word: Word) -> Self {
        let shared = if word.is_private { None } else { shared(task, word.at) };
        shared.unwrap_or(Self { home: Arc::as_ptr(task.space()) as u64, at: word.at })
    }

    /// Any number below 256, seldom the same for two words.
    pub fn hash(self) -> usize {
        // Fibonacci hashing: the high bits of the product depend on all of the sum.
        ((self.home >> 4).wrapping_add(self.at >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
    }
}

/// That of a word in shared memory.
fn shared(task: &Task, at: u64) -> Option<Key> {
    let address = VirtAddr::new(at);
    let mut key = None;
    let mut visit = |mapping: Mapping| {
        let backing = mapping.backing().filter(|_| mapping.flags().contains(Flags::SHARED));
        key = backing.map(|backing| {
            file_mapping::with(backing, |record| {
                let offset = record.file_page(address.page()) * PAGE_SIZE + address.offset();
                Key { home: Arc::as_ptr(record.file()) as u64, at: offset + 1 }
            })
        });
    };
    task.space().look(&pin(), address.page(), &mut visit);
    key
}
