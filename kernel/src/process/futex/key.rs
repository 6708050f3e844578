//! Keys: the identity of a futex word for several threads.

use alloc::sync::Arc;

use abi::Errno;
use percore::pin;
use vm::{Flags, Mapping, PAGE_SIZE, VirtAddr};

use crate::mm::{file_mapping, user};
use crate::sched::Task;

/// A word as a call specifies it.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// Its address, aligned and in user space.
    at: u64,
    /// Set if only threads of one address space use it.
    is_private: bool,
}

impl Word {
    /// Returns the word at `at`.
    ///
    /// # Errors
    /// EINVAL if it is not aligned, EFAULT if it is not in user space.
    pub fn new(at: u64, is_private: bool) -> Result<Self, Errno> {
        match (at % 4, at) {
            (0, 1..user::USER_END) => Ok(Self { at, is_private }),
            (0, _) => Err(Errno::EFAULT),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns its address.
    pub fn at(self) -> u64 {
        self.at
    }
}

/// The identity of a word: the object that contains it, and the position there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The address space, by its kernel address, which stays the same as long as it has threads. Or the file
    /// or shared memory, by a number that is never used again, because a sleeper may have unmapped it.
    pub object: u64,
    /// The address in the space, or the offset in the file plus one. Never 0.
    pub at: u64,
}

impl Key {
    /// Returns the key of `word` in the memory of `task`.
    pub fn of(task: &Task, word: Word) -> Self {
        let shared = if word.is_private { None } else { shared(task, word.at) };
        shared.unwrap_or(Self { object: Arc::as_ptr(task.space()) as u64, at: word.at })
    }

    /// Returns a hash below 256.
    pub fn hash(self) -> usize {
        // Fibonacci hashing: the high bits of the product depend on all of the sum.
        ((self.object >> 4).wrapping_add(self.at >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
    }
}

/// Returns the key of a word in shared memory.
fn shared(task: &Task, at: u64) -> Option<Key> {
    let address = VirtAddr::new(at);
    let mut key = None;
    let mut visit = |mapping: Mapping| {
        let backing = mapping.backing().filter(|_| mapping.flags().contains(Flags::SHARED));
        key = backing.map(|backing| {
            file_mapping::with(backing, |record| {
                let offset = record.file_page(address.page()) * PAGE_SIZE + address.offset();
                Key { object: record.file().name(), at: offset + 1 }
            })
        });
    };
    task.space().look(&pin(), address.page(), &mut visit);
    key
}
