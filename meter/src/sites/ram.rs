//! The guest's memory, as far as the meter reads it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where memory goes on above the hole for devices.
const HIGH: u64 = 4 << 30;
/// The most memory that QEMU's q35 machine puts below the hole in one piece. Of more, 2 GiB lie there.
const LOW: u64 = 0xb000_0000;

/// The guest's memory by words.
#[derive(Clone, Copy, Debug)]
pub struct Ram(&'static [AtomicU64]);

impl Ram {
    /// Wraps the memory, which begins at the guest's physical address 0.
    pub fn new(words: &'static [AtomicU64]) -> Self {
        Self(words)
    }

    /// Returns the word at a physical address. Relaxed: the reader's CPU wrote it, or any value will do.
    pub fn word(self, physical: u64) -> Option<u64> {
        let length = self.0.len() as u64 * 8;
        let low = if length >= LOW { 2 << 30 } else { LOW };
        let offset = if physical >= HIGH { physical - HIGH + low } else { physical };
        let is_there = physical.is_multiple_of(8) && (physical >= HIGH || physical < low);
        self.0.get(usize::try_from(offset / 8).ok()?).filter(|_| is_there).map(|word| word.load(Relaxed))
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
        assert_eq!(ram.word(HIGH), None, "this machine has no memory there");
    }
}
