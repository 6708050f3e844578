//! The operations by name, and how often each is chosen.

use programs::random::Random;

/// The operations.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `mmap` with MAP_FIXED.
    Map,
    /// `mmap` with MAP_FIXED_NOREPLACE.
    Add,
    /// `munmap`.
    Unmap,
    /// `mprotect`.
    Protect,
    /// `madvise(MADV_DONTNEED)`.
    Discard,
    /// Stores, or a system call that stores.
    Write,
    /// Loads, or a system call that loads.
    Read,
    /// A look without the lock.
    Peek,
    /// Another CPU.
    Wander,
}

impl Kind {
    /// All of them, in the order of their declaration.
    pub const ALL: [Kind; 9] = [
        Kind::Map,
        Kind::Add,
        Kind::Unmap,
        Kind::Protect,
        Kind::Discard,
        Kind::Write,
        Kind::Read,
        Kind::Peek,
        Kind::Wander,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        ["map", "add", "unmap", "protect", "discard", "write", "read", "peek", "wander"][self as usize]
    }

    /// Of 128 operations, about: 24 map, 4 add, 14 unmap, 16 protect, 9 discard, 30 write, 22 read, 8 peek,
    /// 1 wander.
    pub fn choose(random: &mut Random) -> Kind {
        let bounds = [24, 28, 42, 58, 67, 97, 119, 127];
        let draw = random.below(128);
        Kind::ALL[bounds.iter().filter(|bound| draw >= **bound).count()]
    }
}

/// How often each kind was done.
pub type Tally = [u64; Kind::ALL.len()];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_name_and_its_turn() {
        let (mut random, mut tally) = (Random::new(1), Tally::default());
        (0..10_000).for_each(|_| tally[Kind::choose(&mut random) as usize] += 1);
        for kind in Kind::ALL {
            assert_eq!(kind.name(), format!("{kind:?}").to_lowercase());
            assert!(tally[kind as usize] > 10, "{kind:?}");
        }
    }
}
