//! A buffer with memory of its own: mapped when it is made, unmapped when it is dropped, as allocators do it
//! for large pieces.

use crate::memory::{self, PAGE, READ_WRITE};
use crate::require;
use std::ops::{Deref, DerefMut};
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Bytes of one owner, zeroes at first. The default is an empty one, which needs no memory.
#[derive(Default)]
pub struct Buffer {
    address: usize,
    room: usize,
    length: usize,
}

impl Buffer {
    /// Maps room for `length` bytes. Without memory the process ends.
    pub fn new(length: usize) -> Buffer {
        let room = length.max(1).next_multiple_of(PAGE);
        Buffer { address: require(memory::map(room, READ_WRITE), "mmap of a buffer"), room, length }
    }

    /// Forgets all but the first `length` bytes. The room stays.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.room == 0 {
            return &[];
        }
        // SAFETY: the memory is mapped while the buffer lives, `length` is within the room, and nothing else
        // refers to it.
        unsafe { from_raw_parts(self.address as *const u8, self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.room == 0 {
            return &mut [];
        }
        // SAFETY: as for `deref`, and the owner is borrowed exclusively.
        unsafe { from_raw_parts_mut(self.address as *mut u8, self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.room > 0 {
            // SAFETY: nothing refers to the buffer's memory any more.
            require(unsafe { memory::unmap(self.address, self.room) }, "munmap of a buffer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_zeroes_until_written_and_can_be_cut() {
        let mut buffer = Buffer::new(PAGE + 1);
        assert!(buffer.len() == PAGE + 1 && buffer.iter().all(|byte| *byte == 0));
        buffer[PAGE] = 7;
        buffer.truncate(2 * PAGE);
        assert_eq!(buffer[PAGE], 7);
        buffer.truncate(3);
        assert_eq!(*buffer, [0; 3]);
        assert!(Buffer::new(0).is_empty() && Buffer::default().is_empty());
    }
}
