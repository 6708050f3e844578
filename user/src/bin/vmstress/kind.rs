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
    /// Loads without the lock.
    Peek,
    /// `mremap` to another place and back.
    Move,
    /// A child that checks its copy, and writes to it.
    Fork,
    /// Moves to another CPU.
    Wander,
}

impl Kind {
    /// All operations, in the order of their declaration.
    pub const ALL: [Kind; 11] = [
        Kind::Map,
        Kind::Add,
        Kind::Unmap,
        Kind::Protect,
        Kind::Discard,
        Kind::Write,
        Kind::Read,
        Kind::Peek,
        Kind::Move,
        Kind::Fork,
        Kind::Wander,
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        let names =
            ["map", "add", "unmap", "protect", "discard", "write", "read", "peek", "move", "fork", "wander"];
        names[self as usize]
    }

    /// Chooses an operation. Of 1024 they are about: 184 map, 32 add, 112 unmap, 128 protect, 72 discard, 240
    /// write, 176 read, 60 peek, 8 move, 4 fork, 8 wander.
    pub fn choose(random: &mut Random) -> Kind {
        let bounds = [184, 216, 328, 456, 528, 768, 944, 1004, 1012, 1016];
        let draw = random.below(1024);
        Kind::ALL[bounds.iter().filter(|bound| draw >= **bound).count()]
    }
}

/// The number of steps of each kind.
pub type StepCounts = [u64; Kind::ALL.len()];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_name_and_its_turn() {
        let (mut random, mut counts) = (Random::new(1), StepCounts::default());
        (0..10_000).for_each(|_| counts[Kind::choose(&mut random) as usize] += 1);
        for kind in Kind::ALL {
            assert_eq!(kind.name(), format!("{kind:?}").to_lowercase());
            assert!(counts[kind as usize] > 10, "{kind:?}");
        }
    }
}
