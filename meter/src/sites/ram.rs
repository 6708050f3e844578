//! The guest's memory, as far as the meter reads it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The memory of a machine that has all of it in one piece, from the physical address 0. QEMU's q35 has that
/// up to 2,815 MiB.
#[derive(Clone, Copy, Debug)]
pub struct Ram(&'static [AtomicU64]);

impl Ram {
    /// Wraps the memory.
    pub fn new(words: &'static [AtomicU64]) -> Self {
        Self(words)
    }

    /// Returns the word at a physical address. Relaxed: the reader's CPU wrote it, or any value will do.
    pub fn word(self, physical: u64) -> Option<u64> {
        let word = self.0.get(usize::try_from(physical / 8).ok()?);
        word.filter(|_| physical.is_multiple_of(8)).map(|word| word.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_below_the_end() {
        let ram = Ram::new(Box::leak(Box::new([const { AtomicU64::new(0) }; 4])));
        ram.0[3].store(7, Relaxed);
        assert_eq!((ram.word(24), ram.word(16), ram.word(32), ram.word(25)), (Some(7), Some(0), None, None));
    }
}
